"""Avro schemas taken apart: names, namespaces, defaults, and the one spelling of all that mean the same."""

import json
from contextlib import suppress

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import InvalidArgument
from eventlog.limits import SCHEMA_DEPTH_MAX, SCHEMA_ITEMS_MAX
from eventlog.schema.avro_types import AvroTypes, read_avro
from tests.schema.avro_pairs import pairs


def read(tree: object, *others: AvroTypes) -> AvroTypes:
    return read_avro(json.dumps(tree), others)


def record(*fields: object, name: str = "R", **more: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(kind: object, name: str = "a", **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


E = {"type": "enum", "name": "E", "symbols": ["A"]}


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (5, "is no type"), (None, "is no type"), ({}, "`type`"), ({"type": ["int"]}, "`type`"), ({"type": {"type": "int"}}, "`type`"),
        ("nope", "no type 'nope'"), ({"type": "array"}, "lacks `items`"), ({"type": "map"}, "lacks `values`"),
        (["int", "int"], "each type once"), (["null", ["int"]], "no union"), ([E, {**E, "name": "x.E"}, "E"], "each type once"),
        ([{"type": "array", "items": "int"}, {"type": "array", "items": "string"}], "one array"),
        (["int", {"type": "int", "logicalType": "date"}], "each type once"),
        (record(name="1R"), "no name of a type"), (record(name="a..b"), "no name of a type"), (record(name="int"), "a type already"),
        (record(namespace="a b"), "no namespace"), (record(field("int"), field("int")), "each field once"), ([record(), record()], "twice"),
        (record(field("int", "a-b")), "no name of a field"), (record({"name": "a"}), "has a type"), (record("a"), "list of objects"),
        ({"type": "record", "name": "R"}, "list of objects"), ({"type": "record", "fields": []}, "no name"),
        ({"type": "enum", "name": "E", "symbols": "AB"}, "list of names"), ({**E, "symbols": ["A", "A"]}, "each symbol once"),
        ({**E, "symbols": ["1"]}, "list of names"), ({**E, "default": "B"}, "one of its symbols"), (record(aliases="x"), "aliases"),
        ({"type": "fixed", "name": "F", "size": -1}, "number of bytes"), ({"type": "fixed", "name": "F", "size": "1"}, "number of bytes"),
        ({"type": "fixed", "name": "F"}, "number of bytes"), (record(field("x.S"), name="x.R"), "no type 'x.S'"),
    ],
)  # fmt: skip
def test_what_is_no_schema_is_refused_with_its_reason(tree: object, why: str):
    with pytest.raises(InvalidArgument, match=why):
        read(tree)


@pytest.mark.parametrize("text", ["", "{", '{"type": NaN}', "[" * 5_000, "1e999", '"\\ud800"'])
def test_what_is_no_json_or_no_type_is_refused(text: str):
    with pytest.raises(InvalidArgument):
        read_avro(text)


def test_a_schema_is_bounded_in_depth_and_number():
    tree: object = "int"
    for _ in range(SCHEMA_DEPTH_MAX):
        tree = {"type": "array", "items": tree}
    read(tree)
    with pytest.raises(InvalidArgument, match="levels deep"):
        read({"type": "array", "items": tree})
    symbols = [f"S{number}" for number in range(SCHEMA_ITEMS_MAX - 3)]
    with pytest.raises(InvalidArgument, match="items"):
        read({"type": "enum", "name": "E", "symbols": symbols})
    read({"type": "enum", "name": "E", "symbols": symbols[:-1]})


DEFAULTS = {
    "null": ([None], [0, "null"]),
    "boolean": ([True], [1, "true", None]),
    "int": ([0, -(1 << 31), (1 << 31) - 1], [1 << 31, 1.0, "1", True]),
    "long": ([1 << 31, -(1 << 63)], [1 << 63, 0.5]),
    "float": ([1, 1.5], ["NaN", None, True]),
    "double": ([1, 1.5], ["1"]),
    "bytes": (["\u00ff", ""], ["\u0100", 1]),
    "string": (["\u0100"], [1, None]),
}


@pytest.mark.parametrize("kind", DEFAULTS)
def test_a_default_is_of_its_fields_type(kind: str):
    fitting, others = DEFAULTS[kind]
    for value in fitting:
        read(record(field(kind, default=value)))
        read(record(field({"type": "array", "items": kind}, default=[value])))
        read(record(field({"type": "map", "values": kind}, default={"k": value})))
    for value in others:
        for inner, default in ((kind, value), ({"type": "array", "items": kind}, [value]), ({"type": "map", "values": kind}, {"k": value})):
            with pytest.raises(InvalidArgument, match="default is not"):
                read(record(field(inner, default=default)))


