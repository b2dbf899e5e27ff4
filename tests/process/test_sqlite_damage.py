"""A metadata file that was lost, emptied, cut, flipped, replaced or put back from an old copy is named, and never served."""

import asyncio
import random
import resource
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from eventlog.control.cluster import ClusterRecords
from eventlog.control.metastores.resolving import ResolvingStore, RetryOptions
from eventlog.control.metastores.sqlite import SqliteOptions, open_sqlite
from eventlog.errors import BadConfig, EventLogError, MetadataLost, MetadataUnavailable, UnsupportedFormat, WrongCluster
from eventlog.testing.clocks import SeededEntropy

NOW = 1_700_000_000_000


@pytest.fixture
def path(tmp_path):
    """A file with some commits in it, closed."""
    path = tmp_path / "meta.db"
    asyncio.run(fill(path))
    return path


async def fill(path: Path, *, commits: int = 30, first: int = 0):
    store = await open_sqlite(path, create=True)
    for number in range(first, first + commits):
        await store.commit({}, puts={f"k/{number % 10}": str(number).encode() * 20}, deletes=[f"k/{number % 7 + 20}"])
    await store.close()


async def read_all(path: Path, *, create: bool = False):
    store = await open_sqlite(path, create=create)
    try:
        return await store.list("")
    finally:
        await store.close()


def refusal(path: Path, *, create: bool = False) -> str:
    with pytest.raises(MetadataLost) as caught:
        asyncio.run(read_all(path, create=create))
    return str(caught.value)


def test_a_place_where_no_file_can_be_is_a_mistake_and_not_waited_for(path):
    for place, why in (
        (path.parent, "is a directory: name a file"),
        (path / "meta.db", "cannot be made: "),
        (Path("/proc/no/m.db"), "No such"),
    ):
        with pytest.raises(BadConfig, match=why) as caught:
            asyncio.run(read_all(place, create=True))
        assert caught.value.option == "meta"


def test_a_file_that_is_gone_is_not_made_again(path):
    path.unlink()
    assert "is gone" in refusal(path)
    assert not path.exists()


def test_a_file_that_is_gone_while_its_journal_is_there_is_not_made_at_all(path):
    path.unlink()
    path.with_name("meta.db-wal").write_bytes(b"left behind")
    assert "journal" in refusal(path, create=True)
    assert not path.exists()


@pytest.mark.parametrize("create", [False, True])
def test_an_emptied_file_is_not_filled(path, create):
    path.write_bytes(b"")
    assert "is empty" in refusal(path, create=create)
    assert path.stat().st_size == 0


@pytest.mark.parametrize("size", [1, 99, 100, 4096, 8192, -4096])
def test_a_cut_file_is_named(path, size):
    data = path.read_bytes()
    path.write_bytes(data[:size])
    refusal(path)


def test_a_file_of_something_else_is_named(path):
    path.write_bytes(b"not a database, but some text that is long enough to look like one " * 100)
    refusal(path)


def test_a_database_of_another_program_is_left_alone(tmp_path):
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE t (x)")
    assert "not a metadata store" in refusal(path, create=True)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT name FROM sqlite_master").fetchall() == [("t",)]


def test_a_file_of_a_later_format_is_refused_by_its_number(path):
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 2")
    with pytest.raises(UnsupportedFormat) as caught:
        asyncio.run(read_all(path))
    assert caught.value.found == 2


def test_a_flipped_bit_anywhere_is_named_or_changes_nothing(path):
    whole = path.read_bytes()
    listing = asyncio.run(read_all(path))
    chance = random.Random(5)
    refused = 0
    for _ in range(250):
        bit = chance.randrange(len(whole) * 8)
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        path.with_name("meta.db-wal").unlink(missing_ok=True)
        path.with_name("meta.db-shm").unlink(missing_ok=True)
        try:
            found = asyncio.run(read_all(path))
        except (MetadataLost, UnsupportedFormat):
            refused += 1
        else:
            assert found == listing, f"bit {bit} was served"
    assert refused > 10


