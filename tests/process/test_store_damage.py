"""Files of a stopped or killed store are edited: what is damaged is named, never served, never taken for empty.

`verdict` is the whole road of a start: open, recover, read everything. What may come out is the undamaged whole, or a typed error.
"""

import contextlib
import json
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from eventlog.errors import CorruptData, EventLogError, LostDisk, UnsupportedFormat, WrongCluster
from eventlog.segment.directory import Directory, decode_label
from eventlog.segment.port import Identity, StoreOptions
from eventlog.segment.recovery import recover
from eventlog.segment.rocks.ends import slot_bytes
from eventlog.segment.rocks.opening import HEAD
from eventlog.segment.rocks.store import open_store
from tests.process.store_child import SEGMENTS, SMALL, expected, groups_upto, last_acknowledged, read_all
from tests.process.stores import run_story

GROUPS = 120
WHOLE = "whole"
IRRELEVANT = ("LOG", "LOCK", "IDENTITY")  # RocksDB's diary, its lock, and an identity that nothing asks for


@dataclass(frozen=True)
class Original:
    """A directory to make copies of, and the last id acknowledged in it."""

    path: Path
    acknowledged: int

    def copy(self, to: Path) -> Path:
        return Path(shutil.copytree(self.path, to / "store-copy"))


@pytest.fixture(scope="module")
def memory_folder():
    """A folder in memory where there is one: some hundred stores are opened here, and none needs to outlive a power cut."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None) as folder:
        yield Path(folder)


@pytest.fixture
def tmp_path(memory_folder):
    with tempfile.TemporaryDirectory(dir=memory_folder) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def originals(memory_folder):
    made = {}
    for story in ("stop", "kill", "young", "rolled"):
        path = memory_folder / story
        made[story] = Original(path, last_acknowledged(run_story(story, path, str(GROUPS))))
        assert groups_upto(made[story].acknowledged) == GROUPS
    return made


@pytest.fixture(params=["stop", "kill", "rolled"])
def original(request, originals):
    return originals[request.param]


def verdict(path: Path, original: Original, *, options: StoreOptions = SMALL) -> EventLogError | str:
    """Return what a start makes of a directory: the refusal, or WHOLE. Anything else than the whole log is a failed test."""
    try:
        with contextlib.closing(open_store(path, segments=SEGMENTS, options=options)) as store:
            refusals = recover(store, keyed={1}).refusals
            if refusals:
                return refusals[0]
            found = read_all(store)
            store.read_state(b"", b"\xff" * 16, limit=1 << 30)
            store.read_meta(b"", b"\xff" * 16)
    except EventLogError as error:
        return error
    assert found == expected(groups_upto(original.acknowledged)), "lost or changed data was served"
    return WHOLE


def flip(file: Path, where: float) -> None:
    data = bytearray(file.read_bytes())
    data[int((len(data) - 1) * where)] ^= 0x10
    file.write_bytes(data)


def cut(file: Path, where: float) -> None:
    file.write_bytes(file.read_bytes()[: int(file.stat().st_size * where)])


def newest(path: Path, pattern: str) -> Path:
    return max((path / "store" / "db").glob(pattern))


def largest(path: Path, pattern: str) -> Path:
    return max((path / "store" / "db").glob(pattern), key=lambda file: file.stat().st_size)


def test_an_undamaged_copy_is_whole(original, tmp_path):
    assert verdict(original.copy(tmp_path), original) == WHOLE


@pytest.mark.parametrize("where", [0.0, 0.3, 0.9])
def test_a_flipped_bit_in_any_file_is_refused_or_harmless(original, tmp_path, where):
    names = sorted(file.name for file in (original.path / "store" / "db").iterdir() if file.stat().st_size)
    relevant = [name for name in names if not name.startswith(IRRELEVANT)]
    tables = [name for name in relevant if name.endswith(".sst")]
    for name in [name for name in relevant if name not in tables[4:]]:
        path = original.copy(tmp_path)
        flip(path / "store" / "db" / name, where)
        found = verdict(path, original)
        assert found == WHOLE or isinstance(found, CorruptData | LostDisk), (name, found)
        shutil.rmtree(path)


@pytest.mark.parametrize("where", [0.0, 0.5])
def test_a_shortened_file_is_refused_or_harmless(original, tmp_path, where):
    names = sorted(file.name for file in (original.path / "store" / "db").iterdir() if file.stat().st_size)
    relevant = [name for name in names if not name.startswith(IRRELEVANT)]
    tables = [name for name in relevant if name.endswith(".sst")]
    for name in [name for name in relevant if name not in tables[4:]]:
        path = original.copy(tmp_path)
        cut(path / "store" / "db" / name, where)
        found = verdict(path, original)
        assert found == WHOLE or isinstance(found, CorruptData | LostDisk), (name, found)
        shutil.rmtree(path)


def test_a_removed_file_is_refused_or_harmless(original, tmp_path):
    for file in sorted((original.path / "store" / "db").iterdir()):
        path = original.copy(tmp_path)
        (path / "store" / "db" / file.name).unlink()
        found = verdict(path, original)
        assert found == WHOLE or isinstance(found, CorruptData | LostDisk), (file.name, found)
        shutil.rmtree(path)


# ---------------------------------------------------------------- each kind by name


def test_a_flipped_manifest_is_named(original, tmp_path):
    path = original.copy(tmp_path)
    flip(newest(path, "MANIFEST-*"), 0.01)
    found = verdict(path, original)
    assert isinstance(found, CorruptData)
    assert "MANIFEST" in str(found)


def test_a_removed_current_is_not_an_empty_database(original, tmp_path):
    path = original.copy(tmp_path)
    (path / "store" / "db" / "CURRENT").unlink()
    found = verdict(path, original)
    assert isinstance(found, CorruptData)
    assert "CURRENT" in str(found)


def test_a_flipped_bit_amid_the_journal_is_refused(originals, tmp_path):
    path = originals["young"].copy(tmp_path)
    flip(largest(path, "*.log"), 0.5)
    found = verdict(path, originals["young"])
    assert isinstance(found, CorruptData)
    assert "checksum" in str(found)


@pytest.mark.parametrize("pattern", ["*.log", "MANIFEST-*"])
def test_a_flipped_bit_in_the_kind_of_a_record_is_named_before_it_is_read_for_ever(originals, tmp_path, pattern):
    """One bit makes a record one of a file that is used again, whose end RocksDB then looks for without coming any further."""
    path = originals["young"].copy(tmp_path)
    (path / "store" / "settled").unlink(missing_ok=True)  # which knows the MANIFEST, but not the last of it
    file = largest(path, pattern)
    data = bytearray(file.read_bytes())
    second = HEAD.size + HEAD.unpack_from(data)[1]
    data[second + HEAD.size - 1] ^= 4
    file.write_bytes(data)
    found = verdict(path, originals["young"])
    assert isinstance(found, CorruptData)
    assert f"{file.name}: the record at byte {second} " in str(found)


def test_a_journal_that_lost_its_end_is_a_lost_disk_naming_segment_and_ids(originals, tmp_path):
    """RocksDB takes it for a torn tail; the log ends beside it know better."""
    path = originals["young"].copy(tmp_path)
    cut(largest(path, "*.log"), 0.5)
    found = verdict(path, originals["young"])
    assert isinstance(found, LostDisk)
    assert "segment 0" in str(found)
    assert "it had reached id" in str(found)


def test_the_only_journal_gone_is_not_an_empty_store(originals, tmp_path):
    path = originals["young"].copy(tmp_path)
    largest(path, "*.log").unlink()
    assert isinstance(verdict(path, originals["young"]), LostDisk)


@pytest.mark.parametrize("missing", [1, 7, 500, 4_000])
def test_a_torn_tail_of_the_journal_is_accepted(tmp_path, missing):
    """The last group was never synced: it may be there in part, and then counts for nothing."""
    torn = Original(tmp_path / "torn", last_acknowledged(run_story("torn", tmp_path / "torn", "20")))
    journal = largest(torn.path, "*.log")
    journal.write_bytes(journal.read_bytes()[:-missing])
    assert verdict(torn.path, torn) == WHOLE


def test_an_older_journal_gone_or_cut_is_named(originals, tmp_path):
    """Without RocksDB's own list of journals both pass for nothing: the newest journal alone reaches the log ends."""
    older, _ = sorted(file.name for file in (originals["rolled"].path / "store" / "db").glob("*.log"))
    path = originals["rolled"].copy(tmp_path)
    (path / "store" / "db" / older).unlink()
    assert "Missing WAL" in str(verdict(path, originals["rolled"]))
    shutil.rmtree(path)
    path = originals["rolled"].copy(tmp_path)
    cut(path / "store" / "db" / older, 0.5)
    assert "Size mismatch: WAL" in str(verdict(path, originals["rolled"]))


