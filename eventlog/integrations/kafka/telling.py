"""How a mirror's events are told: the type that its values have, and the schemas by which readers of Avro find it in a registry."""

from dataclasses import replace
from importlib.metadata import version
from typing import Any

import msgspec

from eventlog.errors import InvalidArgument
from eventlog.integrations.kafka.registries import MirrorRegistry
from eventlog.kafka.declared import Declared, avro_of_json_schema
from eventlog.kafka.shape import Shape
from eventlog.mirror.book import Mirror
from eventlog.state.caches import CacheState


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


async def registered(shape: Shape, registry: MirrorRegistry) -> Shape:
    """Return a shape with the ids by which a registry knows its schemas; they are registered if need be. Raises as `register` does."""
    if shape.encoding != "avro":
        return shape
    key, value = [
        await registry.register(f"{shape.topic}-{word}", text.decode())
        for word, text in (("key", shape.key_schema), ("value", shape.value_schema))
    ]
    return replace(shape, schema_ids=(key, value))