def test_rows_that_vanish_from_a_page_are_missed(path):
    whole = path.read_bytes()
    tried = 0
    for page in range(4096, len(whole), 4096):
        rows = int.from_bytes(whole[page + 3 : page + 5])
        if whole[page] != 0x0A or not rows:  # a leaf of a table without row ids
            continue
        path.write_bytes(whole[: page + 3] + (rows - 1).to_bytes(2) + whole[page + 5 :])
        refusal(path)
        tried += 1
    assert tried >= 2


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE log SET value = x'00' WHERE revision = 5",
        "UPDATE item SET key = 'K/3' WHERE key = 'k/3'",
        "UPDATE item SET revision = 7 WHERE key = 'k/3'",
        "UPDATE clock SET compacted = 4",
        "DELETE FROM clock",
    ],
)
def test_a_row_that_is_not_as_it_was_written_is_named(path, damage):
    with closing(sqlite3.connect(path)) as file:
        file.execute(damage)
        file.commit()
    assert "damaged" in refusal(path)


async def clock_at(path, revision):
    """Return the row that says how far a store of its own is: revision, what was compacted, checksum."""
    store = await open_sqlite(path, create=True)
    for number in range(revision):
        await store.commit({}, puts={f"k/{number}": b"v"})
    await store.close()
    with closing(sqlite3.connect(path)) as file:
        return file.execute("SELECT revision, compacted, crc FROM clock").fetchone()


def test_a_revision_below_those_of_its_rows_is_named(path):
    row = asyncio.run(clock_at(path.with_name("other.db"), 3))
    assert row[:2] == (3, 0)
    with closing(sqlite3.connect(path)) as file:
        file.execute("UPDATE clock SET revision = ?, compacted = ?, crc = ?", row)
        file.commit()
    assert "revision" in refusal(path)


@pytest.mark.parametrize("change", ["remove", "replace"])
def test_a_file_taken_away_under_a_running_store_acknowledges_nothing_more(path, change):
    async def story():
        store = await open_sqlite(path, create=False)
        try:
            copy = path.with_name("copy.db")
            shutil.copy(path, copy)
            path.unlink()
            if change == "replace":
                copy.rename(path)
            with pytest.raises(MetadataLost):
                await store.commit({}, puts={"k": b""})
        finally:
            await store.close()

    asyncio.run(story())


def test_a_path_that_cannot_be_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadConfig):
        asyncio.run(read_all(tmp_path / "file" / "meta.db", create=True))
    (tmp_path / "folder").mkdir()
    with pytest.raises(EventLogError):
        asyncio.run(read_all(tmp_path / "folder"))


def test_a_writer_that_never_lets_go_makes_commits_unavailable_and_they_did_not_happen(path):
    async def story():
        store = await open_sqlite(path, create=False, options=SqliteOptions(busy_ms_max=30))
        try:
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
                with pytest.raises(MetadataUnavailable) as caught:
                    await store.commit({}, puts={"new": b""})
                assert caught.value.outcome == "none"
                other.execute("ROLLBACK")
            assert await store.get("new") is None
            await store.commit({}, puts={"new": b""})
        finally:
            await store.close()

    asyncio.run(story())