def test_a_flipped_bit_in_a_table_is_found_when_it_is_read(originals, tmp_path):
    path = originals["stop"].copy(tmp_path)
    table = largest(path, "*.sst")
    flip(table, 0.5)
    found = verdict(path, originals["stop"])
    assert isinstance(found, CorruptData)
    assert table.name in str(found)


def test_a_removed_table_is_named(originals, tmp_path):
    path = originals["stop"].copy(tmp_path)
    table = largest(path, "*.sst")
    table.unlink()
    found = verdict(path, originals["stop"])
    assert isinstance(found, CorruptData)
    assert table.name in str(found)


def test_damaged_options_are_named(original, tmp_path):
    path = original.copy(tmp_path)
    options = newest(path, "OPTIONS-*")
    options.write_text(options.read_text().replace("[DBOptions]", "[DBOption]"))
    found = verdict(path, original)
    assert isinstance(found, CorruptData)
    assert options.name in str(found)


def test_options_without_the_partitioner_are_named(original, tmp_path):
    path = original.copy(tmp_path)
    for options in (path / "store" / "db").glob("OPTIONS-*"):
        text = options.read_text()
        options.write_text(text.replace("{id=SstPartitionerFixedPrefixFactory;length=2;}", "nullptr"))
    found = verdict(path, original)
    assert isinstance(found, CorruptData)
    assert "partitioner of log" in str(found)


