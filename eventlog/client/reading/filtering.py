"""What a reader wants of the events, as callers say it and as it is asked for. Pure."""

import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from eventlog.client.values import CacheInfo, checked_flag, checked_text
from eventlog.errors import InvalidArgument
from eventlog.schema.strict_json import plain
from eventlog.wire.eventlog_pb2 import Filter, FilterDescription

if TYPE_CHECKING:
    from eventlog.predicate.compile import Compiled

Parameters = Sequence[Any] | Mapping[str, Any]
Select = str | Sequence[str]
_NAMED = re.compile(r"(?P<name>[^@]+)(?:@(?P<version>[0-9]{1,9}))?")


def filter_of(
    *,
    where: str | None = None,
    parameters: Parameters | None = None,
    select: Select | None = None,
    filter: str | None = None,
    params: Mapping[str, Any] | None = None,
    continuous: bool = False,
) -> Filter | None:
    """Return a filter as requests carry it, None where everything is wanted as it is.

    `parameters` are the values of the placeholders in `where`, `params` those of the factory `filter`, which may be named with a
    version as in `name@2`. `select` names fields of the value, as a list or with commas between them.

    Raises:
        InvalidArgument: parameters without what they are for or that JSON cannot hold, or a name or version that cannot be.
    """
    for name, given in (("where", where), ("filter", filter)):
        if given is not None:
            checked_text(name, given)
    if continuous is not False:
        continuous = checked_flag("continuous", continuous)
    if parameters and where is None:
        raise InvalidArgument(why="parameters are the values of placeholders in where, and there is no where")
    if params and filter is None:
        raise InvalidArgument(why="params are those of a filter, and none is named")
    fields = [] if select is None else _fields(select)
    if where is None and filter is None and not fields and not continuous:
        return None
    named = _NAMED.fullmatch(filter or "")
    if filter is not None and named is None:
        raise InvalidArgument(why=f"filter {filter!r}: give a name, and after @ the number of a version, as in name@2")
    if where is not None and not where.strip():
        raise InvalidArgument(why="where is empty: leave it out, or give a condition")
    return Filter(
        where=where or "",
        parameters=json_of(parameters),
        select=fields,
        name="" if named is None else named["name"],
        version=0 if named is None else int(named["version"] or 0),
        arguments=json_of(params),
        continuous=continuous,
    )


def compiled_here(chosen: Filter, info: CacheInfo) -> "Compiled":
    """Return a filter that names no installed one, to be evaluated by this process as a node would.

    Raises:
        BadPredicate: it does not fit the cache.
    """
    from eventlog.predicate.compile import compile_filter  # noqa: PLC0415 -- a parser of SQL takes a third of a second to load
    from eventlog.predicate.spec import FilterContext, FilterSpec  # noqa: PLC0415 -- likewise

    context = FilterContext(
        format=info.format,
        text_keys=info.key_format == "utf8",
        before=info.before and info.state,
        avro_schema=info.schema or None,
    )
    return compile_filter(FilterSpec(where=chosen.where, parameters=chosen.parameters, select=tuple(chosen.select)), context)


def _fields(select: Select) -> list[str]:
    if not isinstance(select, Iterable):
        raise InvalidArgument(why=f"select is {select!r:.60}: name fields of the value, as a text with commas or a list")
    fields: Sequence[object] = select.split(",") if isinstance(select, str) else list(select)
    found = [checked_text("select", field).strip() for field in fields if isinstance(field, str)]
    if len(found) < len(fields) or not all(found):
        raise InvalidArgument(why=f"select {select!r}: name fields of the value, with commas between them")
    return found


def json_of(values: Parameters | None) -> bytes:
    """Return parameters as requests carry them, empty for none. Raises InvalidArgument where JSON cannot hold them."""
    if not values:
        return b""
    try:
        return msgspec.json.encode(_plain(values))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument(why=f"JSON cannot hold the parameters: {error}") from error


def _plain(value: Any) -> Any:
    """Return a parameter as JSON has it; bytes as `{"base64": ...}`, a set as the list that it is for `IN`.

    Raises:
        Misfit: JSON has nothing for it.
    """
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    return plain(value)


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterInfo:
    """A named filter as one node has it: the types of its parameters, and what it does."""

    node: str
    name: str
    version: int
    parameters: dict[str, str]
    summary: str


def filter_info(found: FilterDescription) -> FilterInfo:
    """Return a filter as callers see it."""
    return FilterInfo(
        node=found.node,
        name=found.name,
        version=found.version,
        parameters=msgspec.json.decode(found.parameters or b"{}", type=dict[str, str]),
        summary=found.summary,
    )
