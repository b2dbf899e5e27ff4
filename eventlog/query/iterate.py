"""Iteration: every entry once, whatever becomes of the nodes that it is read from. Nothing is read or sent here.

Of each segment that was begun, the last key is known, and as of which id it was read (`IterationProgress`). Segments are read one after
the other, so one key is all there is to remember, and one for each that somebody else reads at the same time. Keys of a segment only
rise, so no entry comes twice; an entry that was there all the time is met once.

An iteration is over all segments, those that the answering node leads, those that were named, or what a function says (`segments_in`). A
function is installed on the nodes as an entry point of the group `eventlog.scopes`: it gets the topology and parameters and returns
segments. Nothing that a client sends is executed. Sets of segments are sent as bits: segment i is bit i % 8 of byte i / 8.

The reader around it must:

1. note a batch (`IterationProgress.took`) in the same step as it hands the batch on: then a new start repeats nothing and skips nothing;
2. read a segment that was begun on after its last key, as of the id that it was read as of before, or a later one.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

import numpy as np

from eventlog.batch.entries import StateCursor
from eventlog.errors import BadMessage, EventLogError, InvalidArgument, foreign
from eventlog.limits import KEY_BYTES_MAX
from eventlog.topology import Topology

ID_MAX = (1 << 63) - 1
GROUP = "eventlog.scopes"
Scope = Callable[[Topology, Mapping[str, Any]], Iterable[int]]
BUILT_IN = ("global", "local", "segments")


def checked_cursor(cursor: StateCursor, *, of: int) -> StateCursor:
    """Return a cursor that came from outside. Raises BadMessage where it cannot be one of a cluster of `of` segments."""
    if cursor.segment >= of or cursor.pin > ID_MAX or len(cursor.key) > KEY_BYTES_MAX or (cursor.finished and cursor.key):
        raise BadMessage(why=f"no place in segment {cursor.segment} of {of}: a key of {len(cursor.key)} bytes as of {cursor.pin}")
    return cursor


class IterationProgress:
    """What is left of an iteration over some segments. `open` has a cursor for each that was begun."""

    def __init__(self, segments: Iterable[int], cursors: Iterable[StateCursor] = ()) -> None:
        self.left: dict[int, None] = dict.fromkeys(segments)
        self.open: dict[int, StateCursor] = {}
        self.took(cursors)

    @property
    def is_finished(self) -> bool:
        """Whether every segment was read to its end."""
        return not self.left

    @property
    def next(self) -> tuple[tuple[int, ...], StateCursor | None]:
        """Return the segments that are left in the order to read them in, and where the first was left if it was begun."""
        if not self.open:
            return tuple(self.left), None
        first, cursor = next(iter(self.open.items()))
        return (first, *(segment for segment in self.left if segment != first)), cursor

    def took(self, cursors: Iterable[StateCursor]) -> None:
        """Note what was handed on.

        Raises:
            BadMessage: it goes back, or is of a segment that is not, or no longer, read.
        """
        for cursor in cursors:
            before = self.open.get(cursor.segment)
            if cursor.segment not in self.left:
                raise BadMessage(why=f"entries of segment {cursor.segment}, which is not being read")
            if before is not None and (cursor.pin < before.pin or not (cursor.finished or cursor.key > before.key)):
                raise BadMessage(why=f"the iteration of segment {cursor.segment} goes back")
            if cursor.finished:
                self.open.pop(cursor.segment, None)
                del self.left[cursor.segment]
            else:
                self.open[cursor.segment] = cursor


def encode_segments(segments: Iterable[int], *, of: int) -> bytes:
    """Return the set; `of` is the number of segments of the cluster."""
    bits = np.zeros(of, np.uint8)
    bits[list(segments)] = 1
    return np.packbits(bits, bitorder="little").tobytes()


def decode_segments(data: bytes, *, of: int) -> tuple[int, ...]:
    """Return the segments of a set, rising. Bytes at the end that are zero may be left out; no bytes at all stand for every segment.

    Raises:
        BadMessage: a segment that the cluster does not have, or a set without any.
    """
    if not data:
        return tuple(range(of))
    if len(data) > -(-of // 8):
        raise BadMessage(why=f"a set of segments of {len(data)} bytes; {of} segments take {-(-of // 8)}")
    found = tuple(np.flatnonzero(np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little")).tolist())
    if not found:
        raise BadMessage(why="a set of no segments: leave it out to read all of them")
    if found[-1] >= of:
        raise BadMessage(why=f"segment {found[-1]} of {of}")
    return found


def segments_in(
    name: str, topology: Topology, *, asked: tuple[int, ...], number: int, custom: tuple[Scope | None, Mapping[str, Any]]
) -> tuple[int, ...]:
    """Return the segments of a scope, rising; `asked` narrows all of them but `segments`, which is `asked`.

    `number` is the node that answers; `custom` the function of a name that is not built in, and what to call it with.

    Raises:
        InvalidArgument: nobody installed a scope of this name, or its function refuses the parameters.
        BadMessage: a function returned what are not segments.
    """
    function, parameters = custom
    if name in {"", "global", "segments"}:
        return asked
    if name == "local":
        return tuple(segment for segment in asked if topology.primaries[segment] == number)
    if function is None:
        raise InvalidArgument(why=f"no scope {name!r} is installed here: use {', '.join(BUILT_IN)} or an entry point of {GROUP}")
    try:
        found: Collection[Any] = set(function(topology, parameters))
    except EventLogError:
        raise
    except BaseException as error:  # the edge to an operator's code
        raise InvalidArgument(why=f"scope {name!r} with these parameters: {foreign(error)}") from error
    bad = [segment for segment in found if type(segment) is not int or not 0 <= segment < topology.segments]
    if bad:
        raise BadMessage(why=f"scope {name!r} returned {bad[0]!r}, which is no segment of {topology.segments}")
    return tuple(segment for segment in asked if segment in found)
