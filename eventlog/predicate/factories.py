"""Named filters: Python that operators install on the servers as entry points `eventlog.filters`, and clients name, with parameters.

A client sends a name, a version and JSON; nothing that it sends is imported or executed. An entry point is an object with

    name, version       a version is a number from 1; several of one name may be installed, a listener keeps the one it began with
    description         a sentence for `eventlog filter list`
    parameters          a frozen dataclass (or msgspec.Struct, or TypedDict): names, types, defaults
    build(parameters, context) -> an object with mask(events) and, if it converts, project(events)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Protocol, get_type_hints, runtime_checkable

import msgspec
import numpy as np
import numpy.typing as npt

from eventlog.batch.columns import EventColumns
from eventlog.errors import BadFilterParameters, EventLogError, FilterNotFound, foreign
from eventlog.predicate.spec import FilterContext

GROUP = "eventlog.filters"
_SHOWN_MAX = 60


class Filter(Protocol):
    """What a factory builds. Its methods are pure, and are called from any thread.

    One that also has `project(events) -> list[bytes]` answers these bytes in place of the values.
    """

    def mask(self, events: EventColumns) -> npt.NDArray[np.bool_]:
        """Return which events match."""
        ...


@runtime_checkable
class FilterFactory(Protocol):
    """Builds filters from parameters."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> type: ...

    def build(self, parameters: Any, context: FilterContext) -> Filter:
        """Return a filter; may raise BadFilterParameters, and whatever else it raises becomes that."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterDescription:
    """One installed factory, or an entry point that could not be loaded: then `broken` says why."""

    name: str
    version: int
    description: str
    parameters: dict[str, str]
    broken: str = ""


class Factories:
    """Those that are installed here."""

    def __init__(self, factories: Iterable[FilterFactory], *, broken: Iterable[FilterDescription] = ()) -> None:
        self._factories = {(one.name, one.version): one for one in factories}
        self._broken = tuple(broken)

    def find(self, name: str, version: int) -> FilterFactory:
        """Return the factory of a name, for version 0 the newest.

        Raises:
            FilterNotFound: it is not installed here.
        """
        versions = [number for known, number in self._factories if known == name]
        wanted = max(versions, default=0) if version == 0 else version
        found = self._factories.get((name, wanted))
        if found is None:
            installed = ", ".join(f"{known}@{number}" for known, number in sorted(self._factories)) or "none"
            raise FilterNotFound(filter=name[:_SHOWN_MAX], version=version, installed=installed)
        return found

    def build(self, name: str, version: int, arguments: bytes, *, context: FilterContext) -> tuple[Filter, int]:
        """Return a filter and the version of its factory.

        Raises:
            FilterNotFound: the factory is not installed here.
            BadFilterParameters: they are not what it takes.
        """
        factory = self.find(name, version)
        parameters = _parameters(factory, arguments)
        try:
            return factory.build(parameters, context), factory.version
        except EventLogError:
            raise
        except BaseException as error:  # the edge to an operator's code, as a regular expression that is none; `sys.exit` is no end of ours
            raise BadFilterParameters(filter=name, parameter="", why=f"is refused: {foreign(error)}") from error

    def describe(self) -> list[FilterDescription]:
        """Return what is installed, by name and version."""
        found = [
            FilterDescription(name=one.name, version=one.version, description=one.description, parameters=_shown(one.parameters))
            for _, one in sorted(self._factories.items())
        ]
        return [*found, *self._broken]


@cache
def installed() -> Factories:
    """Return the factories of this Python environment, looked up once a process."""
    return load_factories(entry_points(group=GROUP))


def load_factories(points: Iterable[EntryPoint]) -> Factories:
    """Return the factories that entry points name; one that cannot be loaded, or is none, is described as broken."""
    found: list[FilterFactory] = []
    broken: list[FilterDescription] = []
    for point in points:
        try:
            loaded = point.load()
        except BaseException as error:  # noqa: BLE001 -- the edge to an operator's code, which runs as it is loaded
            why = f"{point.value}: {foreign(error)}"
            broken.append(FilterDescription(name=point.name, version=0, description="", parameters={}, broken=why))
            continue
        if isinstance(loaded, FilterFactory) and loaded.version > 0:
            found.append(loaded)
        else:
            why = f"{point.value} is no filter factory: it needs name, version (from 1), description, parameters and build"
            broken.append(FilterDescription(name=point.name, version=0, description="", parameters={}, broken=why))
    return Factories(found, broken=broken)


def _shown(parameters: type) -> dict[str, str]:
    return {name: getattr(kind, "__name__", str(kind)) for name, kind in get_type_hints(parameters).items()}


def _parameters(factory: FilterFactory, arguments: bytes) -> Any:
    """Return a factory's parameters; texts are taken for numbers and booleans too, which is what a command line has."""
    known = _shown(factory.parameters)
    try:
        given = msgspec.json.decode(arguments) if arguments else {}
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise BadFilterParameters(filter=factory.name, parameter="", why=f"is not JSON: {error}") from error
    if not isinstance(given, dict):
        raise BadFilterParameters(filter=factory.name, parameter="", why="must be an object of names and values")
    for name in given:
        if name not in known:
            takes = ", ".join(known) or "none"
            raise BadFilterParameters(filter=factory.name, parameter=name[:_SHOWN_MAX], why=f"is not known; it takes {takes}")
    for name, kind in get_type_hints(factory.parameters).items():
        if name in given:
            try:
                msgspec.convert(given[name], kind, strict=False)
            except (msgspec.ValidationError, ValueError) as error:
                expected = getattr(kind, "__name__", str(kind))
                raise BadFilterParameters(filter=factory.name, parameter=name, why=f"must be {expected}: {error}") from error
    try:
        return msgspec.convert(given, factory.parameters, strict=False)
    except (msgspec.ValidationError, ValueError) as error:
        missing = next((name for name in known if f"`{name}`" in str(error)), "")
        raise BadFilterParameters(filter=factory.name, parameter=missing, why=f"is wrong: {error}") from error
