"""The token of a position as one JSON object: what people read, edit and keep in files.

Ids are strings: they pass 2^53, which many readers of JSON round. Fields that say nothing are left out.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import numpy as np
import orjson

from eventlog.consume.position import (
    ID_MAX,
    OFFSET_UNKNOWN,
    Acknowledged,
    Position,
    SegmentPositions,
    Step,
    bad_token,
    checked,
)
from eventlog.consume.token import VERSION
from eventlog.limits import SEGMENTS_MAX


def to_json(position: Position) -> bytes:
    """Return the token as one JSON object."""
    at = position.at
    found: dict[str, Any] = {"v": VERSION, "cluster": position.cluster, "cache": position.cache_id, "segments": position.segments}
    if isinstance(at, SegmentPositions):
        if len(at.of) != position.segments:
            found["of"] = at.of.tolist()
        found |= {"ids": [str(id_) for id_ in at.ids.tolist()], "offsets": at.offsets.tolist(), "epochs": at.epochs.tolist()}
    else:
        found["id"] = str(at)
    if position.steps:
        found["steps"] = [[step.segment, urlsafe_b64encode(step.key).decode(), str(step.pin)] for step in position.steps]
    if position.acknowledged:
        found["acknowledged"] = [[done.segment, str(done.first), str(done.last)] for done in position.acknowledged]
    if position.unread:
        found["unread"] = list(position.unread)
    return orjson.dumps(found)


def from_json(data: bytes | str) -> Position:
    """Return the position of a JSON token.

    Raises:
        BadMessage: not one; an unknown or missing field, a number out of range, an id that is not a canonical string.
    """
    try:
        found = orjson.loads(data)
        if not isinstance(found, dict) or _whole(found.pop("v")) != VERSION:
            raise bad_token("not an object of version 1")
        position = _from_fields(found)
        if found:
            raise bad_token(f"unknown fields {', '.join(sorted(found))}")
    except (ValueError, TypeError, KeyError, OverflowError) as error:
        raise bad_token(f"{type(error).__name__} {error}") from error
    return checked(position)


def _from_fields(found: dict[str, Any]) -> Position:
    """Take the fields out of `found`; whatever is left in it does not belong there."""
    cluster, segments = found.pop("cluster"), _whole(found.pop("segments"))
    if not isinstance(cluster, str) or not 1 <= segments <= SEGMENTS_MAX:
        raise bad_token("its cluster or number of segments is out of range")
    return Position(
        cluster=cluster,
        cache_id=_whole(found.pop("cache")),
        segments=segments,
        at=_id(found.pop("id")) if "id" in found else _segments_from(found, segments),
        steps=tuple(Step(segment=_whole(segment), key=_key(key), pin=_id(pin)) for segment, key, pin in _taken(found, "steps")),
        acknowledged=tuple(
            Acknowledged(segment=_whole(segment), first=_id(first), last=_id(last))
            for segment, first, last in _taken(found, "acknowledged")
        ),
        unread=tuple(_whole(segment) for segment in _taken(found, "unread")),
    )


def _segments_from(found: dict[str, Any], segments: int) -> SegmentPositions:
    of = _subset(found.pop("of"), segments) if "of" in found else list(range(segments))
    ids, offsets = [_id(id_) for id_ in found.pop("ids")], [_offset(offset) for offset in found.pop("offsets")]
    epochs = [_whole(epoch) for epoch in found.pop("epochs")]
    if not len(of) == len(ids) == len(offsets) == len(epochs):
        raise bad_token("its segments, ids, offsets and epochs do not fit each other")
    return SegmentPositions(
        of=np.array(of, np.int64), ids=np.array(ids, np.int64), offsets=np.array(offsets, np.int64), epochs=np.array(epochs, np.int64)
    )


def _subset(of: Any, segments: int) -> list[int]:
    found = [_whole(segment) for segment in of]
    if len(found) >= segments:
        raise bad_token("it lists all segments, or more")
    return found


def _taken(found: dict[str, Any], name: str) -> list[Any]:
    if name not in found:
        return []
    rows = found.pop(name)
    if not isinstance(rows, list) or not rows:
        raise bad_token(f"its {name} are no list, or an empty one")
    return rows


def _whole(value: Any) -> int:
    if type(value) is not int or not 0 <= value <= ID_MAX:
        raise ValueError(f"{value!r} is not a number in range")
    return value


def _offset(value: Any) -> int:
    return OFFSET_UNKNOWN if type(value) is int and value == OFFSET_UNKNOWN else _whole(value)


def _id(value: Any) -> int:
    if not isinstance(value, str) or not value.isascii() or not value.isdigit() or str(int(value)) != value:
        raise ValueError(f"{value!r} is not an id in decimal")
    return _whole(int(value))


def _key(value: Any) -> bytes:
    key = urlsafe_b64decode(value)
    if urlsafe_b64encode(key).decode() != value:
        raise ValueError("a key is not base64url")
    return key
