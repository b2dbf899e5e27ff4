"""What a signal asks of mirrors, and how far a shard is with it: entries told among the events that follow, a few at a time. Pure.

A signal is an event of the cache `__signals`. For it a shard tells each entry whose version it has told already, or will never tell; any
other comes by itself, as the event that made it. So a row is what a reader of the topic has for its key at that place, never older:

- what is read of the entries holds at least what the shard has told of the segment, up to `at`;
- an entry above `at` is left out: its event is told later;
- one at or below it is the last of its key up to there.

Entries are read in the order of their keys, each time as of now, so nothing is held between two reads, and a place is a segment and a key.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final

import msgspec
import numpy as np

from eventlog.arrays import Ints, Mask
from eventlog.errors import InvalidArgument
from eventlog.read.position import OFFSET_UNKNOWN, PinStep, Position, SegmentPositions

TYPE: Final = "execute-snapshot"
_KIND: Final = "incremental"
_COLLECTIONS: Final = "data-collections"
_NAME_CHARACTERS_MAX: Final = 255
_CACHES_MAX: Final = 100  # of one signal: signals are remembered


def caches_of(value: bytes) -> tuple[str, ...]:
    """Return the caches whose entries a signal asks for.

    Raises:
        InvalidArgument: it asks for something else, or for nothing; says what it may ask for.
    """
    try:
        found: Any = msgspec.json.decode(value)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(why=f"it is no JSON: {error}") from error
    if not isinstance(found, dict) or found.get("type") != TYPE:
        raise InvalidArgument(why=f'only the type "{TYPE}" is known')
    data = found.get("data")
    names = data.get(_COLLECTIONS) if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(names, list) or not names or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(why=f'"data" has to name caches: {{"{_COLLECTIONS}": [CACHE]}}')
    if str(data.get("type", _KIND)).lower() != _KIND:
        raise InvalidArgument(why=f'only a snapshot of the type "{_KIND}" can be had')
    if more := sorted(data.keys() - {_COLLECTIONS, "type"}):
        raise InvalidArgument(why=f'"data" has {", ".join(map(repr, more))[:200]}, which is not known: all entries are told')
    if len(names) > _CACHES_MAX or max(map(len, names)) > _NAME_CHARACTERS_MAX:
        raise InvalidArgument(why=f"it names more than {_CACHES_MAX} caches, or one by more than {_NAME_CHARACTERS_MAX} characters")
    return tuple(names)


def beginning(*, cluster: str, cache_id: int, segments: int, of: Ints) -> Position:
    """Return the place before the first entry of the segments `of`."""
    return _place(cluster=cluster, cache_id=cache_id, segments=segments, of=of, unread=of.tolist())


def asked_at(position: Position, at: SegmentPositions) -> Position:
    """Return where to read on, as of no earlier than what was told up to `at`."""
    begun = _begun(position)
    steps = () if begun is None else (replace(begun, pin=_told(at, begun.segment)),)
    assert isinstance(position.at, SegmentPositions), "a read of entries has places"
    return replace(
        _place(
            cluster=position.cluster,
            cache_id=position.cache_id,
            segments=position.segments,
            of=position.at.of,
            unread=position.unread,
        ),
        steps=steps,
    )


def is_behind(found: Position, at: SegmentPositions, *, before: Position) -> bool:
    """Return whether something of what was read may be older than what was told up to `at`."""
    assert isinstance(found.at, SegmentPositions), "a read of entries has places"
    begun = _begun(found)
    if begun is not None and begun.pin < _told(at, begun.segment):
        return True
    done = np.isin(found.at.of, list(set(before.unread) - set(found.unread)))
    return bool((found.at.ids < at.ids)[done].any())


def told_rows(segments: Ints, ids: Ints, at: SegmentPositions) -> Mask:
    """Return which entries are told now: those that no event tells later."""
    found: Mask = ids <= at.ids[at.of.searchsorted(segments)]
    return found


def _begun(position: Position) -> PinStep | None:
    """Return the last step of the segment that was read in part."""
    return max((step for step in position.steps if step.segment in position.unread), default=None)


def _told(at: SegmentPositions, segment: int) -> int:
    return int(at.ids[at.of.searchsorted(segment)])


def _place(*, cluster: str, cache_id: int, segments: int, of: Ints, unread: Iterable[int]) -> Position:
    zeros = np.zeros(len(of), np.int64)
    at = SegmentPositions(of=of, ids=zeros, offsets=np.full(len(of), OFFSET_UNKNOWN, np.int64), epochs=zeros)
    return Position(cluster=cluster, cache_id=cache_id, segments=segments, at=at, unread=tuple(unread))
