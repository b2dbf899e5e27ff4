import contextlib
import os
import re
import subprocess
import threading
import time

import pytest

from eventlog.errors import CorruptData, DirectoryInUse, Overloaded, WrongCluster
from eventlog.segment import keys
from eventlog.segment.port import StoreOptions
from eventlog.segment.rocks.opening import lost_options, newest_options, open_files_max, with_hidden_options
from eventlog.segment.rocks.store import open_store
from eventlog.testing.store_contract import ALL, SEGMENTS, ends_at, log_pairs
from tests.process.store_child import SMALL
from tests.process.stores import ROOT, command


@contextlib.contextmanager
def opened(path, options=None):
    with contextlib.closing(open_store(path, segments=SEGMENTS, options=options)) as store:
        yield store


def test_a_second_process_is_refused_in_words(tmp_path):
    with subprocess.Popen(command("write", tmp_path / "d"), cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        with pytest.raises(DirectoryInUse, match="used by another node process"):
            open_store(tmp_path / "d", segments=8)
        child.kill()


def test_a_killed_process_leaves_no_lock(tmp_path):
    with subprocess.Popen(command("write", tmp_path / "d"), cwd=ROOT, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        child.stdout.readline()
        child.kill()
    open_store(tmp_path / "d", segments=8).close()


def test_a_store_that_failed_to_open_leaves_no_lock(tmp_path):
    with opened(tmp_path):
        pass
    with pytest.raises(WrongCluster):
        open_store(tmp_path, segments=2 * SEGMENTS)
    with opened(tmp_path):
        pass


def test_a_read_that_failed_leaves_no_lock_though_its_error_is_kept(tmp_path):
    with opened(tmp_path) as store:
        store.append(log_pairs(100, size=1_000), [])
    table = max((tmp_path / "store" / "db").glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(table.read_bytes())
    data[20_000] ^= 1
    table.write_bytes(data)
    with opened(tmp_path) as store, pytest.raises(CorruptData) as caught:
        store.read_log(*ALL, bytes_max=1 << 30)
    table.write_bytes(bytes(data[:20_000]) + bytes([data[20_000] ^ 1]) + bytes(data[20_001:]))
    with opened(tmp_path) as store:
        assert store.read_log(*ALL, bytes_max=1 << 30) == log_pairs(100, size=1_000)
    assert table.name in str(caught.value)


def test_a_directory_may_be_moved(tmp_path):
    with opened(tmp_path / "a") as store:
        store.append(log_pairs(3), [])
    (tmp_path / "a").rename(tmp_path / "b")
    with opened(tmp_path / "b") as store:
        store.append(log_pairs(4)[3:], [])
        assert store.read_log(*ALL, bytes_max=1 << 30) == log_pairs(4)
    assert not (tmp_path / "a").exists()


def test_a_relative_path_and_odd_names_are_fine(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with opened("some where/ö ü") as store:
        store.append(log_pairs(1), [])
    with opened(tmp_path / "some where" / "ö ü") as store:
        assert store.last_log(*ALL) == log_pairs(1)[0]


def test_a_folder_that_cannot_be_written_is_an_os_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        open_store(tmp_path / "file", segments=SEGMENTS)


def test_an_interrupted_creation_is_begun_anew(tmp_path):
    (tmp_path / "store.creating" / "db").mkdir(parents=True)
    (tmp_path / "store.creating" / "db" / "CURRENT").write_text("half")
    with opened(tmp_path) as store:
        assert store.read_log(*ALL, bytes_max=1) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock", "store"]


def test_options_without_setter_survive_every_open(tmp_path):
    for _ in range(3):
        with opened(tmp_path):
            text = newest_options(tmp_path / "store" / "db").read_text()
        assert lost_options(text) == []
        assert text.count("SstPartitionerFixedPrefixFactory") == 1
        assert text.count("track_and_verify_wals_in_manifest=true") == 1
    bare = text.replace("{id=SstPartitionerFixedPrefixFactory;length=2;}", "nullptr").replace(
        "wals_in_manifest=true", "wals_in_manifest=false"
    )
    assert len(lost_options(bare)) == 2
    assert with_hidden_options(bare) == text


@pytest.mark.parametrize(
    "line",
    [
        "paranoid_checks=true",  # a damaged file ends the opening, and writing
        "verify_sst_unique_id_in_manifest=true",  # a table in another's place
        "skip_checking_sst_file_sizes_on_db_open=false",  # a table that lost its end
        "force_consistency_checks=true",  # tables that overlap
        "flush_verify_memtable_count=true",  # a table with fewer rows than were flushed ...
        "compaction_verify_record_count=true",  # ... or merged
        "fail_if_options_file_error=true",
        "wal_recovery_mode=kTolerateCorruptedTailRecords",
        "recycle_log_file_num=0",  # else `records.py` would refuse what is sound
    ],
)
def test_what_rocksdb_checks_by_itself_is_on_whatever_its_defaults_become(tmp_path, line):
    with opened(tmp_path):
        text = newest_options(tmp_path / "store" / "db").read_text()
    set_to = set(re.findall(rf"^  ({line.partition('=')[0]}=.*)$", text, re.MULTILINE))
    assert set_to == {line}


def test_open_files_leave_room_for_connections():
    assert open_files_max(1_024) == 512
    assert open_files_max(20_000) == 10_000
    assert open_files_max(1_048_576) == 16_384
    assert open_files_max(-1) == 16_384
    assert open_files_max(100) == 256


def test_every_segment_has_files_of_its_own_and_dropping_one_gives_its_space_back(tmp_path):
    with opened(tmp_path, SMALL_ANY) as store:
        for round_ in range(4):
            for segment in range(SEGMENTS):
                pairs = [(keys.log_key(segment, 1, round_ * 100 + id_), os.urandom(1_000)) for id_ in range(100)]
                store.append(pairs, [])
        store.sync(ends_at(400))
        store.compact([(b"\0\0", b"\xff")])
        before = store.figures()["table_bytes"][0]
        assert before > SEGMENTS * 300_000
        store.trim([keys.segment_range(segment) for segment in range(SEGMENTS - 1)], [])
        store.compact([keys.segment_range(segment) for segment in range(SEGMENTS - 1)])
        assert store.figures()["table_bytes"][0] < before // (SEGMENTS // 2)
        assert len(store.read_log(*ALL, bytes_max=1 << 30)) == 400


def test_a_stalled_engine_is_waited_for_and_then_refused(tmp_path):
    with opened(tmp_path, StoreOptions(stall_ms_max=50)) as store:
        family = store._database.log
        store.append(log_pairs(1), [])
        family.set_options({"level0_slowdown_writes_trigger": "1", "level0_stop_writes_trigger": "1"})
        family.flush(wait=True)
        with pytest.raises(Overloaded) as caught:
            store.append(log_pairs(2)[1:], [])
        assert caught.value.outcome == "none"
        assert store.read_log(*ALL, bytes_max=1 << 30) == log_pairs(1)


def test_a_write_that_met_a_stall_is_written_once_when_it_ends(tmp_path):
    with opened(tmp_path) as store:
        family = store._database.log
        store.append(log_pairs(1), [])
        family.set_options({"level0_slowdown_writes_trigger": "1", "level0_stop_writes_trigger": "1"})
        family.flush(wait=True)
        writer = threading.Thread(target=lambda: store.append(log_pairs(2)[1:], []))
        writer.start()
        assert store.read_log(*ALL, bytes_max=1 << 30) == log_pairs(1)
        assert writer.is_alive(), "it waits"
        family.set_options({"level0_slowdown_writes_trigger": "1000", "level0_stop_writes_trigger": "2000"})
        writer.join(timeout=60)
        assert store.read_log(*ALL, bytes_max=1 << 30) == log_pairs(2)


def test_syncing_lets_other_threads_run(tmp_path):
    """The GIL is free in `sync`: a counting thread goes on meanwhile."""
    with opened(tmp_path) as store:
        counted, done = [0], threading.Event()

        def count():
            while not done.is_set():
                counted[0] += 1
                time.sleep(0)

        counter = threading.Thread(target=count)
        counter.start()
        for id_ in range(1, 51):
            store.append(log_pairs(id_, size=400)[-1:], [])
            store.sync(ends_at(id_))
        done.set()
        counter.join()
        assert counted[0] > 50


SMALL_ANY = StoreOptions(
    log_buffer_bytes=SMALL.log_buffer_bytes,
    state_buffer_bytes=SMALL.state_buffer_bytes,
    buffers_bytes_max=SMALL.buffers_bytes_max,
    journal_bytes_max=1 << 20,
    cache_bytes=SMALL.cache_bytes,
)