def test_lost_settings_of_rocksdict_are_named(original, tmp_path):
    """Without them every key would be read in another encoding."""
    path = original.copy(tmp_path)
    (path / "store" / "db" / "rocksdict-config.json").write_text(json.dumps({"raw_mode": False, "prefix_extractors": {}}))
    assert "rocksdict-config.json" in str(verdict(path, original))


# ---------------------------------------------------------------- what stands beside the database


def test_one_damaged_slot_of_the_log_ends_is_harmless(original, tmp_path):
    for slot in range(2):
        path = original.copy(tmp_path)
        data = bytearray((path / "store" / "ends").read_bytes())
        data[slot * slot_bytes(SEGMENTS) + 50] ^= 1
        (path / "store" / "ends").write_bytes(data)
        assert verdict(path, original) == WHOLE
        shutil.rmtree(path)


def test_both_slots_damaged_is_a_lost_disk(original, tmp_path):
    path = original.copy(tmp_path)
    data = bytearray((path / "store" / "ends").read_bytes())
    data[50] ^= 1
    data[slot_bytes(SEGMENTS) + 50] ^= 1
    (path / "store" / "ends").write_bytes(data)
    assert isinstance(verdict(path, original), LostDisk)


def test_missing_log_ends_are_a_lost_disk(original, tmp_path):
    path = original.copy(tmp_path)
    (path / "store" / "ends").unlink()
    assert isinstance(verdict(path, original), LostDisk)