def test_a_disk_that_is_full_leaves_the_outcome_unknown_and_the_next_try_finds_out(path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    async def story():
        store = await open_sqlite(path, create=False)
        resolving = ResolvingStore(store, writer="w", entropy=SeededEntropy(1), retry=RetryOptions(attempts=2, pause_ms=0))
        try:
            await resolving.commit({}, puts={"k": b"1"})
            resource.setrlimit(resource.RLIMIT_FSIZE, (path.with_name("meta.db-wal").stat().st_size + 5_000, hard))
            for each in (store, resolving):
                with pytest.raises(MetadataUnavailable) as caught:
                    await each.commit({}, puts={"k": bytes(100_000)})
                assert caught.value.outcome == "unknown"
            found = await store.get("k")
            assert found is not None
            assert found.value == b"1"
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            await resolving.commit({"k": found.revision}, puts={"k": b"2"})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            await store.close()

    asyncio.run(story())
    assert [item.value for item in asyncio.run(read_all(path)).items if item.key == "k"] == [b"2"]


def test_the_log_of_watches_is_bounded(path):
    async def story():
        store = await open_sqlite(path, create=False, options=SqliteOptions(revisions_kept=20))
        for _ in range(30):
            await store.commit({}, puts={"k": b""})
        await store.close()

    asyncio.run(story())
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("SELECT count(*), max(revision) FROM log").fetchone() == (20, 60)


def test_making_the_file_leaves_nothing_else_behind(tmp_path):
    path = tmp_path / "deep" / "meta.db"
    asyncio.run(fill(path, commits=1))
    assert [entry.name for entry in path.parent.iterdir()] == ["meta.db"]


def test_of_two_that_make_the_file_at_once_both_use_one(tmp_path):
    async def story():
        stores = await asyncio.gather(*(open_sqlite(tmp_path / "meta.db", create=True) for _ in range(4)))
        for number, store in enumerate(stores):
            await store.commit({}, puts={f"k/{number}": b""})
        assert len((await stores[0].list("k/")).items) == 4
        for store in stores:
            await store.close()

    asyncio.run(story())


# ---------------------------------------------------------------- what a data directory remembers


async def start(path: Path, *, remembered=None, seed: int = 1):
    """Open the store and the cluster as a node would; return what it would remember."""
    store = await open_sqlite(path, create=remembered is None)
    try:
        records = ClusterRecords(store, incarnation="a", entropy=SeededEntropy(seed), where=str(path))
        await records.open_or_create(segments=16, now_ms=NOW, remembered=remembered)
        await store.commit({}, puts={"tick": b""})
        await records.view()
        return records.remember()
    finally:
        await store.close()


def test_an_older_copy_put_back_is_named(tmp_path):
    async def story():
        path = tmp_path / "meta.db"
        first = await start(path)
        shutil.copy(path, tmp_path / "old.db")
        second = await start(path, remembered=first)
        assert second.revision > first.revision
        shutil.copy(tmp_path / "old.db", path)
        with pytest.raises(MetadataLost, match="older copy"):
            await start(path, remembered=second)

    asyncio.run(story())


def test_a_journal_taken_away_is_named(tmp_path):
    async def story():
        path = tmp_path / "meta.db"
        first = await start(path)
        store = await open_sqlite(path, create=False)
        await store.commit({}, puts={"tick": b""})
        shutil.copy(path, tmp_path / "copy.db")  # as a kill leaves it, without the journal
        records = ClusterRecords(store, incarnation="a", entropy=SeededEntropy(1), where=str(path))
        await records.open_or_create(segments=16, now_ms=NOW, remembered=first)
        remembered = records.remember()
        await store.close()
        with pytest.raises(MetadataLost, match="older copy"):
            await start(tmp_path / "copy.db", remembered=remembered)

    asyncio.run(story())


def test_a_fresh_file_in_the_place_of_a_lost_one_is_named(tmp_path):
    async def story():
        remembered = await start(tmp_path / "meta.db")
        await fill(tmp_path / "fresh.db", commits=100)
        with pytest.raises(MetadataLost, match=remembered.cluster):
            await start(tmp_path / "fresh.db", remembered=remembered)
        assert len((await read_all(tmp_path / "fresh.db")).items) == 10  # and nothing was put into it

    asyncio.run(story())


def test_the_file_of_another_cluster_is_refused(tmp_path):
    async def story():
        remembered = await start(tmp_path / "meta.db")
        await start(tmp_path / "other.db", seed=2)
        with pytest.raises(WrongCluster) as caught:
            await start(tmp_path / "other.db", remembered=remembered)
        assert caught.value.ours == remembered.cluster

    asyncio.run(story())
