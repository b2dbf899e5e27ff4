"""Between messages of the wire and the values that callers see."""

from operator import index

from eventlog.client.values import CacheInfo, Format
from eventlog.errors import InvalidArgument
from eventlog.ids import ID_MAX
from eventlog.wire import eventlog_pb2 as pb

_FORMATS: dict[int, Format] = {pb.JSON: "json", pb.BYTES: "bytes", pb.AVRO: "avro"}
_FORMAT_NUMBERS: dict[str, pb.Format] = {"json": pb.JSON, "bytes": pb.BYTES, "avro": pb.AVRO}
_CONSISTENCIES = {"primary": pb.PRIMARY, "linear": pb.LINEAR, "any": pb.ANY}


def consistency_number(name: str) -> pb.Consistency:
    """Return the wire's number for how fresh a read has to be."""
    if name not in _CONSISTENCIES:
        raise InvalidArgument(why=f"consistency {name!r}: use primary, linear or any")
    return _CONSISTENCIES[name]


def checked_id(number: int) -> int:
    """Return `number` if an id can be that.

    Raises:
        InvalidArgument: it cannot.
    """
    # what the request does not take as a number would end the sending of everything behind it
    if isinstance(number, bool) or not hasattr(number, "__index__") or not 0 <= (whole := index(number)) <= ID_MAX:
        raise InvalidArgument(why=f"{number!r} is not an id")
    return whole


def cache_options(options: dict[str, object]) -> pb.CacheOptions:
    """Return options as the wire has them; what is None stays unset, except a limit, where `no limit` is 0.

    Raises:
        InvalidArgument: naming what is unknown or out of range.
    """
    given = dict(options)
    found = pb.CacheOptions()
    _take_format(found, given)
    key_format = given.pop("key_format", None)
    if key_format is not None:
        if key_format not in ("utf8", "bytes"):
            raise InvalidArgument(why=f"key_format {key_format!r}: use utf8 or bytes")
        found.bytes_keys = key_format == "bytes"
    _take_lists(found, given)
    for name in ("events", "state", "before", "route_by_prefix", "wait_proceeds"):
        value = given.pop(name, None)
        if value is not None:
            setattr(found, name, bool(value))
    for name in ("retain_time_ms", "retain_bytes", "retain_events", "lifespan_ms", "wait_ms"):
        value = given.pop(name, None)
        if value is not None:
            if not isinstance(value, int) or not 0 <= value < 1 << 63:
                raise InvalidArgument(why=f"{name} is {value!r}: give a whole number, 0 for no limit")
            setattr(found, name, value)
    if given:
        raise InvalidArgument(why=f"unknown cache options: {', '.join(sorted(given))}")
    return found


def _take_lists(found: pb.CacheOptions, given: dict[str, object]) -> None:
    for name in ("promote", "wait_listeners"):
        value = given.pop(name, None)
        if value is not None:
            setattr(found, name, value if isinstance(value, str) else ",".join(map(str, value)))  # type: ignore[call-overload]  # a sequence


def _take_format(found: pb.CacheOptions, given: dict[str, object]) -> None:
    name = given.pop("format", None)
    if name is not None:
        number = _FORMAT_NUMBERS.get(str(name))
        if number is None:
            raise InvalidArgument(why=f"format {name!r}: use {', '.join(_FORMAT_NUMBERS)}")
        found.format = number
    schema = given.pop("schema", None)
    if schema is not None:
        found.schema = str(schema)


def cache_info(cache: pb.CacheDescription) -> CacheInfo:
    """Return a cache as callers see it."""
    options = cache.options
    return CacheInfo(
        name=cache.name,
        id=cache.id,
        format=_FORMATS[options.format],
        key_format="bytes" if options.bytes_keys else "utf8",
        events=options.events,
        state=options.state,
        before=options.before,
        retain_time_ms=options.retain_time_ms or None,
        retain_bytes=options.retain_bytes or None,
        retain_events=options.retain_events or None,
        lifespan_ms=options.lifespan_ms or None,
        route_by_prefix=options.route_by_prefix,
        promote=tuple(filter(None, options.promote.split(","))),
        wait_listeners=tuple(filter(None, options.wait_listeners.split(","))),
        wait_ms=options.wait_ms or None,
        wait_proceeds=options.wait_proceeds,
        schema=options.schema,
        from_id=cache.from_id,
    )
