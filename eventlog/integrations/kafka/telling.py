"""How a mirror's events are told: the type that its values have, and the schemas by which readers of Avro find it in the registry."""

from dataclasses import replace
from functools import partial
from importlib.metadata import version
from typing import Any, Final

import msgspec

from eventlog.errors import InvalidArgument, SchemaRefused
from eventlog.kafka.declared import Declared, avro_of_json_schema
from eventlog.kafka.shape import Shape
from eventlog.mirror.book import Mirror
from eventlog.node.schemas import Schemas
from eventlog.schema import requests
from eventlog.schema.requests import Given, Refusal
from eventlog.state.caches import CacheState

_TYPES: Final = ("avro", "json")


def shape_of(mirror: Mirror, cache: CacheState, *, cluster: str) -> Shape:
    """Return how the events of a cache are told.

    Raises:
        InvalidArgument: the mirror's schema is none, or says of a place not one type.
    """
    options = cache.options
    if options.format == "avro":
        if mirror.schema:
            raise InvalidArgument(why="an Avro cache has a schema; a mirror of it takes no other")
        declared: Declared | None = Declared(msgspec.json.decode(options.schema), is_stored=True)
    else:
        declared = _declared(mirror)
    if declared is not None and options.format == "bytes":
        raise InvalidArgument(why="values of a bytes cache are bytes, whatever a schema says")
    return Shape(
        cache=mirror.cache,
        cluster=cluster,
        prefix=mirror.prefix,
        topic=mirror.topic,
        version=version("eventlog"),
        is_json=options.format == "json",
        has_text_keys=not options.bytes_keys,
        form=mirror.format,
        encoding=mirror.encoding,
        declared=declared,
        key_field=mirror.key_field,
        has_tombstones=mirror.has_tombstones,
    )


def _declared(mirror: Mirror) -> Declared | None:
    if not mirror.schema:
        return None
    try:
        schema: Any = msgspec.json.decode(mirror.schema)
    except msgspec.DecodeError as error:
        raise InvalidArgument(why=f"the schema is no JSON: {error}") from error
    return Declared(schema if mirror.schema_type == "avro" else avro_of_json_schema(schema))


async def registered(shape: Shape, schemas: Schemas) -> Shape:
    """Return a shape with the ids by which the cluster's registry knows its schemas; they are registered if need be.

    Raises:
        SchemaRefused: the registry does not take one, as one that cannot follow the subject's last.
        Unavailable: the registry has no primary.
    """
    if shape.encoding != "avro":
        return shape
    key, value = [
        await _id_of(f"{shape.topic}-{word}", text.decode(), schemas)
        for word, text in (("key", shape.key_schema), ("value", shape.value_schema))
    ]
    return replace(shape, schema_ids=(key, value))


async def _id_of(subject: str, text: str, schemas: Schemas) -> int:
    try:
        found = await schemas.change(partial(requests.register, subject=subject, given=Given(schema=text)))
    except Refusal as refusal:
        raise SchemaRefused(subject=subject, why=refusal.message) from refusal
    return int(found["id"])


async def schema_of(subject: str, schemas: Schemas) -> tuple[str, str]:
    """Return the latest schema of a subject, and its type.

    Raises:
        SchemaRefused: there is none, or it is of a type that values cannot be told by.
    """
    try:
        found = requests.version(await schemas.read(), subject, "latest")
    except Refusal as refusal:
        raise SchemaRefused(subject=subject, why=refusal.message) from refusal
    kind = str(found.get("schemaType", "AVRO")).lower()
    if kind not in _TYPES or found.get("references"):
        raise SchemaRefused(subject=subject, why="a mirror takes a schema of Avro or JSON Schema that refers to no other")
    return str(found["schema"]), kind
