"""How a cache's events are told in a topic, and the schemas that readers find this by: as Kafka Connect has them, and as Avro has.

Both say the same of a message. Names of Avro's have no other characters than letters, digits and underscores; `connect.name` keeps the one
that Connect has, by which Debezium knows an envelope.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

import msgspec

from eventlog.errors import InvalidArgument
from eventlog.kafka.declared import ENUM_TYPE, JSON_TYPE, Declared
from eventlog.schema.avro_types import read_avro

FormatName: TypeAlias = Literal["debezium", "upsert", "raw"]
EncodingName: TypeAlias = Literal["json", "json-schema", "avro"]
KEY_FIELD: Final = "_key"
VALUE_FIELD: Final = "value"
CONNECTOR: Final = "eventlog"
SNAPSHOTS: Final = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
_TIMES: Final = ("ts_ms", "ts_us", "ts_ns")
_NOT_IN_NAMES: Final = re.compile(r"[^A-Za-z0-9_]")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How a cache's events are told. `prefix` names the source to its readers, `topic` the schemas.

    `declared` is the type of the values: an Avro cache has one always, a JSON one where a schema was given. By `schema_ids` a registry
    knows `key_schema` and `value_schema`; with the encoding `avro` each key and value begins with its own. `snapshot` is what the source of
    an entry that is told as it is says of why.
    """

    cache: str
    cluster: str
    prefix: str
    topic: str
    version: str
    is_json: bool
    has_text_keys: bool
    form: FormatName = "debezium"
    encoding: EncodingName = "json"
    declared: Declared | None = None
    schema_ids: tuple[int, int] = (0, 0)
    key_field: str = KEY_FIELD
    has_tombstones: bool = True
    snapshot: str = "true"

    def __post_init__(self) -> None:
        """Refuse what nothing can be told by.

        Raises:
            InvalidArgument: the format `raw` has an encoding, or a schema stands beside the encoding `json`, which does not look at it.
        """
        assert self.declared is None or self.declared.is_stored is not self.is_json, "values are JSON, or lie encoded with their schema"
        if self.form == "raw" and self.encoding != "json":
            raise InvalidArgument(why=f"the format raw leaves values as they are, and has no encoding {self.encoding}")
        if self.declared is not None and not self.declared.is_stored and self.encoding == "json":
            raise InvalidArgument(why="a schema of JSON values is for the encodings json-schema and avro; json takes values as they are")

    @property
    def has_own_key(self) -> bool:
        """Whether values have the field in which a row has the key: it stays theirs."""
        return self.declared is not None and self.declared.has_field(self.key_field)

    @property
    def is_bytes(self) -> bool:
        """Whether values are bytes, of which nothing is known."""
        return not self.is_json and self.declared is None

    @cached_property
    def key_sign(self) -> bytes:
        """How the name of the key's field is written, unless with an escape."""
        return msgspec.json.encode(self.key_field)

    @cached_property
    def front_of_row(self) -> bytes:
        """What stands before the key in a row, and in a record's key, in JSON."""
        return b"{" + self.key_sign + b":"

    @cached_property
    def key_schema(self) -> bytes:
        """The schema of record keys, of the encoding's kind.

        Raises:
            InvalidArgument: the encoding has no such name.
        """
        if self.encoding != "avro":
            return msgspec.json.encode(_struct([_field(self.key_field, "string")], name=f"{self.topic}.Key"))
        return _checked(_avro_record(self.topic, "Key", [{"name": self.key_field, "type": "string" if self.has_text_keys else "bytes"}]))

    @cached_property
    def value_schema(self) -> bytes:
        """The schema of record values, likewise: of `debezium` envelopes, or of a cache's values."""
        if self.encoding == "avro":
            return _checked(_avro_envelope(self) if self.form == "debezium" else _avro_value(self))
        return msgspec.json.encode(_envelope_schema(self) if self.form == "debezium" else {**_value(self), "optional": True})


# ---------------------------------------------------------------- as Kafka Connect writes them


def _value(shape: Shape) -> dict[str, Any]:
    if shape.declared is not None:
        return shape.declared.connect()
    return {"type": "string", "name": JSON_TYPE, "version": 1} if shape.is_json else {"type": "bytes"}


def _row(shape: Shape) -> dict[str, Any]:
    key, declared = _field(shape.key_field, "string"), shape.declared
    if declared is not None and declared.is_spread:
        fields = declared.connect()["fields"]
        fields = fields if shape.has_own_key else [key, *fields]
    elif declared is not None:
        fields = [key, {**declared.connect(), "field": VALUE_FIELD}]
    else:
        fields = [key, {**_value(shape), "optional": True, "field": VALUE_FIELD}]
    return _struct(fields, name=f"{shape.topic}.Value", optional=True)


