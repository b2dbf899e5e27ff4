"""Lines as `load` reads them: JSON kept byte for byte, or refused alone; and key, separator and value."""

import json
import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.client.formats import CacheFormat
from eventlog.events import Event, EventSource, Kind
from eventlog.limits import JSON_DEPTH_MAX, KEY_BYTES_MAX
from eventlog_cli.loading.lines import KeyedLines
from eventlog_cli.loading.rows import RowBatch, RowShape
from eventlog_cli.loading.source import reader_of
from eventlog_cli.render import renderer
from tests.cli.loading import KEYED, WITH_OPERATION, Pieces, Row, items, read, refused
from tests.client.test_formats import info


def test_a_json_line_is_its_value_byte_for_byte() -> None:
    lines = [b'{"k": "a",  "n": 123456789012345678901234567890}', b'{"k":"b","n":1.50}']
    batches = read("jsonl", b"\n".join(lines), KEYED)
    assert [value for batch in batches for value in batch.values] == lines


def test_without_the_operations_field_the_other_fields_keep_their_bytes() -> None:
    data = b'{"k":"a","op":"A","n":123456789012345678901234567890,"f":1.50,"d":{"op":"D"}}\n{"op":"D","k":"a"}\n'
    [batch] = read("jsonl", data, WITH_OPERATION)
    assert batch.values == [b'{"k":"a","n":123456789012345678901234567890,"f":1.50,"d":{"op":"D"}}', b""]
    assert batch.removals == [False, True]


def test_an_operation_may_be_a_number_or_true() -> None:
    data = b'{"k":"a","op":0}\n{"k":"a","op":1}\n{"k":"a","op":true}\n{"k":"a","op":null}\n{"k":"a","op":[]}\n{"k":"a"}\n'
    batches = read("jsonl", data, WITH_OPERATION, rows=10)
    assert items(batches) == [(b"a", None), (b"a", {"k": "a"}), (b"a", {"k": "a"}), (b"a", {"k": "a"})]
    assert [line for line, _ in refused(batches)] == [5, 6]


BAD_LINES = [
    (b'{"k":"a"', "not JSON"),
    (b"[1,2]", "a list, not an object"),
    (b'"k"', "text, not an object"),
    (b"7", "a number, not an object"),
    (b"null", "null, not an object"),
    (b"{}", "is missing"),
    (b'{"k":null}', "null, not text"),
    (b'{"k":true}', "true or false, not text"),
    (b'{"k":1.5}', "a number, not text"),
    (b'{"k":{}}', "an object, not text"),
    (b'{"k":"\xff"}', "not JSON"),
    (b'{"k":"a"}{"k":"b"}', "not JSON"),
    (b"k,v", "not JSON"),
    (b'{"k":"a","op":"A","x":"\xff"}', "not JSON"),
    (b"\x00", "not JSON"),
    (b'{"k":"a","op":"A","x":1e999}', "not JSON"),
    (b'{"k":"a","op":"A","x":' + b"[" * JSON_DEPTH_MAX + b"]" * JSON_DEPTH_MAX + b"}", "nested deeper"),
]


@pytest.mark.parametrize(("line", "why"), BAD_LINES)
@pytest.mark.parametrize("shape", [KEYED, WITH_OPERATION])
def test_a_bad_line_is_refused_by_its_number_and_the_lines_around_it_are_not(line: bytes, why: str, shape: RowShape) -> None:
    good = b'{"k":"a","op":"A"}'
    batches = read("jsonl", b"\n".join([good, b"", line, good, b""]), shape, rows=2)
    assert len(items(batches)) == 2
    [(number, sentence)] = refused(batches)
    assert number == 3
    assert why in sentence


def test_whole_numbers_are_keys_and_blank_lines_and_carriage_returns_are_nothing() -> None:
    batches = read("jsonl", b'\xef\xbb\xbf{"k":7}\r\n\r\n  \n{"k":"x"}  \r\n', KEYED, rows=10)
    assert items(batches) == [(b"7", {"k": 7}), (b"x", {"k": "x"})]
    assert [value for batch in batches for value in batch.values] == [b'{"k":7}', b'{"k":"x"}']


