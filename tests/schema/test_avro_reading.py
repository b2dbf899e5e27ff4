"""Which Avro schema reads what another wrote: the specification case by case, and fastavro as the judge of random pairs."""

import io
import json
from contextlib import suppress
from copy import deepcopy

import fastavro
import pytest
from fastavro.read import SchemaResolutionError
from fastavro.schema import SchemaParseException, UnknownType
from hypothesis import assume, event, example, given

from eventlog.errors import InvalidArgument
from eventlog.limits import SCHEMA_STEPS_MAX
from eventlog.schema.avro_reading import why_not_read
from eventlog.schema.avro_types import read_avro
from tests.schema.avro_pairs import Written, pairs


def why(writer: object, reader: object) -> str:
    return why_not_read(reader=read_avro(json.dumps(reader)), writer=read_avro(json.dumps(writer)))


def record(*fields: object, name: str = "R", **more: object) -> dict[str, object]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: object = "int", **more: object) -> dict[str, object]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "E", **more: object) -> dict[str, object]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: object) -> dict[str, object]:
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: object) -> dict[str, object]:
    return {"type": "array", "items": items}


def table(values: object) -> dict[str, object]:
    return {"type": "map", "values": values}


def decimal(precision: int, scale: int) -> dict[str, object]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


PROMOTED = {"int": {"long", "float", "double"}, "long": {"float", "double"}, "float": {"double"}, "string": {"bytes"}, "bytes": {"string"}}
PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


@pytest.mark.parametrize("reader", PRIMITIVES)
@pytest.mark.parametrize("writer", PRIMITIVES)
def test_a_primitive_type_is_read_as_itself_and_as_what_it_is_promoted_to(writer: str, reader: str):
    assert (why(writer, reader) == "") == (writer == reader or reader in PROMOTED.get(writer, ()))


RESOLVED = {
    "both schemas are arrays whose item types match": (array("int"), array("long")),
    "both schemas are maps whose value types match": (table("int"), table("double")),
    "both schemas are enums whose unqualified names match": (enum("A", name="a.E"), enum("A", name="b.E")),
    "both schemas are fixed whose sizes and unqualified names match": (fixed(3, "a.F"), fixed(3, "b.F")),
    "both schemas are records with the same unqualified name": (record(name="a.R"), record(name="b.R")),
    "the ordering of fields may be different": (record(field("a"), field("b", "string")), record(field("b", "string"), field("a"))),
    "fields of the same name are resolved recursively": (record(field("a", array("int"))), record(field("a", array("long")))),
    "the writer's field that the reader lacks is ignored": (record(field("a"), field("b")), record(field("a"))),
    "a reader's field with a default uses it": (record(), record(field("a", default=5))),
    "a reader's field whose default is null uses it": (record(), record(field("a", ["null", "int"], default=None))),
    "a default may be of any branch of a union": (record(), record(field("a", ["null", "int"], default=5))),
    "an enum has all symbols of the writer's": (enum("A", "B"), enum("B", "C", "A")),
    "an enum has a default for symbols that it lacks": (enum("A", "B"), enum("A", default="A")),
    "the first branch of the reader's union that matches": ("int", ["string", "long", "int"]),
    "each branch of the writer's union is read by the reader": (["int", "long"], "double"),
    "each branch of the writer's union is read by one of the reader's": (["int", "string"], ["null", "bytes", "long"]),
    "the reader's union may have one branch": (record(), [record(name="x.R")]),
    "an alias names the writer's record": (record(name="x.Old"), record(name="New", aliases=["x.Old"])),
    "an alias without a namespace is in that of its type": (record(name="x.Old"), record(name="x.New", aliases=["Old"])),
    "an alias names the writer's enum": (enum("A"), enum("A", name="New", aliases=["E"])),
    "an alias names the writer's fixed": (fixed(2), fixed(2, "New", aliases=["F"])),
    "an alias names the writer's field": (record(field("old")), record(field("new", aliases=["older", "old"]))),
    "a field's own name comes before its alias": (record(field("a", "string"), field("b")), record(field("b", "int", aliases=["a"]))),
    "decimals of the same precision and scale match": (decimal(4, 2), decimal(4, 2)),
    "a decimal is read as the bytes that it is": (decimal(4, 2), "bytes"),
    "other logical types are read as what they are stored as": (
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "timestamp-micros"},
    ),
    "a decimal that is none is left aside": (decimal(4, 2), decimal(2, 4)),
    "a recursive record": (record(field("r", ["null", "R"])), record(field("r", ["null", "R"]), field("b", default=1))),
}
UNRESOLVED = {
    "arrays whose items do not match": (array("int"), array("string")),
    "maps whose values do not match": (table("int"), table("string")),
    "an array is no map": (array("int"), table("int")),
    "enums with other names": (enum("A"), enum("A", name="Other")),
    "fixed with other sizes": (fixed(3), fixed(4)),
    "fixed with other names": (fixed(3), fixed(3, "Other")),
    "records with other names": (record(), record(name="Other")),
    "a record is no enum": (record(name="X"), enum("A", name="X")),
    "a reader's field without a default": (record(), record(field("a"))),
    "a field of a type that does not match": (record(field("a", "string")), record(field("a"))),
    "a symbol that the reader's enum lacks": (enum("A", "B"), enum("A")),
    "no branch of the reader's union matches": ("int", ["null", "string"]),
    "a branch of the writer's union does not match": (["null", "int"], "int"),
    "one branch of many": (["int", "string", "null"], ["null", "long"]),
    "the first branch that matches does not fit, though a later one would": (
        record(field("a"), name="x.R"),
        [record(field("a", "string"), name="y.R"), record(field("a"), name="x.R")],
    ),
    "an alias of another namespace": (record(name="x.Old"), record(name="New", aliases=["Old"])),
    "an alias of the writer's is not looked at": (record(name="Old", aliases=["New"]), record(name="New")),
    "decimals with another scale": (decimal(4, 2), decimal(4, 1)),
    "decimals with another precision": (decimal(5, 2), decimal(4, 2)),
    "a fixed is no bytes": (fixed(3), "bytes"),
    "deep inside a recursive record": (
        record(field("r", ["null", record(field("back", ["null", "R"]), field("n"), name="S")])),
        record(field("r", ["null", record(field("back", ["null", "R"]), field("n", "string"), name="S")])),
    ),
}


