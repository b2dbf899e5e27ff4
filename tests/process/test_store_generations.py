"""Every file of a store with two generations of data, damaged in every way: what opens is whole, and what is not whole does not open.

The first generation was written and killed; a second process opened the store as a node does, wrote on, and was killed or stopped. So
the first half lies in tables that the opening wrote, whose journal is gone; of the second half the kill leaves nothing but the journal.
"""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from eventlog.errors import CorruptData, EventLogError, LostDisk, WrongCluster
from eventlog.segment import keys
from eventlog.segment.recovery import recover
from eventlog.segment.rocks.failing import reading_error
from eventlog.segment.rocks.opening import close_database, open_database
from eventlog.segment.rocks.reading import read_pairs
from eventlog.segment.rocks.store import open_store
from eventlog.segment.salvage import cut_faulty
from tests.process.store_child import ROOMY, SEGMENTS, expected, expected_state, faults, groups_upto, last_acknowledged, read_all
from tests.process.stores import run_story

GROUPS = 60
WHOLE = "whole"
REFUSALS = (CorruptData, LostDisk, WrongCluster)


@dataclass(frozen=True)
class Generations:
    """A store after both, a copy of it from between them, and another directory's of the same age."""

    path: Path
    first: Path
    other: Path

    def copy(self, to: Path) -> Path:
        return Path(shutil.copytree(self.path, to / "copy"))


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as made:
        yield Path(made)


@pytest.fixture(scope="module", params=["kill", "stop"])
def generations(request: pytest.FixtureRequest, folder: Path) -> Generations:
    made = folder / request.param
    for path in (made / "store", made / "other"):
        run_story("young", path, str(GROUPS))
        shutil.copytree(path, path.with_name(f"{path.name}-first"))
        last = last_acknowledged(run_story("again", path, str(GROUPS), request.param))
        assert groups_upto(last) == 2 * GROUPS
    return Generations(made / "store", made / "store-first", made / "other")


def verdict(path: Path) -> str | EventLogError:
    """Return what a start makes of a directory. What opens without a refusal has everything, in log, state and meta rows."""
    try:
        with contextlib.closing(open_store(path, segments=SEGMENTS, options=ROOMY)) as store:
            recovery = recover(store, keyed={1})
            if recovery.refusals:
                return recovery.refusals[0]
            assert groups_upto(recovery.last_id) == 2 * GROUPS
            epochs = {row.epoch for rows in recovery.epochs for row in rows}
            assert epochs == {1, 2}, "meta rows of one generation are gone"
            log = read_all(store)
            assert {key: len(value) for key, value in log.items()} == {key: len(value) for key, value in expected(2 * GROUPS).items()}
            store.read_state(b"", b"\xff" * 20, limit=1_000)
            assert faults(store) == []
            if int(recovery.marks.min()) == recovery.last_id:
                entries = [key for key, _ in store.read_state(b"", b"\xf0", limit=1_000)]
                assert entries == sorted(expected_state(2 * GROUPS))
    except EventLogError as error:
        return error
    return WHOLE


# ---------------------------------------------------------------- every file, every act

Act = Callable[[Path, Generations], None]
Forget = Callable[[list[bytes]], list[tuple[bytes, bytes | None]]]


def flipped(share: float) -> Act:
    def act(file: Path, _: Generations) -> None:
        data = bytearray(file.read_bytes())
        if data:
            data[int((len(data) - 1) * share)] ^= 0x10
        file.write_bytes(data)

    return act


def cut(nbytes: int) -> Act:
    def act(file: Path, _: Generations) -> None:
        file.write_bytes(file.read_bytes()[:-nbytes])

    return act


def halved(file: Path, _: Generations) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def emptied(file: Path, _: Generations) -> None:
    file.write_bytes(b"")


def removed(file: Path, _: Generations) -> None:
    file.unlink()


def lengthened(file: Path, _: Generations) -> None:
    file.write_bytes(file.read_bytes() + bytes(100))


