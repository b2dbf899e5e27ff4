"""Pairs of Avro schemas that are alike, and values that go through every place of one: what fastavro is asked about them is the judge."""

from collections.abc import Iterator
from struct import pack
from typing import Any

from hypothesis import strategies as st

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
DEPTH_MAX = 3
NESTED_MAX = 5  # of types with a name in a value


class Pairs:
    """Draws the writer's and the reader's schema side by side: most places are the same in both, or differ in one thing."""

    def __init__(self, draw: Any) -> None:
        self._draw = draw
        self._count = 0
        self._closed: list[tuple[str, str]] = []  # names of types that both have, and that may be used as they are
        self._open: list[tuple[str, str]] = []

    def one_of(self, *choices: Any) -> Any:
        return self._draw(st.sampled_from(choices))

    def chance(self, percent: int) -> bool:
        return self._draw(st.integers(0, 99)) < percent

    def pair(self, depth: int = 0) -> tuple[Any, Any]:
        if self.chance(8):
            return self.alone(depth), self.alone(depth)
        kinds = (
            ["primitive"] if depth >= DEPTH_MAX else ["primitive", "array", "map", "union", "union", "record", "record", "enum", "fixed"]
        )
        kinds += ["name"] * bool(self._closed) + ["inside"] * bool(self._open)
        return getattr(self, f"_{self.one_of(*kinds)}")(depth)

    def alone(self, depth: int) -> Any:
        """Return a type without names, so that it may stand anywhere."""
        kind = self.one_of(*PRIMITIVES) if depth >= DEPTH_MAX else self.one_of(*PRIMITIVES, "array", "map", "union")
        if kind == "array":
            return {"type": "array", "items": self.alone(depth + 1)}
        if kind == "map":
            return {"type": "map", "values": self.alone(depth + 1)}
        if kind == "union":
            return self._draw(st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=3, unique=True))
        return kind

    def _primitive(self, depth: int) -> tuple[Any, Any]:
        found = self.one_of(*PRIMITIVES)
        return found, self.one_of(*PRIMITIVES) if self.chance(40) else found

    def _array(self, depth: int) -> tuple[Any, Any]:
        writer, reader = self.pair(depth + 1)
        return {"type": "array", "items": writer}, {"type": "array", "items": reader}

    def _map(self, depth: int) -> tuple[Any, Any]:
        writer, reader = self.pair(depth + 1)
        return {"type": "map", "values": writer}, {"type": "map", "values": reader}

    def _union(self, depth: int) -> tuple[Any, Any]:
        pairs = [self.pair(depth + 1) for _ in range(self.one_of(1, 2, 3))]
        writer = _as_union(writer for writer, _ in pairs)
        readers = [reader for _, reader in pairs]
        if self.chance(25) and len(readers) == 1 and isinstance(readers[0], str):
            return writer, readers[0]
        if self.chance(25):
            readers.append(self.one_of(*PRIMITIVES))
        return writer if self.chance(90) or isinstance(pairs[0][0], list) else pairs[0][0], _as_union(readers)

    def _names(self, letter: str) -> tuple[dict[str, Any], dict[str, Any]]:
        self._count += 1
        name = f"{letter}{self._count}"
        writer, reader = {"name": name}, {"name": name}
        if letter != "R":  # what is in a record is in its namespace, and fastavro takes an alias without one for any
            writer, reader = {"name": self.one_of(name, name, f"p.{name}")}, {"name": self.one_of(name, name, f"q.{name}")}
        if self.chance(15):
            reader = {"name": f"{letter}{self._count}new"}
            if self.chance(70):
                reader["aliases"] = [writer["name"]]
        return writer, reader

    def _enum(self, depth: int) -> tuple[Any, Any]:
        writer, reader = self._names("E")
        for side in (writer, reader):
            side |= {"type": "enum", "symbols": self._draw(st.sampled_from([["A", "B"], ["A"], ["B", "A"], ["A", "B", "C"]]))}
        if self.chance(30):
            reader["default"] = "A"
        self._closed.append((writer["name"], reader["name"]))
        return writer, reader

    def _fixed(self, depth: int) -> tuple[Any, Any]:
        writer, reader = self._names("F")
        size = self.one_of(1, 2)
        self._closed.append((writer["name"], reader["name"]))
        return writer | {"type": "fixed", "size": size}, reader | {"type": "fixed", "size": size + self.chance(15)}

    def _record(self, depth: int) -> tuple[Any, Any]:
        writer, reader = self._names("R")
        self._open.append((writer["name"], reader["name"]))
        olds, news = [], []
        for name in self._draw(st.lists(st.sampled_from(["a", "b", "c"]), max_size=3, unique=True)):
            old, new = self.pair(depth + 1)
            has = self.chance(92), self.chance(85)
            if has[0] or has[1]:
                olds += [{"name": name, "type": old}]
                news += [{"name": name, "type": new}]
            if not self.chance(80):
                olds.append({"name": f"{name}1", "type": self.one_of(*PRIMITIVES)})
            if not self.chance(75):
                news.append({"name": f"{name}2", "type": "int", **({"default": 7} if self.chance(60) else {})})
        if news and self.chance(15):
            news[0] = news[0] | {"name": "renamed", **({"aliases": [news[0]["name"]]} if self.chance(70) else {})}
        if self.chance(20):
            news.reverse()  # types may be used before they are defined then: such a pair is not judged
        self._closed.append(self._open.pop())
        return writer | {"type": "record", "fields": olds}, reader | {"type": "record", "fields": news}

    def _name(self, depth: int) -> tuple[Any, Any]:
        return self.one_of(*self._closed)

    def _inside(self, depth: int) -> tuple[Any, Any]:
        writer, reader = self.one_of(*self._open)
        if self.chance(50):
            return ["null", writer], ["null", reader]
        return {"type": "array", "items": writer}, {"type": "array", "items": reader}