@pytest.mark.parametrize("other", [b"", b'{"k":7}\n'])  # with it the lines are gone through one by one
def test_blanks_around_a_line_are_no_part_of_its_value(other: bytes) -> None:
    batches = read("jsonl", b'{"k":"a"}\r\n \t{"k":"b"} \r\n' + other, KEYED, rows=10)
    assert [value for batch in batches for value in batch.values][:2] == [b'{"k":"a"}', b'{"k":"b"}']


def test_the_rejection_says_how_many_rows_of_its_batch_stand_before_it() -> None:
    [batch] = read("jsonl", b'{"k":"a"}\n{"k":"b"}\nbad\n{"k":"c"}\n', KEYED, rows=10)
    assert batch.rejections[0].before == 2
    assert batch.before(batch.rejections[0]).keys == [b"a", b"b"]
    assert batch.before(batch.rejections[0]).last_line == 2


def test_a_line_without_end_is_refused_without_being_kept() -> None:
    class AnySource:
        stream = EndlessLine(40)

    reader = reader_of(AnySource, RowShape(key="k", value_bytes_max=1_000), format_name="jsonl", rows=10)  # type: ignore[arg-type]
    tracemalloc.start()
    found = list(reader.batches())
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
    assert items(found) == [(b"after", {"k": "after"})]
    [(number, why)] = refused(found)
    assert number == 1
    assert "more than" in why


class EndlessLine:
    """`megabytes` of one line, then a good one."""

    path = None

    def __init__(self, megabytes: int) -> None:
        self._left = megabytes

    def read(self, _size: int = -1, /) -> bytes:
        self._left -= 1
        return b"x" * (1 << 20) if self._left > 0 else b'\n{"k":"after"}\n' if self._left == 0 else b""


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**63), max_value=2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text().filter(lambda name: name not in ("k", "op")), json_values, max_size=4), max_size=8), st.data())
def test_any_objects_come_back_as_they_were(objects: list[Row], data: st.DataObject) -> None:
    rows = [row | {"k": f"key {number}", "op": data.draw(st.sampled_from(["A", "M", "D"]))} for number, row in enumerate(objects)]
    text = "".join(json.dumps(row, ensure_ascii=data.draw(st.booleans())) + "\n" for row in rows)
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        return
    batches = read("jsonl", encoded, WITH_OPERATION)
    if not refused(batches):
        kept = [
            (row["k"].encode(), None if row["op"] == "D" else {name: value for name, value in row.items() if name != "op"}) for row in rows
        ]
        assert items(batches) == kept


JSON = CacheFormat(info())
BYTES = CacheFormat(info(format="bytes", key_format="bytes"))
AVRO = CacheFormat(info(format="avro", schema='{"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}'))


def read_keyed(data: bytes, form: CacheFormat = JSON, *, separator: bytes = b":", piece: int = 1 << 20, **options: Any) -> list[RowBatch]:
    chosen = {"removal_words": frozenset(), "value_bytes_max": 100, "rows": 3} | options
    return list(KeyedLines(Pieces(data, piece), form, separator=separator, **chosen).batches())


def pairs(batches: list[RowBatch]) -> list[tuple[bytes, bytes | None]]:
    return [
        (key, None if is_removal else value)
        for batch in batches
        for key, value, is_removal in zip(batch.keys, batch.values, batch.removals or [False] * len(batch.keys), strict=True)
    ]


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_each_line_is_a_key_and_a_value_that_the_first_separator_divides(piece: int) -> None:
    batches = read_keyed(b'a:1\nb: {"x": "y:z"} \r\nc\xc3\xbc:null\n:"of no key"', piece=piece)
    assert pairs(batches) == [(b"a", b"1"), (b"b", b'{"x": "y:z"}'), (b"c\xc3\xbc", b"null"), (b"", b'"of no key"')]
    assert refused(batches) == []
    assert batches[-1].last_line == 4


