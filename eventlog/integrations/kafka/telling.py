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


def _subjects(shape: Shape) -> tuple[tuple[str, str], ...]:
    """Return the subjects of a shape, that of keys first, and the schema of each."""
    if shape.encoding != "avro":
        return ()
    return (f"{shape.topic}-key", shape.key_schema.decode()), (f"{shape.topic}-value", shape.value_schema.decode())


async def registered(shape: Shape, registry: MirrorRegistry) -> Shape:
    """Return a shape with the ids by which a registry knows its schemas; they are registered if need be. Raises as `register` does."""
    ids = [await registry.register(subject, text) for subject, text in _subjects(shape)]
    return replace(shape, schema_ids=(ids[0], ids[1])) if ids else shape


async def compatible(shape: Shape, registry: MirrorRegistry) -> None:
    """Refuse schemas that cannot follow the last ones of their subjects; nothing is registered. Raises as `check` does."""
    for subject, text in _subjects(shape):
        await registry.check(subject, text)
