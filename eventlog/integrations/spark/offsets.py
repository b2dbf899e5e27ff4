"""Where a streaming query stands: one id, which misses nothing over all segments, of one cache of one cluster. Pure.

Spark compares offsets as text, so the same place has to be the same text, byte for byte; and it keeps them in checkpoints for years.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from eventlog.errors import CacheRecreated, InvalidArgument, PositionMismatch
from eventlog.ids import ID_MAX

VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """What an id is one of."""

    cluster: str
    cache: str
    cache_id: int


def offset_of(id_: int, scope: Scope, *, after: int | None = None) -> dict[str, Any]:
    """Return a place as Spark keeps it: the keys in this order, the id as text, since JSON's numbers end at 2^53 elsewhere.

    `after`: behind which id a query begins, where that is ahead of the log's end, and in the end of its first micro-batch with rows.
    """
    found = {"v": VERSION, "cluster": scope.cluster, "cache": scope.cache, "cache_id": scope.cache_id, "id": str(id_)}
    return found if after is None else found | {"after": str(after)}


def id_of(offset: Mapping[str, Any], scope: Scope) -> int:
    """Return the id in an offset of this cluster and cache.

    Raises:
        PositionMismatch: it is of another one: the checkpoint belongs to another query.
        CacheRecreated: the cache was dropped, and there is another of its name.
        InvalidArgument: it is none, or of a later version.
    """
    if offset.get("v") != VERSION:
        raise InvalidArgument(why=f"an offset of version {offset.get('v')!r} in the checkpoint; this version of eventlog knows {VERSION}")
    for what, own in (("cluster", scope.cluster), ("cache", scope.cache)):
        if offset.get(what) != own:
            raise PositionMismatch(what=what)
    if offset.get("cache_id") != scope.cache_id:
        raise CacheRecreated(cache=scope.cache)
    return _id_in(offset, "id")


def after_of(start: Mapping[str, Any], end: Mapping[str, Any], scope: Scope) -> int:
    """Return behind which id the micro-batch between two offsets begins. Raises as `id_of`.

    Spark keeps ends alone. Where a query begins it asks anew when it does the first micro-batch again, and the answer may be another.
    """
    if start != end and "after" in end:
        return _id_in(end, "after")
    return max(id_of(start, scope), _id_in(start, "after") if "after" in start else 0)


def _id_in(offset: Mapping[str, Any], name: str) -> int:
    text = offset.get(name)
    if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= ID_MAX):
        raise InvalidArgument(why=f"the id {text!r} in the checkpoint is none")
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """What a source tells beside the end of the log: who can be asked about it, and what it has lost. No `segments`: all of them."""

    scope: Scope
    servers: tuple[str, ...]
    segments: tuple[int, ...]
    losses: int


def report_of(id_: int, reported: Reported) -> dict[str, Any]:
    """Return the end of the log as Spark shows it with its figures, and keeps it nowhere."""
    beside = {"servers": ",".join(reported.servers), "segments": list(reported.segments), "losses": reported.losses}
    return offset_of(id_, reported.scope) | beside


def reported_of(report: Mapping[str, Any]) -> Reported | None:
    """Return what `report_of` was given; None where it is something else, as the offset of another kind of source."""
    try:
        return Reported(
            scope=Scope(cluster=report["cluster"], cache=report["cache"], cache_id=report["cache_id"]),
            servers=tuple(report["servers"].split(",")),
            segments=tuple(report["segments"]),
            losses=int(report["losses"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


class Losses:
    """About how many events retention took before a query read them. Of one place it is told again and again, and as more each time."""

    def __init__(self) -> None:
        self._before = self._here = 0
        self._after = -1

    @property
    def events(self) -> int:
        """How many they are."""
        return self._before + self._here

    def saw(self, after: int, lost: int) -> None:
        """Take note that so many events behind an id are lost, at which the query stands now."""
        if after != self._after:
            self._before, self._here, self._after = self._before + self._here, 0, after
        self._here = max(self._here, lost)