def test_a_flipped_bit_in_the_identity_is_named(original, tmp_path):
    path = original.copy(tmp_path)
    flip(path / "store" / "identity", 0.4)
    found = verdict(path, original)
    assert isinstance(found, CorruptData)
    assert "identity" in str(found)


def test_a_missing_identity_is_not_a_new_directory(original, tmp_path):
    path = original.copy(tmp_path)
    (path / "store" / "identity").unlink()
    found = verdict(path, original)
    assert isinstance(found, CorruptData)
    assert "identity" in str(found)
    assert (path / "store" / "db").exists()


def test_a_newer_format_is_named_as_such(original, tmp_path):
    path = original.copy(tmp_path)
    file = path / "store" / "identity"
    label = decode_label(file.read_bytes(), where="x")
    file.write_bytes(label.encode(form=2))
    assert isinstance(verdict(path, original), UnsupportedFormat)


# ---------------------------------------------------------------- swapped for another


def test_the_database_swapped_for_an_older_copy_is_a_lost_disk(originals, tmp_path):
    young = originals["young"]
    path = young.copy(tmp_path)
    older = tmp_path / "older"
    shutil.copytree(path / "store" / "db", older)
    store = open_store(path, segments=SEGMENTS, options=SMALL)
    ends = store.ends
    store.close()
    journal = max(older.glob("*.log"), key=lambda file: file.stat().st_size)
    cut(journal, 0.7)
    shutil.rmtree(path / "store" / "db")
    older.rename(path / "store" / "db")
    found = verdict(path, young)
    assert isinstance(found, LostDisk)
    assert str(ends.ids[0]) in str(found)


def test_the_database_of_another_directory_is_refused(originals, tmp_path):
    path = originals["kill"].copy(tmp_path)
    shutil.rmtree(path / "store" / "db")
    shutil.copytree(originals["young"].path / "store" / "db", path / "store" / "db")
    found = verdict(path, originals["kill"])
    assert isinstance(found, WrongCluster)


def test_the_log_ends_of_another_directory_are_refused(originals, tmp_path):
    path = originals["kill"].copy(tmp_path)
    shutil.copy(originals["young"].path / "store" / "ends", path / "store" / "ends")
    found = verdict(path, originals["kill"])
    assert isinstance(found, LostDisk)
    assert "another data directory" in str(found)


def test_a_fresh_database_in_place_of_the_old_is_refused(originals, tmp_path):
    path = originals["kill"].copy(tmp_path)
    other = Directory(tmp_path / "fresh")
    open_store(other.path, segments=SEGMENTS, options=SMALL).close()
    shutil.rmtree(path / "store" / "db")
    shutil.copytree(other.database, path / "store" / "db")
    assert isinstance(verdict(path, originals["kill"]), WrongCluster)


def test_the_directory_of_another_node_is_refused(original, tmp_path):
    path = original.copy(tmp_path)
    for identity in (Identity(cluster="c", node=2, incarnation="i"), Identity(cluster="d", node=1, incarnation="i")):
        found = verdict(path, original, options=StoreOptions(identity=identity))
        assert isinstance(found, WrongCluster)
        assert str(path) in str(found)
    assert verdict(path, original) == WHOLE


def test_a_whole_directory_swapped_for_an_older_copy_is_found_by_what_was_acknowledged(originals, tmp_path):
    older = originals["stop"].copy(tmp_path)
    store = open_store(older, segments=SEGMENTS, options=SMALL)
    assert recover(store, keyed={1}, acknowledged=originals["stop"].acknowledged).refusals == ()
    found = recover(store, keyed={1}, acknowledged=originals["stop"].acknowledged + (1 << 10)).refusals
    store.close()
    assert [type(refusal) for refusal in found] == [LostDisk]