def _envelope_schema(shape: Shape) -> dict[str, Any]:
    row = _row(shape)
    texts = ("version", "connector", "name")
    numbers = (("segment", "int32"), ("offset", "int64"), ("event_id", "int64"))
    source = _struct(
        [
            *(_field(name, "string") for name in texts),
            _field("ts_ms", "int64"),
            _field("snapshot", "string", name=ENUM_TYPE, version=1, optional=True, parameters={"allowed": SNAPSHOTS}, default="false"),
            _field("db", "string"),
            _field("sequence", "string", optional=True),
            _field("ts_us", "int64", optional=True),
            _field("ts_ns", "int64", optional=True),
            _field("table", "string"),
            *(_field(name, kind) for name, kind in numbers),
            _field("kind", "string"),
        ],
        name="eventlog.Source",
    )
    transaction = _struct(
        [_field("id", "string"), _field("total_order", "int64"), _field("data_collection_order", "int64")],
        name="event.block",
        optional=True,
    )
    return _struct(
        [
            {**row, "field": "before"},
            {**row, "field": "after"},
            {**source, "field": "source"},
            _field("op", "string"),
            *(_field(name, "int64", optional=True) for name in _TIMES),
            {**transaction, "field": "transaction"},
        ],
        name=f"{shape.topic}.Envelope",
    )


def _struct(fields: Sequence[dict[str, Any]], *, name: str, optional: bool = False) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), "optional": optional, "name": name}


def _field(field: str, kind: str, *, optional: bool = False, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": optional, **more, "field": field}


# ---------------------------------------------------------------- as Avro has them


def _checked(schema: Any) -> bytes:
    text = msgspec.json.encode(schema)
    read_avro(text.decode())
    return text


def _avro_record(topic: str, word: str, fields: list[dict[str, Any]]) -> dict[str, Any]:
    parts = [_NOT_IN_NAMES.sub("_", part) for part in topic.split(".")]
    space = ".".join(part if part[:1].isalpha() or part[:1] == "_" else f"_{part}" for part in parts)
    return {"type": "record", "name": word, "namespace": space, "fields": fields, "connect.name": f"{topic}.{word}"}


def _avro_value(shape: Shape) -> Any:
    if shape.declared is not None:
        return shape.declared.avro
    return {"type": "string", "connect.name": JSON_TYPE, "connect.version": 1} if shape.is_json else "bytes"


def _avro_row(shape: Shape) -> dict[str, Any]:
    key, declared = {"name": shape.key_field, "type": "string" if shape.has_text_keys else "bytes"}, shape.declared
    if declared is not None and declared.is_spread:
        fields = declared.fields if shape.has_own_key else [key, *declared.fields]
    elif declared is not None:
        fields = [key, {"name": VALUE_FIELD, "type": declared.avro}]
    else:
        fields = [key, {"name": VALUE_FIELD, "type": ["null", _avro_value(shape)], "default": None}]
    return _avro_record(shape.topic, "Value", fields)


def _avro_envelope(shape: Shape) -> dict[str, Any]:
    row = _avro_row(shape)
    snapshot = {"type": "string", "connect.name": ENUM_TYPE, "connect.version": 1, "connect.parameters": {"allowed": SNAPSHOTS}}
    source: list[dict[str, Any]] = [
        *({"name": name, "type": "string"} for name in ("version", "connector", "name")),
        {"name": "ts_ms", "type": "long"},
        {"name": "snapshot", "type": [{**snapshot, "connect.default": "false"}, "null"], "default": "false"},
        {"name": "db", "type": "string"},
        _may_be("sequence", "string"),
        _may_be("ts_us", "long"),
        _may_be("ts_ns", "long"),
        {"name": "table", "type": "string"},
        {"name": "segment", "type": "int"},
        *({"name": name, "type": "long"} for name in ("offset", "event_id")),
        {"name": "kind", "type": "string"},
    ]
    block = [{"name": "id", "type": "string"}, *({"name": name, "type": "long"} for name in ("total_order", "data_collection_order"))]
    fields = [
        _may_be("before", row),
        _may_be("after", f"{row['namespace']}.{row['name']}"),
        {"name": "source", "type": _avro_record("eventlog", "Source", source)},
        {"name": "op", "type": "string"},
        *(_may_be(name, "long") for name in _TIMES),
        _may_be("transaction", _avro_record("event", "block", block)),
    ]
    return _avro_record(shape.topic, "Envelope", fields)


def _may_be(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": ["null", kind], "default": None}
