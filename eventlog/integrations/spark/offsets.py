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


def offset_of(id_: int, scope: Scope) -> dict[str, Any]:
    """Return a place as Spark keeps it: the keys in this order, the id as text, since JSON's numbers end at 2^53 elsewhere."""
    return {"v": VERSION, "cluster": scope.cluster, "cache": scope.cache, "cache_id": scope.cache_id, "id": str(id_)}


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
    text = offset.get("id")
    if not (isinstance(text, str) and text.isascii() and text.isdigit() and len(text) < 20 and int(text) <= ID_MAX):
        raise InvalidArgument(why=f"the id {text!r} in the checkpoint is none")
    return int(text)
