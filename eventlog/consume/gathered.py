"""What several nodes found for one reader with a filter, each in its own segments, as one answer cut where all of them got to."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from eventlog.batch.columns import columns_of_joined
from eventlog.batch.join import Joined
from eventlog.batch.layout import RUN
from eventlog.batch.views import decode_block
from eventlog.consume.answer import Answer
from eventlog.consume.cursor import SegmentEnds
from eventlog.consume.cut import Limits
from eventlog.consume.filtered import Matched, answer_of, passed, within
from eventlog.consume.position import OFFSET_UNKNOWN
from eventlog.errors import BadMessage

Ints = npt.NDArray[np.int64]
Changes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Gathered:
    """What one node found in `segments` up to the id `upto`, and where it left them; `joined` is None where nothing matched."""

    segments: Ints
    upto: int
    ends: SegmentEnds
    joined: Joined | None
    changes: Changes | None
    scanned_bytes: int = 0


def read_matched(body: bytes | memoryview, *, runs: int, has_changes: bool) -> tuple[Joined | None, Changes | None]:
    """Return the events of a joined part and what they are to a continuous query.

    Raises:
        BadMessage, CorruptData: the body is no such part.
    """
    if not runs:
        return None, None
    size = runs * RUN.itemsize
    table = np.frombuffer(body[:size], RUN) if size <= len(body) else np.zeros(0, RUN)
    events = int(table["count"].astype(np.int64).sum())
    noted = (events + 7) & ~7 if has_changes else 0
    if len(table) != runs or size + noted > len(body):
        raise BadMessage(why=f"{runs} runs do not fit a body of {len(body)} bytes")
    block = bytes(body[size + noted :])
    decoded = decode_block(block, where="answer")
    if decoded.count != events or decoded.nbytes != len(block):
        raise BadMessage(why=f"a block does not hold the {events} events of its runs and nothing else")
    changes = np.frombuffer(body[size : size + events], np.uint8) if has_changes else None
    return Joined(runs=table, block=block, events=events), changes


def merge_gathered(parts: Sequence[Gathered], *, limits: Limits) -> Answer:
    """Return one answer to a reader that stood at places in all the segments of `parts`."""
    top, scanned = min(part.upto for part in parts), sum(part.scanned_bytes for part in parts)
    found = [part for part in parts if part.joined is not None]
    if not found:
        return replace(passed(top, ends=_ends(parts, top)), scanned_bytes=scanned)
    events = columns_of_joined([part.joined for part in found if part.joined is not None])
    noted = [part.changes for part in found if part.changes is not None]
    changes = np.concatenate(noted) if noted else None
    rows = np.flatnonzero(events.ids <= top)
    rows = rows[np.argsort(events.segments[rows], kind="stable")]
    merged = within(Matched(events=events.take(rows), upto=top, changes=None if changes is None else changes[rows]), limits)
    return replace(answer_of(merged, None, ends=None), ends=_ends(parts, merged.upto), scanned_bytes=scanned)


def _ends(parts: Sequence[Gathered], cut: int) -> SegmentEnds:
    """Return where the reader stands: known where a part ends at the cut, else nobody has counted what lies before it."""
    segments: list[int] = []
    offsets: list[int] = []
    epochs: list[int] = []
    for part in parts:
        if part.upto == cut:
            segments += part.ends.segments
            offsets += part.ends.next_offsets
            epochs += part.ends.epochs
        else:
            segments += part.segments.tolist()
            offsets += [OFFSET_UNKNOWN] * len(part.segments)
            epochs += [0] * len(part.segments)
    return SegmentEnds(segments, offsets, epochs)
