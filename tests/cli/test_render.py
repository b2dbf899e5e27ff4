"""Events as lines."""

import csv
import io
import json
from typing import Any

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.json_lines import JsonLines, readable
from eventlog.events import Change, Event, EventSource, Kind, encode_headers
from eventlog_cli.render import CSV_COLUMNS, renderer

JSON = EventSource(cache="c", cache_id=1, cluster="x", text_keys=True, json_values=True)
BYTES = EventSource(cache="c", cache_id=1, cluster="x", text_keys=False, json_values=False)
ID = ((1_795_168_800_123 - 1_577_836_800_000) << 22) + (5 << 10) + 1


def event(value: bytes = b'{"a":1}', *, source: EventSource = JSON, key: bytes = b"k", kind: Kind = Kind.MODIFIED, **more: Any) -> Event:
    return Event(id=ID, kind_number=kind, key_bytes=key, value_bytes=value, segment=17, offset=42, source=source, **more)


def one(found: Event) -> dict[str, Any]:
    line = JsonLines().lines([found])
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    parsed: dict[str, Any] = orjson.loads(line)
    return parsed


def test_an_event_has_the_fields_that_are_fixed_in_their_order() -> None:
    found = one(event(before_bytes=b'{"a":0}', header_bytes=encode_headers({"trace": b"t", "raw": b"\xff"})))
    assert list(found.items()) == [
        ("id", ID),
        ("id_str", str(ID)),
        ("time", "2026-11-20T10:00:00.123Z"),
        ("segment", 17),
        ("offset", 42),
        ("kind", "MODIFIED"),
        ("key", "k"),
        ("value", {"a": 1}),
        ("before", {"a": 0}),
        ("headers", {"trace": "t", "raw": {"base64": "/w=="}}),
    ]


def test_what_an_event_is_to_a_continuous_query_comes_last() -> None:
    assert list(one(event(change_number=Change.LEFT)).items())[-1] == ("change", "LEFT")


def test_a_continuous_query_has_a_column_of_changes_in_csv() -> None:
    found = renderer("csv", has_changes=True)([event(), event(change_number=Change.LEFT)])
    assert [row[9] for row in csv.reader(io.StringIO(found.decode()))] == ["change", "", "LEFT"]


def test_before_and_headers_are_left_out_where_there_are_none() -> None:
    assert list(one(event()))[-1] == "value"


@pytest.mark.parametrize("kind", [Kind.REMOVED, Kind.EXPIRED])
def test_a_removal_has_a_null_value_and_its_before_image(kind: Kind) -> None:
    found = one(event(b"", kind=kind, before_bytes=b'{"a":0}'))
    assert (found["value"], found["before"], found["kind"]) == (None, {"a": 0}, kind.name)


def test_json_values_keep_digits_that_parsing_would_round() -> None:
    assert b'"value":{"n":123456789012345678901234567890,"f":1.50}' in JsonLines().lines(
        [event(b'{"n":123456789012345678901234567890,"f":1.50}')]
    )


def test_a_json_value_with_newlines_stays_on_one_line() -> None:
    assert one(event(b'{\n  "a": "x\\ny"\n}'))["value"] == {"a": "x\ny"}


@pytest.mark.parametrize("value", [b"", b"{", b'{"a":1}}', b"[1,]", b"nul", b"[" * 5_000])
def test_a_value_that_is_no_json_appears_as_text(value: bytes) -> None:
    assert one(event(value))["value"] == value.decode()


def test_keys_and_values_that_are_not_utf8_appear_as_base64() -> None:
    found = one(event(b"\xff\x00", source=BYTES, key=b"\xfe"))
    assert (found["key"], found["value"]) == ({"base64": "/g=="}, {"base64": "/wA="})
    assert one(event(b'{"a":"\xff"}'))["value"] == {"base64": "eyJhIjoi/yJ9"}


def test_bytes_that_are_text_appear_as_text_even_if_they_look_like_json() -> None:
    assert one(event(b'{"a":1}', source=BYTES))["value"] == '{"a":1}'


