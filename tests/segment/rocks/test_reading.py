"""What the engine's memory is asked, and what of its answers is not believed."""

import resource
from pathlib import Path

import pytest
from rocksdict import BlockBasedOptions, Cache, Options, Rdict

from eventlog.errors import ClientClosed, CorruptData
from eventlog.segment.rocks.reading import peek_values
from eventlog.segment.rocks.store import open_store

MIB = 1 << 20
LOOKS = 400_000


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def opened(path, *, cache_bytes=8 * MIB):
    options = Options(raw_mode=True)
    tables = BlockBasedOptions()
    tables.set_block_cache(Cache(cache_bytes))
    tables.set_cache_index_and_filter_blocks(True)
    options.set_block_based_table_factory(tables)
    return Rdict(str(path), options)


def test_looking_for_what_is_not_there_costs_no_memory(tmp_path):
    family = opened(tmp_path)
    family[b"a"] = b"1"
    family[b"b"] = b"2"
    del family[b"b"]
    for _ in range(1_000):
        assert peek_values(family, [b"b"]) is None
    grown = []
    for _ in range(3):  # what leaks grows each time, and an allocator once
        before = resident_bytes()
        for _ in range(LOOKS // 2):
            assert peek_values(family, [b"b"]) is None  # deleted
            assert peek_values(family, [b"c"]) is None  # never there
        grown.append(resident_bytes() - before)
    assert min(grown) < LOOKS * 8  # 32 bytes each would leak if their values were asked for
    family.close()


def test_what_the_engine_cannot_look_up_in_memory_is_not_taken_for_an_empty_value(tmp_path):
    family = opened(tmp_path, cache_bytes=64)  # too little for the index of a file
    keys = [b"key-%06d" % number for number in range(5_000)]
    for key in keys:
        family[key] = b"v" * 200
    family.flush()
    blind = [key for key in keys if family.key_may_exist(key, fetch=True) == (True, b"")]
    found = [peek_values(family, [key]) for key in keys]
    family.close()
    assert blind, "the engine says so here: else this test shows nothing"
    assert all(values in ([b"v" * 200], None) for values in found)


ALL = (b"", b"\xff" * 16)


def test_buffers_that_only_a_snapshot_keeps_are_counted_and_given_back(tmp_path):
    store = open_store(tmp_path, segments=4)
    store.apply([(b"%06d" % number, b"x" * 100) for number in range(5_000)])
    snapshot = store.snapshot()
    store.flush_state()
    assert store.pinned_bytes() > 400_000
    assert len(snapshot.read(*ALL, rows_max=10_000, bytes_max=1 << 30).keys) == 5_000
    snapshot.close()
    assert store.pinned_bytes() == 0
    store.close()


def test_a_snapshot_reaches_from_memory_over_files(tmp_path):
    store = open_store(tmp_path, segments=4)
    store.apply([(b"a", b"1"), (b"c", b"1")])
    store.flush_state()
    store.apply([(b"b", b"2")])
    snapshot = store.snapshot()
    store.apply([(b"a", None), (b"b", None), (b"c", None)])
    store.flush_state()
    store.apply([(b"a", b"9")])
    assert snapshot.read(*ALL, rows_max=9, bytes_max=99)[:3] == ([b"a", b"b", b"c"], [b"1", b"2", b"1"], True)
    store.close()
    with pytest.raises(ClientClosed):
        snapshot.read(*ALL, rows_max=9, bytes_max=99)
    open_store(tmp_path, segments=4).close()


def test_who_keeps_the_error_of_a_damaged_file_does_not_keep_the_directory(tmp_path):
    store = open_store(tmp_path, segments=4)
    store.apply([(b"%06d" % number, b"x" * 100) for number in range(5_000)])
    store.close()
    table = max((tmp_path / "store" / "db").glob("*.sst"), key=lambda file: file.stat().st_size)
    data = bytearray(table.read_bytes())
    data[1_000] ^= 1
    table.write_bytes(data)
    store = open_store(tmp_path, segments=4)
    with pytest.raises(CorruptData) as caught:
        store.snapshot().read(*ALL, rows_max=10_000, bytes_max=1 << 30)
    store.close()
    open_store(tmp_path, segments=4).close()
    assert caught.tb is not None
