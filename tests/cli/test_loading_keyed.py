"""Lines of key, separator and value."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.client.formats import CacheFormat
from eventlog.events import Event, EventSource, Kind
from eventlog.limits import KEY_BYTES_MAX
from eventlog_cli.loading import keyed
from eventlog_cli.loading.keyed import KeyedLines
from eventlog_cli.loading.rows import Batch
from eventlog_cli.render import renderer
from tests.cli.loading import Pieces, refused
from tests.client.test_formats import info

JSON = CacheFormat(info())
BYTES = CacheFormat(info(format="bytes", key_format="bytes"))
AVRO = CacheFormat(info(format="avro", schema='{"type": "record", "name": "r", "fields": [{"name": "n", "type": "long"}]}'))


def read(data: bytes, form: CacheFormat = JSON, *, separator: bytes = b":", piece: int = 1 << 20, **options: Any) -> list[Batch]:
    chosen = {"removal_words": frozenset(), "value_bytes_max": 100, "rows": 3} | options
    return list(KeyedLines(Pieces(data, piece), form, separator=separator, **chosen).batches())


def pairs(batches: list[Batch]) -> list[tuple[bytes, bytes | None]]:
    return [
        (key, None if is_removal else value)
        for batch in batches
        for key, value, is_removal in zip(batch.keys, batch.values, batch.removals or [False] * len(batch.keys), strict=True)
    ]


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_each_line_is_a_key_and_a_value_that_the_first_separator_divides(piece: int) -> None:
    batches = read(b'a:1\nb: {"x": "y:z"} \r\nc\xc3\xbc:null\n:"of no key"', piece=piece)
    assert pairs(batches) == [(b"a", b"1"), (b"b", b'{"x": "y:z"}'), (b"c\xc3\xbc", b"null"), (b"", b'"of no key"')]
    assert refused(batches) == []
    assert batches[-1].last_line == 4


def test_a_separator_may_have_several_bytes() -> None:
    assert pairs(read(b"a=>1\nb=>2\n", separator=b"=>")) == [(b"a", b"1"), (b"b", b"2")]


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
    batches = read(b"a:1\n\n" + line + b"\nc:4\n")
    [(number, found)] = refused(batches)
    assert (number, found.startswith(why)) == (3, True), found
    assert pairs(batches) == [(b"a", b"1"), (b"c", b"4")]


def test_what_stands_in_the_line_is_the_value_of_a_bytes_cache() -> None:
    assert pairs(read(b"a: x \n\xff:\xfe\r\nb:\n", BYTES)) == [(b"a", b" x "), (b"\xff", b"\xfe\r"), (b"b", b"")]


def test_json_becomes_avro_and_is_refused_where_the_schema_does_not_take_it() -> None:
    batches = read(b'a:{"n": 3}\nb:{"n": "3"}\n', AVRO)
    assert pairs(batches) == [(b"a", AVRO.value("a", {"n": 3}))]
    assert refused(batches) == [(2, "value.n is text, '3': the schema wants long")]


def test_a_line_with_a_word_for_it_removes_its_key() -> None:
    words = frozenset({b"", b"NULL"})
    assert pairs(read(b"a:1\na:\nb:NULL\nc:null\n", removal_words=words)) == [(b"a", b"1"), (b"a", None), (b"b", None), (b"c", b"null")]


def test_a_batch_ends_at_its_bytes_before_it_ends_at_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keyed, "BATCH_BYTES_TARGET", 8)
    assert [(len(batch.keys), batch.last_line) for batch in read(b"a:1\nb:2\nc:3\nd:4\n\r\r\r\r\r\r\r\r\r\n", rows=5)] == [(3, 3), (1, 5)]


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
    found = pairs(read(renderer("json", pattern=r"%k\t%v\n")(events), separator=b"\t", value_bytes_max=1 << 20))
    assert [(key, msgspec.json.decode(value or b"")) for key, value in found] == [
        (key, msgspec.json.decode(value)) for key, value in wanted
    ]