@given(st.binary(max_size=40), st.binary(max_size=40), st.booleans())
def test_any_bytes_make_one_line_of_json(key: bytes, value: bytes, is_json: bool) -> None:
    line = JsonLines().lines([event(value, source=JSON if is_json else BYTES, key=key)])
    assert line.count(b"\n") == 1
    assert json.loads(line)["key"] == readable(key)  # which takes numbers of any size


def test_raw_is_the_value_and_a_newline() -> None:
    assert renderer("raw")([event(), event(b"", kind=Kind.REMOVED), event(b"\xff", source=BYTES)]) == b'{"a":1}\n\n\xff\n'


def test_csv_shows_text_without_quotes_and_removals_without_a_value() -> None:
    assert renderer("csv")([event(b' "x"')]).splitlines()[1].endswith(b",k,x,,")


def test_csv_tells_an_empty_text_from_nothing_and_has_before_and_headers() -> None:
    found = renderer("csv")([event(b'""', before_bytes=b'{"a":0}', header_bytes=encode_headers({"trace": b"t"}))]).decode()
    assert ',k,"",' in found
    assert next(csv.reader(found.splitlines()[1:]))[6:] == ["", '{"a":0}', '{"trace":"t"}']


def test_a_pattern_prints_what_it_names_and_nothing_else() -> None:
    found = event(b'{"a":1}', before_bytes=b"0", header_bytes=encode_headers({"h": b"x"}))
    assert renderer("json", pattern=r"%k\t%v|%b|%h|%s %o %e 100%%\n")([found, found]) == b'k\t{"a":1}|0|{"h":"x"}|17 42 MODIFIED 100%\n' * 2
    assert renderer("json", pattern="%i %t")([event()]) == f"{ID} 2026-11-20T10:00:00.123Z".encode()
    assert renderer("json", pattern="%k=%v;")([event(b"\xff", source=BYTES), event(b"", kind=Kind.REMOVED)]) == b"k=\xff;k=;"


def test_a_pattern_tells_how_many_bytes_follow_and_what_an_event_is_to_a_query() -> None:
    assert renderer("json", pattern=r"%K,%V:%k%v\x00")([event(b"\xff\n", source=BYTES, key=b"\xfe"), event(b"", kind=Kind.REMOVED)]) == (
        b"1,2:\xfe\xff\n\x001,-1:k\x00"
    )
    assert renderer("json", pattern="%c;")([event(change_number=Change.LEFT), event()]) == b"LEFT;;"


def test_json_stands_on_one_line_of_a_pattern_and_bytes_as_they_are() -> None:
    pretty = b'{\n  "a": 1\n}'
    assert renderer("json", pattern="%v %V %b")([event(pretty, before_bytes=pretty)]) == b'{   "a": 1 } 12 {   "a": 1 }'
    assert renderer("json", pattern="%v")([event(pretty, source=BYTES)]) == pretty


@pytest.mark.parametrize("pattern", [r"\x4", "%z", "%", "a\\", r"\q"])
def test_a_pattern_with_what_means_nothing_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="means nothing"):
        renderer("json", pattern=pattern)


def test_csv_names_its_columns_once_and_quotes_what_needs_it() -> None:
    render = renderer("csv")
    text = (render([event(b'{"a":"x,y"}')]) + render([event(b"", kind=Kind.REMOVED), event(b"a\nb", source=BYTES)])).decode()
    records = list(csv.reader(io.StringIO(text)))
    assert records == [
        list(CSV_COLUMNS),
        [str(ID), "2026-11-20T10:00:00.123Z", "17", "42", "MODIFIED", "k", '{"a":"x,y"}', "", ""],
        [str(ID), "2026-11-20T10:00:00.123Z", "17", "42", "REMOVED", "k", "", "", ""],
        [str(ID), "2026-11-20T10:00:00.123Z", "17", "42", "MODIFIED", "k", "a\nb", "", ""],
    ]


def test_an_event_that_may_have_been_told_before_says_so() -> None:
    again = msgspec.structs.replace(JSON, may_repeat=lambda found: found.offset == 42)
    assert list(one(event(source=again)).items())[-1] == ("maybe_repeated", True)
    assert "maybe_repeated" not in one(event())
