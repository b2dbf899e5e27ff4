"""Objects as JSON: what comes back is what was given, or what the table in docs/consuming.md says; all else is refused with its place."""

import math
from collections import Counter, OrderedDict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from typing import Any, NamedTuple
from uuid import UUID

import attrs
import msgspec
import numpy as np
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.client.formats import CacheFormat
from eventlog.errors import BadValue
from eventlog.schema.strict_json import encode_json, encode_json_many, plain
from tests.client.test_formats import info

JSON = CacheFormat(info())


class Colour(Enum):
    RED = "red"
    TWO = 2
    NONE = math.nan


class Level(IntEnum):
    HIGH = 9


class Word(StrEnum):
    YES = "yes"


@dataclass
class Point:
    x: int
    _hidden: Any = 2


class Row(msgspec.Struct):
    a: Any


@attrs.define
class Attributed:
    a: Any


class Pair(NamedTuple):
    x: int
    y: int


NAIVE = datetime.fromisoformat("2020-01-02T03:04:05")
EAST = timezone(timedelta(hours=2))


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class Real(float):
    pass


class Moment(datetime):
    """As pandas has them: a datetime of another class."""


BECOMES = [
    (None, "null"), (True, "true"), (1.5, "1.5"), (1 << 80, str(1 << 80)), ("ä\u2028", '"ä\u2028"'),
    ((1, (2,)), "[1,[2]]"), (Pair(1, 2), "[1,2]"), (OrderedDict(a=1), '{"a":1}'), (Counter("aa"), '{"a":2}'),
    (NAIVE, '"2020-01-02T03:04:05"'),
    (datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC), '"2020-01-02T03:04:05.000006Z"'),
    (datetime(2020, 1, 2, tzinfo=EAST), '"2020-01-02T00:00:00+02:00"'), (date(2020, 1, 2), '"2020-01-02"'), (time(3, 4), '"03:04:00"'),
    (time(3, 4, tzinfo=UTC), '"03:04:00Z"'), (timedelta(seconds=5.5), '"PT5.5S"'), (Decimal("1.50"), '"1.50"'),
    (UUID(int=1), '"00000000-0000-0000-0000-000000000001"'), (Colour.RED, '"red"'), (Colour.TWO, "2"),
    (Level.HIGH, "9"), (Word.YES, '"yes"'),
    (Point(1), '{"x":1,"_hidden":2}'), (Row(1), '{"a":1}'), (Attributed(1), '{"a":1}'), ({"b": b"ab"}, '{"b":"YWI="}'),
    ([bytearray(b"a"), memoryview(b"a")], '["YQ==","YQ=="]'), ({"r": msgspec.Raw(b"1.10")}, '{"r":1.10}'),
    (Text("t"), '"t"'), (Number(5), "5"), (Real(1.5), "1.5"),
    ({Text("k"): 1}, '{"k":1}'), ({Word.YES: 1, Colour.RED: 2}, '{"yes":1,"red":2}'),
    ({UUID(int=1): 1, date(2020, 1, 1): 2}, '{"00000000-0000-0000-0000-000000000001":1,"2020-01-01":2}'),
    (np.float64(1.5), "1.5"), (np.float32(1.5), "1.5"), (np.int64(-5), "-5"),
    (np.uint8(5), "5"), (np.bool_(True), "true"), (np.str_("s"), '"s"'),
    (np.datetime64("2020-01-02T03:04:05.000006789", "ns"), '"2020-01-02T03:04:05.000006"'), (np.array(7), "7"),
    (np.timedelta64(5500, "ms"), '"PT5.5S"'), (Moment(2020, 1, 2, tzinfo=UTC), '"2020-01-02T00:00:00+00:00"'),
    (pa.scalar(5), "5"), (pa.scalar("x"), '"x"'), (pa.scalar([1, None]), "[1,null]"), (pa.scalar(None), "null"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), BECOMES, ids=[type(value).__name__ for value, _ in BECOMES])