def test_a_separator_may_have_several_bytes() -> None:
    assert pairs(read_keyed(b"a=>1\nb=>2\n", separator=b"=>")) == [(b"a", b"1"), (b"b", b"2")]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b"b 3", "the line has no ':', which stands between key and value"),
        (b"b:", "not JSON: Input data was truncated"),
        (b"b:x", "not JSON: JSON is malformed: invalid character (byte 0)"),
        (b"\xff:1", "the key holds bytes that are not UTF-8, and the cache's keys are text"),
        (b"k" * (KEY_BYTES_MAX + 1) + b":1", f"the key has {KEY_BYTES_MAX + 1} bytes, the limit is {KEY_BYTES_MAX}"),
        (b"b:" + b"1" * 101, "the value has 101 bytes, the limit is 100"),
        (b"b:" + b"1" * 9_000, f"the line has more than {KEY_BYTES_MAX + 101} bytes"),
    ],
)
def test_a_line_that_cannot_be_written_is_refused_alone_with_its_number(line: bytes, why: str) -> None:
    batches = read_keyed(b"a:1\n\n" + line + b"\nc:4\n")
    [(number, found)] = refused(batches)
    assert (number, found.startswith(why)) == (3, True), found
    assert pairs(batches) == [(b"a", b"1"), (b"c", b"4")]


def test_what_stands_in_the_line_is_the_value_of_a_bytes_cache() -> None:
    assert pairs(read_keyed(b"a: x \n\xff:\xfe\r\nb:\n", BYTES)) == [(b"a", b" x "), (b"\xff", b"\xfe\r"), (b"b", b"")]


def test_json_becomes_avro_and_is_refused_where_the_schema_does_not_take_it() -> None:
    batches = read_keyed(b'a:{"n": 3}\nb:{"n": "3"}\n', AVRO)
    assert pairs(batches) == [(b"a", AVRO.value("a", {"n": 3}))]
    assert refused(batches) == [(2, "value.n is text, '3': the schema wants long")]


def test_a_line_with_a_word_for_it_removes_its_key() -> None:
    words = frozenset({b"", b"NULL"})
    assert pairs(read_keyed(b"a:1\na:\nb:NULL\nc:null\n", removal_words=words)) == [
        (b"a", b"1"),
        (b"a", None),
        (b"b", None),
        (b"c", b"null"),
    ]


def test_a_batch_ends_at_its_bytes_before_it_ends_at_its_rows() -> None:
    batches = read_keyed(b"a:1\nb:2\nc:3\nd:4\n\r\r\r\r\r\r\r\r\r\n", rows=5, batch_bytes=8)
    assert [(len(batch.keys), batch.last_line) for batch in batches] == [(3, 3), (1, 5)]


@given(
    st.lists(
        st.tuples(st.text().filter(lambda key: not set(key) & set("\t\n")), st.dictionaries(st.text(), st.integers(-9, 9) | st.text()))
    )
)
def test_what_a_pattern_prints_is_read_again(given_: list[tuple[str, dict[str, Any]]]) -> None:
    source = EventSource(cache="c", cache_id=1, cluster="x", text_keys=True, json_values=True)
    wanted = [(key.encode(), json.dumps(value, indent=1).encode()) for key, value in given_]
    events = [
        Event(id=1, kind_number=Kind.CREATED, key_bytes=key, value_bytes=value, segment=0, offset=0, source=source) for key, value in wanted
    ]
    found = pairs(read_keyed(renderer("json", pattern=r"%k\t%v\n")(events), separator=b"\t", value_bytes_max=1 << 20))
    assert [(key, msgspec.json.decode(value or b"")) for key, value in found] == [
        (key, msgspec.json.decode(value)) for key, value in wanted
    ]
