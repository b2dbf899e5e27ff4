"""What the engine's memory is asked, and what of its answers is not believed."""

import resource
from pathlib import Path

from rocksdict import BlockBasedOptions, Cache, Options, Rdict

from eventlog.segment.rocks.reading import peek_values

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
    before = resident_bytes()
    for _ in range(LOOKS // 2):
        assert peek_values(family, [b"b"]) is None  # deleted
        assert peek_values(family, [b"c"]) is None  # never there
    assert resident_bytes() - before < LOOKS * 8  # 32 bytes each would leak if their values were asked for
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