def test_a_default_may_be_of_any_branch_and_of_types_with_a_name():
    read(record(field(["null", "int"], default=5)))
    read(record(field(E, default="A"), field({"type": "fixed", "name": "F", "size": 2}, "b", default="ab")))
    inner = record(field("int", "x"), field("int", "y", default=1), name="S")
    read(record(field(inner, default={"x": 1})))
    for bad in ({}, {"x": "1"}, 5):
        with pytest.raises(InvalidArgument, match="default is not"):
            read(record(field(inner, default=bad)))
    with pytest.raises(InvalidArgument, match="default is not"):
        read(record(field({"type": "fixed", "name": "F", "size": 2}, default="abc")))


def test_a_default_that_takes_for_ever_to_check_is_refused():
    default: object = {"a": 1}
    for _ in range(30):
        default = {"a": default}
    both = ["null", record(field(["null", "S", "R"]), name="S"), "R"]  # each level may be of either, and the last one is of neither
    with pytest.raises(InvalidArgument, match="steps"):
        read(record(field(both, default=default)))


def test_names_are_of_their_namespace():
    inner = record(field("S", "self"), name="S")
    found = read(record(field(inner), name="R", namespace="x.y"))
    assert set(found.named) == {"x.y.R", "x.y.S"}
    assert set(read(record(field({**inner, "namespace": ""}), name="x.R")).named) == {"x.R", "S"}
    assert set(read(record(field(record(name="y.S")), namespace="x", name="z.R")).named) == {"z.R", "y.S"}
    assert read(record(field(record(name="S", namespace="")), field("S", "b"), name="x.R")).named["x.R"].fields[1].type == "S"


SPELLINGS = [
    [record(field("int"), namespace="x"), record(field({"type": "int"}), name="x.R"), record(field("int"), name="x.R", namespace="z")],
    [record(field(record(name="S")), field("S", "b"), name="x.R"), record(field(record(name="x.S")), field("x.S", "b"), name="x.R")],
    [{"name": "E", "symbols": ["A"], "type": "enum"}, E],
    [record(name="R", namespace="x", aliases=["Old"]), record(name="x.R", aliases=["x.Old"])],
]  # fmt: skip


@pytest.mark.parametrize("spellings", SPELLINGS)
def test_spellings_of_one_schema_are_one(spellings: list[object]):
    assert len({read(tree).normal for tree in spellings}) == 1
    assert read_avro(json.dumps(spellings[0], indent=4)).normal == read(spellings[0]).normal


def test_what_a_reader_goes_by_is_part_of_the_schema():
    said = [
        record(field("int")), record(field("int", default=1)), record(field("int", default=2)), record(field("int", aliases=["b"])),
        record(field("int"), doc="d"), record(field("int"), name="x.R"), record(field({"type": "int", "logicalType": "date"})),
        record(field({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})),
    ]  # fmt: skip
    assert len({read(tree).normal for tree in said}) == len(said)


def test_types_of_other_schemas_are_used_by_name_and_can_be_written_in():
    inner = read(record(field(E), name="x.S"))
    outer = read(record(field("x.S"), field(["null", "x.E"], "b"), field("x.S", "c")), inner)
    assert outer.normal == json.dumps(json.loads(outer.normal), sort_keys=True, separators=(",", ":"))
    assert "symbols" not in outer.normal
    alone = fastavro.parse_schema(json.loads(outer.alone()))
    assert alone["fields"][0]["type"]["fields"][0]["type"]["symbols"] == ["A"]
    assert read_avro(outer.alone()).named.keys() == {"R", "x.S", "x.E"}
    with pytest.raises(InvalidArgument, match="defined twice"):
        read(record(name="x.S"), inner)


def test_schemas_that_nest_too_deep_in_each_other_cannot_be_written_in():
    found = read(record(field("int"), name="R0"))
    for number in range(1, SCHEMA_DEPTH_MAX):
        found = read(record(field(f"R{number - 1}"), name=f"R{number}"), found)
    with pytest.raises(InvalidArgument, match="levels deep"):
        found.alone()


def test_what_is_said_beside_a_type_is_kept():
    tree = {"type": "string", "items": 5, "avro.java.string": "String"}
    assert json.loads(read(tree).normal) == tree


@given(pairs)
def test_the_normal_form_is_one_and_fastavro_takes_it(pair: tuple[object, object]):
    for tree in pair:
        with suppress(InvalidArgument):
            normal = read(tree).normal
            assert read_avro(normal).normal == normal
            fastavro.parse_schema(json.loads(normal))


WORDS = st.sampled_from(["int", "null", "R", "record", "array", "fixed", "enum", "map"])
PARTS = st.sampled_from(["type", "name", "fields", "items", "values", "size", "symbols", "default", "aliases", "namespace"])
TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | WORDS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(PARTS, inner, max_size=6),
)


@given(TREES)
def test_any_json_is_a_schema_or_refused(tree: object):
    with suppress(InvalidArgument):
        read(tree)