def _as_union(branches: Any) -> list[Any]:
    """Return branches as a union: those in a union of their own are put in, and the second of a kind is left out."""
    flat = [one for branch in branches for one in (branch if isinstance(branch, list) else [branch])]
    found: dict[Any, Any] = {}
    for one in flat:
        kind = one if isinstance(one, str) else one.get("name", one["type"])
        found.setdefault(kind, one)
    return list(found.values())


pairs = st.composite(lambda draw: Pairs(draw).pair())()


class Written:
    """Values of a schema as bytes, such that every branch, symbol and field is in one of them."""

    def __init__(self, named: dict[str, Any]) -> None:
        self._named = named

    def of(self, schema: Any, nested: int = 0) -> Iterator[bytes]:
        """Yield values; without one where they would nest too deep. `schema` is as fastavro parsed it."""
        if isinstance(schema, str) and schema in self._named:
            schema = self._named[schema]
        if isinstance(schema, list):
            for index, branch in enumerate(schema):
                yield from (_number(index) + value for value in self.of(branch, nested))
            return
        kind = schema if isinstance(schema, str) else schema["type"]
        if kind in {"array", "map"}:
            yield b"\0"
            key = b"\x02k" if kind == "map" else b""
            yield from (b"\x02" + key + value + b"\0" for value in self.of(schema["items" if kind == "array" else "values"], nested))
        elif kind == "record":
            yield from self._records(schema, nested + 1)
        elif kind == "enum":
            yield from map(_number, range(len(schema["symbols"])))
        elif kind == "fixed":
            yield b"f" * schema["size"]
        else:
            yield _PRIMITIVES[kind]

    def _records(self, schema: Any, nested: int) -> Iterator[bytes]:
        if nested > NESTED_MAX:
            return
        columns = [list(self.of(field["type"], nested)) for field in schema["fields"]]
        if all(columns):
            yield b"".join(column[0] for column in columns)
            for index, column in enumerate(columns):
                others = [other[0] for other in columns]
                yield from (b"".join([*others[:index], value, *others[index + 1 :]]) for value in column[1:])


def _number(value: int) -> bytes:
    assert 0 <= value < 64
    return bytes([2 * value])


_PRIMITIVES = {
    "null": b"",
    "boolean": b"\x01",
    "int": _number(3),
    "long": _number(4),
    "float": pack("<f", 1.5),
    "double": pack("<d", 2.5),
    "bytes": b"\x04ab",
    "string": b"\x04cd",
}