def of(which: str) -> Act:
    """Put the file of the same kind from elsewhere in its place: `first` is that of the first generation."""

    def act(file: Path, generations: Generations) -> None:
        elsewhere = getattr(generations, which) / file.relative_to(file.parents[2] if file.parent.name == "db" else file.parents[1]).parent
        found = sorted(elsewhere.glob(kind_of(file)))
        if found:
            shutil.copy(found[-1], file)

    return act


ACTS: dict[str, Act] = {
    "flipped at its beginning": flipped(0.0),
    "flipped in its middle": flipped(0.5),
    "flipped near its end": flipped(0.97),
    "without its last byte": cut(1),
    "without its last 100 bytes": cut(100),
    "halved": halved,
    "emptied": emptied,
    "removed": removed,
    "lengthened": lengthened,
    "of the first generation": of("first"),
    "of another directory": of("other"),
}


def kind_of(file: Path) -> str:
    """Return the pattern that files of this kind have."""
    if file.suffix in (".sst", ".log"):
        return f"*{file.suffix}"
    return f"{file.name.split('-')[0]}-*" if "-0" in file.name else file.name


def files_of(path: Path) -> list[Path]:
    """Return the files that matter, but RocksDB's diary, its lock and an identity that nothing asks for."""
    return sorted(
        file for file in (path / "store").rglob("*") if file.is_file() and not file.name.startswith(("LOG", "LOCK", "IDENTITY", "clean"))
    )


@pytest.mark.parametrize("act", ACTS)
def test_no_file_can_be_damaged_so_that_less_is_served(generations: Generations, folder: Path, act: str):
    names = [file.relative_to(generations.path) for file in files_of(generations.path)]
    assert {kind_of(name) for name in names} >= {"MANIFEST-*", "CURRENT", "OPTIONS-*", "*.sst", "*.log", "ends", "identity", "settled"}
    for name in names:
        with tempfile.TemporaryDirectory(dir=folder) as place:
            path = generations.copy(Path(place))
            ACTS[act](path / name, generations)
            found = verdict(path)
            assert found == WHOLE or isinstance(found, REFUSALS), (str(name), found)


# ---------------------------------------------------------------- what RocksDB passes over, by name


def newest(path: Path, pattern: str) -> Path:
    return max((path / "store" / "db").glob(pattern))


def lost(path: Path, *words: str) -> None:
    """Expect a lost disk, for these reasons, however often it is tried."""
    for _ in range(2):
        found = verdict(path)
        assert isinstance(found, LostDisk), found
        assert all(word in str(found) for word in words), found


@pytest.fixture
def path(generations: Generations, folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=folder) as place:
        yield generations.copy(Path(place))


def test_an_undamaged_copy_is_whole(path: Path):
    assert verdict(path) == WHOLE


def test_a_torn_manifest_is_named_and_nothing_is_deleted_by_looking(path: Path):
    manifest = newest(path, "MANIFEST-*")
    whole = manifest.read_bytes()
    manifest.write_bytes(whole[:-100])
    lost(path, manifest.name)
    manifest.write_bytes(whole)
    assert verdict(path) == WHOLE


def test_a_current_that_names_the_manifest_of_the_first_generation_is_named(generations: Generations, path: Path):
    older = newest(generations.first, "MANIFEST-*")
    for name in (older.name, "CURRENT"):
        shutil.copy(older.with_name(name), path / "store" / "db")
    lost(path, older.name, "older")


def test_a_database_of_the_first_generation_is_named(generations: Generations, path: Path):
    shutil.rmtree(path / "store" / "db")
    shutil.copytree(generations.first / "store" / "db", path / "store" / "db")
    lost(path, "MANIFEST", "older")


def test_a_database_of_the_first_generation_is_found_out_without_what_had_settled(generations: Generations, path: Path):
    shutil.rmtree(path / "store" / "db")
    shutil.copytree(generations.first / "store" / "db", path / "store" / "db")
    (path / "store" / "settled").unlink()
    lost(path, "its meta rows are those of change")


