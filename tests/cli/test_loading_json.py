"""JSON lines as `load` reads them: kept byte for byte, or refused alone."""

import json
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.limits import JSON_DEPTH_MAX
from eventlog_cli.loading.formats import reader_of
from eventlog_cli.loading.rows import Shape
from tests.cli.loading import KEYED, WITH_OPERATION, Row, items, read, refused


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
def test_a_bad_line_is_refused_by_its_number_and_the_lines_around_it_are_not(line: bytes, why: str, shape: Shape) -> None:
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

    reader = reader_of(AnySource, Shape(key="k", value_bytes_max=1_000), format_name="jsonl", rows=10)  # type: ignore[arg-type]
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