@pytest.mark.parametrize("case", RESOLVED)
def test_resolved(case: str):
    assert why(*RESOLVED[case]) == ""


@pytest.mark.parametrize("case", UNRESOLVED)
def test_unresolved(case: str):
    assert why(*UNRESOLVED[case])


def test_the_place_is_named():
    writer = record(field("a", array(record(field("b"), name="S"))))
    reader = record(field("a", array(record(field("b", "string"), name="S"))))
    assert why(writer, reader) == "value.a[].b: the reader has string, the writer int"
    assert why(fixed(3), fixed(4)) == "value: F has 4 bytes, and had 3"


def chain(length: int, last: object) -> dict[str, object]:
    """Return a record of records each of which has the one before it as a field: as deep through names as it is long."""
    records = [record(field("a", f"R{number - 1}" if number else last), name=f"R{number}") for number in range(length)]
    return record(*(field(f"f{number}", one) for number, one in enumerate(records)), name="Top")


def test_records_that_nest_through_names_cost_no_stack():
    assert why(chain(5_000, "int"), chain(5_000, "long")) == ""
    assert why(chain(5_000, "int"), chain(5_000, "string")).endswith("a: the reader has string, the writer int")


def test_what_would_take_too_long_is_taken_for_incompatible():
    writer = [record(name=f"A{number}") for number in range(1_000)]
    reader = [record(name=f"B{number}") for number in range(1_000)] + writer
    assert str(SCHEMA_STEPS_MAX) in why(writer, reader)


@given(pairs)
@example((record(field("a"), name="x.R"), [record(field("a", "string"), name="y.R"), record(field("a"), name="x.R")]))
@example((["null", "int"], ["int"]))
def test_fastavro_reads_what_is_resolved_and_fails_where_it_is_not(pair: tuple[object, object]):
    writer, reader = pair
    with suppress(InvalidArgument):
        found = why(writer, reader)
        with suppress(SchemaParseException, UnknownType):
            is_read = is_read_by_fastavro(writer, reader)
            event("read" if is_read else "not read")
            assert (found == "") == is_read, found
            return
    assume(False)


def is_read_by_fastavro(writer: object, reader: object) -> bool:
    named: dict[str, object] = {}
    parsed = fastavro.parse_schema(deepcopy(writer), named_schemas=named)
    reading = fastavro.parse_schema(deepcopy(reader))
    values = list(Written(named).of(parsed))
    assume(values)
    for value in values:
        buffer = io.BytesIO(value)
        fastavro.schemaless_reader(buffer, parsed)
        assert buffer.tell() == len(value), "it is a value of the writer's"
        try:
            fastavro.schemaless_reader(io.BytesIO(value), parsed, reading)
        except SchemaResolutionError:
            return False
    return True