def test_what_becomes_something_else_on_purpose(value: Any, text: str) -> None:
    for wrapped, expected in ((value, text), ({"a": [1, value]}, f'{{"a":[1,{text}]}}')):
        assert JSON.value("k", wrapped) == expected.encode()
        assert JSON.values(["k", "l"], [wrapped, {"n": None}]) == [expected.encode(), b'{"n":null}']
        assert msgspec.json.encode(plain(wrapped)) == expected.encode()


def circle() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


REFUSED = [
    ({"a": [1, 2, math.nan]}, r"value\.a\[2\] is nan"), ({"a": [1, 2, math.inf]}, r"value\.a\[2\] is inf"), (-math.inf, "value is -inf"),
    ({"a": None, "b": np.float64("nan")}, "value.b is nan"), ({"b": np.float32("inf")}, "value.b is inf"), (Colour.NONE, "value is nan"),
    ({"a": Row(math.nan)}, "value.a.a is nan"), (Point(math.inf), "value.x is inf"), ({"a": pa.scalar(math.nan)}, "value.a is nan"),
    ({"tags": {1, 2}}, r"value.tags is a set: .* sorted"), ([frozenset()], r"value\[0\] is a frozenset"), (Point({1}), "value.x is a set"),
    ({1: "a"}, "value is an object with the name 1: .* an int"),
    ({"a b": [{1.5: 2}]}, r"value\['a b'\]\[0\] is an object with the name 1.5"),
    ({None: 1}, "the name None"), ({True: 1}, "the name True"), ({b"x": 1}, "the name b'x'"), ({(1,): 1}, "the name"),
    ({Decimal(1): 1}, "the name Decimal"), ({Level.HIGH: 1}, "the name"), ({np.int64(1): 1}, "the name"),
    ({"a": object()}, "value.a is an object"), ([1j], r"value\[0\] is a complex"),
    ({"a": np.array([1])}, r"value.a is a ndarray: .* .tolist\(\)"),
    (np.datetime64("NaT"), "value is a datetime64"), ({"x": np.longdouble(1)}, "value.x is a longdouble"),
    ({"x": np.complex64(1)}, "value.x"),
    ({"a": Row}, "value.a is"), ({"a": Point}, "value.a is"), (iter([1]), "value is a list_iterator"), ({"a": "\ud800"}, "value.a is text"),
    ({"\ud800": 1}, "value is text"), ({"a": msgspec.Raw(b"{")}, "value.a is a msgspec.Raw that is no JSON"),
    (circle(), "nested deeper than 256"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "why"), REFUSED, ids=[why[:40] for _, why in REFUSED])
def test_what_json_does_not_have_is_refused_with_its_place(value: Any, why: str) -> None:
    for attempt in (lambda: JSON.value("the key", value), lambda: JSON.values(["ok", "the key"], [{"n": None}, value])):
        with pytest.raises(BadValue, match=why) as caught:
            attempt()
        assert caught.value.key == "the key"


def test_a_fragment_that_is_no_json_does_not_move_the_values_beside_it() -> None:
    with pytest.raises(ValueError, match="Fragment"):
        encode_json_many([1, orjson.Fragment(b"2,\n,3"), 4])


leaves = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=5) | st.decimals(allow_nan=False)
    | st.datetimes() | st.dates() | st.uuids() | st.timedeltas() | st.just(np.float64(2.5)) | st.just(np.int32(3)) | st.just({1})
    | st.sampled_from(Colour)
)  # fmt: skip
names = st.text(max_size=3) | st.integers() | st.uuids()
anything = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4) | st.tuples(inner) | st.dictionaries(names, inner, max_size=4))


@given(st.lists(anything, max_size=4))
def test_the_fast_road_and_the_one_by_one_say_the_same(values: list[Any]) -> None:
    def slow(value: Any) -> Any:
        try:
            return msgspec.json.decode(msgspec.json.encode(plain(value)))
        except ValueError:
            return BadValue

    def fast(value: Any) -> Any:
        try:
            return msgspec.json.decode(encode_json(value))
        except ValueError:
            return BadValue

    expected = list(map(slow, values))
    assert list(map(fast, values)) == expected
    try:
        found = encode_json_many(values)
    except (ValueError, TypeError):
        return  # each is looked at alone then
    assert [msgspec.json.decode(item) for item in found] == expected
