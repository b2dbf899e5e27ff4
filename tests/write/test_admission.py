"""Values of JSON caches: what a reader's decoder refuses is refused when it is written, and nothing else."""

import json

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_write, read_table
from eventlog.batch.check import BadBlocks
from eventlog.events import Kind
from eventlog.limits import JSON_DEPTH_MAX
from eventlog.state.caches import CacheRules
from eventlog.write.admission import admit
from eventlog.write.share import Submitted

RULES = {
    "cache_id": 1,
    "name": "c",
    "state": False,
    "before": False,
    "by_prefix": False,
    "may_expire": False,
    "segments": 1,
    "lifespan_ms": 0,
}
ODD = [
    b"", b"{", b'{"a":1', b"1 2", b"nul", b"NaN", b"Infinity", b'"\x01"', b"[1,]", b"01", b"-", b"'a'", b'"\\x"', b'"\\ud800"',
    b'"\xff"', b'{"\xc3\x28":1}', b"1e309", b"-1E+309", b"1e99999", b"[0.1e400]", b"1" + b"0" * 400 + b".5",
    b"\xef\xbb\xbf1",
]  # fmt: skip


def admitted(values, *, json_values=True, kinds=None):
    kinds = np.full(len(values), Kind.CREATED, np.uint8) if kinds is None else np.array(kinds, np.uint8)
    frame = build_write(Columns(kinds=kinds, keys=[b"k%d" % at for at in range(len(values))], values=values), segments=1)
    body = b"".join(frame.buffers)
    table, blocks = read_table(memoryview(body), len(frame.table))
    data = np.frombuffer(bytes(blocks) + bytes(-len(blocks) % 8), np.uint8)
    submitted = Submitted(
        data=data,
        segments=table.rows["segment"].astype(np.int64),
        lengths=table.rows["length"].astype(np.int64),
        counts=table.rows["count"].astype(np.int64),
        producers=np.zeros(len(table), np.uint64),
        sequences=np.zeros(len(table), np.int64),
    )
    return admit(submitted, rules=CacheRules(**RULES, json_values=json_values))


def is_readable(value):
    try:
        msgspec.json.decode(value)
    except (ValueError, RecursionError):
        return False
    return True


@pytest.mark.parametrize("value", ODD, ids=lambda value: repr(value[:12]))
def test_what_no_reader_can_decode_is_refused_alone_and_among_others(value):
    assert not is_readable(value)
    assert_refused(value)


def test_what_only_some_readers_can_decode_is_refused_alone_and_among_others():
    assert_refused(b"[" * 5_000 + b"]" * 5_000)


def assert_refused(value):
    good = [json.dumps({"n": number}).encode() for number in range(20)]
    for values in ([value], [*good, value, *good]):
        with pytest.raises(BadBlocks, match="not JSON"):
            admitted(values)
        admitted(values, json_values=False)


@given(st.lists(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
                             lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3), max_leaves=5),
                min_size=1, max_size=8))  # fmt: skip
def test_whatever_is_json_is_taken(items):
    values = [json.dumps(item, ensure_ascii=False).encode("utf-8", "surrogatepass") for item in items]
    if all(map(is_readable, values)):
        admitted(values)


@given(st.lists(st.binary(max_size=20) | st.from_regex(rb"-?[0-9]{1,3}(\.[0-9]{1,2})?([eE][+-]?[0-9]{1,4})?", fullmatch=True), min_size=1))
@example([b"1e30", b"9"])
@example([b"1E400"])
def test_values_are_taken_if_and_only_if_every_one_can_be_decoded(values):
    if all(map(is_readable, values)):
        admitted(values)
    else:
        with pytest.raises(BadBlocks, match="not JSON"):
            admitted(values)


def test_removals_have_no_value_to_be_checked():
    admitted([b"", b"1"], kinds=[Kind.REMOVED, Kind.CREATED])
    admitted([b""], kinds=[Kind.REMOVED])


@pytest.mark.parametrize(("opens", "closes"), [(b"[", b"]"), (b'{"a":', b"}"), (b'[{"\\"[[":', b"}]")])
def test_what_is_nested_deeper_than_every_reader_can_go_is_refused_however_it_comes(opens, closes):
    levels = JSON_DEPTH_MAX // (opens.count(b"{") + opens.startswith(b"["))
    deep, deeper = opens * levels + b"1" + closes * levels, opens * (levels + 1) + b"1" + closes * (levels + 1)
    wide = b"[" + b"[[]]," * JSON_DEPTH_MAX + b'"' + b"[{" * JSON_DEPTH_MAX + b'"]'
    for others in ([], [b"1"] * 20):
        admitted([deep, wide, *others])
        with pytest.raises(BadBlocks, match="nested deeper than 256 levels"):
            admitted([*others, deeper])