def test_no_cut_of_the_manifest_goes_unnoticed_where_nothing_is_known_of_it(generations: Generations, folder: Path):
    """As in a directory of an earlier version: log, meta rows and state speak for themselves."""
    size = newest(generations.path, "MANIFEST-*").stat().st_size
    verdicts = []
    for nbytes in range(20, size, 40):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            path = generations.copy(Path(place))
            (path / "store" / "settled").unlink()
            manifest = newest(path, "MANIFEST-*")
            manifest.write_bytes(manifest.read_bytes()[:-nbytes])
            found = verdict(path)
            assert found == WHOLE or isinstance(found, REFUSALS), (nbytes, found)
            verdicts.append(found)
    assert any(isinstance(found, LostDisk) for found in verdicts), "RocksDB opened some of them, and passed over what was gone"


def test_no_cut_of_the_journal_goes_unnoticed(generations: Generations, folder: Path):
    size = newest(generations.path, "*.log").stat().st_size
    for nbytes in {1, 10, 40, *range(100, size, max(size // 10, 1))} & set(range(size + 1)):
        with tempfile.TemporaryDirectory(dir=folder) as place:
            path = generations.copy(Path(place))
            journal = newest(path, "*.log")
            journal.write_bytes(journal.read_bytes()[:-nbytes])
            assert isinstance(verdict(path), REFUSALS), nbytes


@pytest.mark.parametrize(
    ("family", "change", "words"),
    [
        ("log", lambda rows: [(rows[len(rows) // 3], None)], ("segment 2, cache 1", "are missing")),
        ("log", lambda rows: [(rows[0], None)], ("segment 0, cache 1", "offsets 0 to")),
        ("meta", lambda rows: [(rows[0], None)], ("some of its meta rows are missing",)),
        ("meta", lambda rows: [(rows[1], bytes(16))], ("some of its meta rows are missing or older",)),
        ("meta", lambda rows: [(row, None) for row in rows if row != keys.IDENTITY_KEY], ("its meta rows are those of change 0",)),
        ("state", lambda _: [(keys.FLUSH_KEY, bytes(8))], ("its state is that of flush 0, and flush 1 was durable",)),
    ],
    ids=["value", "first value", "meta row", "older meta row", "all meta rows", "older state"],
)
def test_what_the_engine_forgets_is_named_whatever_made_it_forget(path: Path, family: str, change: Forget, words: tuple[str, ...]):
    database = open_database(path / "store" / "db", ROOMY)
    own = getattr(database, family)
    for key, value in change([key for key, _ in read_pairs(own, (b"", b"\xff" * 20), limit=None, judge=reading_error("it"))]):
        if value is None:
            own.delete(key)
        else:
            own.put(key, value)
    del own
    assert close_database(database) is None
    lost(path, *words)


def test_a_directory_of_the_format_before_opens_is_looked_through_and_settles(path: Path):
    (path / "store" / "settled").unlink()
    with contextlib.closing(open_store(path, segments=SEGMENTS, options=ROOMY)) as store:
        assert not store.settled.any()
        recovery = recover(store, keyed={1})
        assert recovery.refusals == ()
        store.settle(recovery.ends)
    with contextlib.closing(open_store(path, segments=SEGMENTS, options=ROOMY)) as store:
        assert store.settled.tolist() == recovery.ends.ids.tolist()


def test_a_loss_that_is_accepted_is_accepted_once_and_for_all(path: Path):
    manifest = newest(path, "MANIFEST-*")
    manifest.write_bytes(manifest.read_bytes()[:-100])
    lost(path)
    try:
        open_store(path, segments=SEGMENTS, options=replace(ROOMY, accepts_loss=True)).close()
    except CorruptData as error:
        assert "Missing WAL" in str(error), "after a clean stop RocksDB's own list of journals is torn as well"  # noqa: PT017
        return
    with contextlib.closing(open_store(path, segments=SEGMENTS, options=ROOMY)) as store:
        cut_faulty(store, keyed={1})
    with contextlib.closing(open_store(path, segments=SEGMENTS, options=ROOMY)) as store:
        assert recover(store, keyed={1}).refusals == ()
