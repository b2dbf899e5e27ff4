"""Keys and values on their way in."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.client.formats import LIFESPAN_MS_MAX, REMOVE, CacheFormat, checked_json, headers_bytes, lifespan
from eventlog.client.values import CacheInfo
from eventlog.errors import BadValue, EventLogError, InvalidArgument, TooLarge
from eventlog.events import decode_headers
from eventlog.limits import HEADERS_BYTES_MAX, JSON_DEPTH_MAX, KEY_BYTES_MAX


def info(**options: Any) -> CacheInfo:
    given = {
        "name": "c",
        "id": 1,
        "format": "json",
        "key_format": "utf8",
        "events": True,
        "state": True,
        "before": True,
        "retain_time_ms": None,
        "retain_bytes": None,
        "retain_events": None,
        "lifespan_ms": None,
        "route_by_prefix": False,
        "from_id": 0,
    }
    return CacheInfo(**{**given, **options})


JSON, BYTES = CacheFormat(info()), CacheFormat(info(format="bytes", key_format="bytes"))

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 63), (1 << 63) - 1) | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
)


@given(json_values)
def test_json_comes_back_as_it_went_in(value: Any) -> None:
    stored = JSON.value("k", value)
    assert JSON.read_value(stored) == value
    assert JSON.values(["k"], [value]) == [stored]


@given(st.lists(st.text(max_size=20)))
def test_text_keys_come_back_as_they_went_in(keys: list[str]) -> None:
    stored = JSON.keys(keys)
    assert [JSON.read_key(key) for key in stored] == keys
    assert stored == [JSON.key(key) for key in keys]


@pytest.mark.parametrize("data", [b'"\xff"', b'{"a": "\xc3"}', b"1e400", b"[-1e400]", b'"\\ud800"', b"NaN", b"\xef\xbb\xbf1"])
def test_ready_json_that_no_reader_could_read_is_refused(data: bytes) -> None:
    with pytest.raises(BadValue, match="not JSON"):
        JSON.value("k", msgspec.Raw(data))
    with pytest.raises(BadValue, match="not JSON"):
        checked_json(b"k", data)


def test_ready_json_goes_in_unchanged_and_other_bytes_do_not() -> None:
    assert JSON.value("k", msgspec.Raw(b'{ "a":1 }')) == b'{ "a":1 }'
    assert JSON.values(["a", "b"], [1, msgspec.Raw(b" 2")]) == [b"1", b" 2"]
    for value in (b"1", bytearray(b"1"), memoryview(b"1"), msgspec.Raw(b"{"), msgspec.Raw(b"1 2"), msgspec.Raw(b"")):
        with pytest.raises(BadValue, match="JSON"):
            JSON.value("k", value)
        with pytest.raises(BadValue):
            JSON.values(["k"], [value])


def circle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


@pytest.mark.parametrize("value", [object(), {"a": object()}, "\ud800", {(1,): 2}, circle(), REMOVE, [REMOVE]])
def test_what_json_cannot_hold_is_refused_with_its_key(value: Any) -> None:
    for attempt in (lambda: JSON.value("the key", value), lambda: JSON.values(["ok", "the key"], [1, value])):
        with pytest.raises(BadValue) as caught:
            attempt()
        assert caught.value.key == "the key"


def test_what_is_nested_deeper_than_a_node_takes_is_refused_with_its_key() -> None:
    deep, deeper = (b"[" * depth + b"]" * depth for depth in (JSON_DEPTH_MAX, JSON_DEPTH_MAX + 1))
    value, ready = msgspec.json.decode(deeper), msgspec.Raw(deeper)
    for attempt in (
        lambda: JSON.value("the key", value),
        lambda: JSON.value("the key", ready),
        lambda: JSON.values(["ok", "the key"], [1, value]),
        lambda: JSON.values(["ok", "the key"], [1, ready]),
        lambda: checked_json(b"the key", deeper),
    ):
        with pytest.raises(BadValue, match="nested deeper than 256 levels") as caught:
            attempt()
        assert caught.value.key == "the key"
    flat = {"text": "[" * 1_000, "list": [[]] * 1_000}
    assert JSON.values(["k", "l"], [msgspec.json.decode(deep), flat]) == [deep, msgspec.json.encode(flat)]


@pytest.mark.parametrize("lifespan_ms", [0, -1, 1.5, LIFESPAN_MS_MAX + 1, "5"])
def test_a_lifespan_out_of_bounds_is_refused_with_both_of_them(lifespan_ms: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"whole milliseconds from 1 to {LIFESPAN_MS_MAX}"):
        lifespan(lifespan_ms)


def test_bytes_go_in_as_they_are_and_nothing_else_does() -> None:
    values = [b"a", bytearray(b"b"), memoryview(b"c")]
    assert BYTES.values([b"k"] * 3, values) == [b"a", b"b", b"c"]
    assert BYTES.values([b"k"], [b"a"]) == [b"a"]
    assert BYTES.read_value(b"a") == b"a"
    for value in ("text", 1, None, REMOVE):
        with pytest.raises(BadValue, match="bytes"):
            BYTES.value(b"k", value)
        with pytest.raises(BadValue):
            BYTES.values([b"k"], [value])


@pytest.mark.parametrize(("form", "key"), [(JSON, b"k"), (JSON, 1), (JSON, None), (JSON, "\ud800"), (BYTES, "k"), (BYTES, 1)])
def test_keys_of_the_wrong_kind_are_refused(form: CacheFormat, key: Any) -> None:
    with pytest.raises(InvalidArgument, match="key"):
        form.key(key)
    with pytest.raises(InvalidArgument):
        form.keys([key])


@pytest.mark.parametrize("keys", ["abc", b"abc", bytearray(b"abc")])
def test_one_key_is_not_taken_for_many(keys: Any) -> None:
    for form in (JSON, BYTES):
        with pytest.raises(InvalidArgument, match="where many keys are wanted"):
            form.keys(keys)


def test_keys_of_all_kinds_of_bytes_are_stored_as_bytes() -> None:
    for keys in ([b"a", b"b"], [bytearray(b"a"), b"b"], (b"a", memoryview(b"b")), iter([b"a", b"b"])):
        stored = BYTES.keys(keys)  # type: ignore[arg-type]
        assert stored == [b"a", b"b"]
        assert set(map(type, stored)) == {bytes}


def test_keys_are_measured_in_bytes() -> None:
    assert len(JSON.key("\u00e4" * (KEY_BYTES_MAX // 2))) == KEY_BYTES_MAX
    for attempt in (
        lambda: JSON.key("\u00e4" * (KEY_BYTES_MAX // 2) + "x"),
        lambda: JSON.keys(["a", "x" * (KEY_BYTES_MAX + 1)]),
        lambda: BYTES.keys([b"a", b"x" * (KEY_BYTES_MAX + 1)]),
    ):
        with pytest.raises(TooLarge) as caught:
            attempt()
        assert (caught.value.size, caught.value.limit) == (KEY_BYTES_MAX + 1, KEY_BYTES_MAX)


def test_headers_keep_their_order() -> None:
    assert headers_bytes(None) == headers_bytes({}) == b""
    assert list(decode_headers(headers_bytes({"b": b"1", "a": b""})).items()) == [("b", b"1"), ("a", b"")]


@pytest.mark.parametrize(
    "headers", [{"a": "text"}, {1: b"x"}, {"a": None}, {"x" * 65_536: b""}, {"\ud800": b""}, {"a": b"x" * HEADERS_BYTES_MAX}]
)
def test_odd_headers_are_refused(headers: dict[Any, Any]) -> None:
    with pytest.raises(EventLogError):
        headers_bytes(headers)


def test_what_are_no_headers_at_all_is_refused() -> None:
    wrong: list[Any] = [1, "x", [("a", b"x")]]
    for headers in wrong:
        with pytest.raises(InvalidArgument, match="mapping"):
            headers_bytes(headers)


def test_a_lifespan_is_above_nothing() -> None:
    assert (lifespan(None), lifespan(1)) == (0, 1)
    odd: list[Any] = ["x", [], object()]
    for wrong in (0, 0.5, 1.5, -1, 1 << 60, *odd):
        with pytest.raises(InvalidArgument, match="lifespan"):
            lifespan(wrong)
