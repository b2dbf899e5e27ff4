"""One answer to a reader with a filter: of the events up to a cut those that match, and where the reader stands then.

Stored values whose header says that no event of theirs can match are left aside unread. The rest is judged as columns, in windows by
id where judging is expensive, so that a reader that takes little does not have much judged. The place behind the cut is the same whether
or not anything matched.

What several nodes found, each in its own segments (`Gathered`), becomes one answer cut where all of them got to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.column_file import ColumnFile
from eventlog.batch.columns import EventColumns, columns_of_joined, columns_of_values, join_events
from eventlog.batch.join import Joined, indexes_within
from eventlog.batch.layout import RUN
from eventlog.batch.views import decode_block
from eventlog.errors import BadMessage
from eventlog.ids import ID_STEP
from eventlog.predicate.spec import CompiledFilter
from eventlog.read.answer import NO_LIMIT, Answer, Limits, Part, StoredValues, ends_of
from eventlog.read.cursor import Cursor, SegmentEnds
from eventlog.read.position import OFFSET_UNKNOWN

WINDOW_EVENTS = 4_096
_WINDOW_TIMES = 2  # the first window against the events that are wanted at most
_WINDOW_GROWTH = 4
Changes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matched:
    """Events that match, all there are up to the id `upto`; `changes` where the filter is a continuous query's."""

    events: EventColumns
    upto: int
    changes: npt.NDArray[np.uint8] | None


def filter_answer(
    values: StoredValues,
    *,
    cursor: Cursor,
    top: int,
    limits: Limits,
    matches: CompiledFilter,
    only: Ints | None = None,
    window_events: int = WINDOW_EVENTS,
) -> Answer:
    """Return what follows `cursor` among `values` and matches, no further than `top` and within `limits`.

    `values` hold every event of the asked segments, at least of those in `only`, between the cursor and `top`. Where judging is costly
    it is done in windows, the first of `window_events`.
    """
    after, asked = cursor.after(values.segments)
    lows, highs = indexes_within(values.bases, values.counts, after=after, until=top)
    rows = (highs > lows if asked is None else (highs > lows) & asked).nonzero()[0]
    rows = rows[values.segments[rows].argsort(kind="stable")]
    scanned = int(values.sizes[rows].sum())
    bases, lasts = values.bases[rows], values.bases[rows] + (values.counts[rows] - 1) * ID_STEP
    candidates = rows[matches.may_match(kinds=kinds_of(values, rows), segments=values.segments[rows], bases=bases, lasts=lasts)]
    if only is not None:
        candidates = candidates[np.isin(values.segments[candidates], only)]
    if not len(candidates):
        return replace(passed(top, ends=_ends(values, rows, cursor, after=after, upto=top)), scanned_bytes=scanned)
    floor = after if isinstance(after, int) else after[candidates]
    events = columns_of_values(values.packed(candidates), after=floor, until=top)
    matched = within(judge(events, matches, top=top, limits=limits, window_events=window_events), limits)
    found = answer_of(matched, matches, ends=_ends(values, rows, cursor, after=after, upto=matched.upto), without=limits.without)
    return replace(found, scanned_bytes=scanned)


def filter_file(
    file: ColumnFile, *, cursor: Cursor, top: int, limits: Limits, matches: CompiledFilter, trimmed: Ints, only: Ints | None = None
) -> Answer:
    """Return the same from a file that holds every event of the asked segments between the cursor and `top`.

    Of its columns only those are read that judging asks for, and of the rest what matches. What retention has removed since the file
    was made, in each segment up to an id of `trimmed`, is left out.
    """
    runs = file.runs
    after, asked = cursor.after(runs.segments)
    after = np.maximum(after, trimmed[runs.segments])
    lows, highs = indexes_within(runs.bases, runs.counts, after=after, until=top)
    wanted = highs > lows if asked is None else (highs > lows) & asked
    passing = wanted.nonzero()[0]
    kinds, lasts = np.full(len(wanted), file.contents.kinds, np.uint8), runs.bases + (runs.counts - 1) * ID_STEP
    wanted = wanted & matches.may_match(kinds=kinds, segments=runs.segments, bases=runs.bases, lasts=lasts)
    if only is not None:
        wanted &= np.isin(runs.segments, only)

    def ends(upto: int) -> SegmentEnds | None:
        if cursor.asked is None:
            return None
        _, reached = indexes_within(runs.bases, runs.counts, after=after, until=upto)
        rows = passing[reached[passing] > lows[passing]]
        last = rows[np.diff(runs.segments[rows], append=-1).nonzero()[0]]
        return SegmentEnds(runs.segments[last].tolist(), (runs.first_offsets + reached)[last].tolist(), runs.epochs[last].tolist())

    if not np.count_nonzero(wanted):
        return replace(passed(top, ends=ends(top)), scanned_bytes=file.nbytes)
    events: EventColumns = file.events()
    if not (np.count_nonzero(wanted) == len(wanted) and not np.count_nonzero(highs - lows != runs.counts)):
        events = events.take(_rows_of(file, wanted.nonzero()[0], lows=lows, highs=highs))
    matched = within(judge(events, matches, top=top, limits=limits), limits)
    found = answer_of(matched, matches, ends=ends(matched.upto), without=limits.without)
    return replace(found, scanned_bytes=file.nbytes)


def one_of(answers: Sequence[Answer]) -> Answer:
    """Return answers, each of which goes on where the one before it ended, as one."""
    if len(answers) == 1:
        return answers[0]
    found = [answer for answer in answers if answer.events]
    return Answer(
        upto=answers[-1].upto,
        events=sum(answer.events for answer in found),
        first_id=found[0].first_id if found else 0,
        last_id=found[-1].last_id if found else 0,
        parts=tuple(part for answer in found for part in answer.parts),
        body=tuple(piece for answer in found for piece in answer.body),
        ends=_ends_of(answers),
        nbytes=sum(answer.nbytes for answer in found),
        scanned_bytes=sum(answer.scanned_bytes for answer in answers),
    )


def _ends_of(answers: Sequence[Answer]) -> SegmentEnds | None:
    last: dict[int, tuple[int, int]] = {}
    for ends in [answer.ends for answer in answers if answer.ends is not None]:
        last.update(zip(ends.segments, zip(ends.next_offsets, ends.epochs, strict=True), strict=True))
    if not last:
        return None
    return SegmentEnds(list(last), [offset for offset, _ in last.values()], [epoch for _, epoch in last.values()])


def _rows_of(file: ColumnFile, runs: Ints, *, lows: Ints, highs: Ints) -> Ints:
    """Return the rows of events `[lows, highs)` of some of the runs."""
    counts = highs[runs] - lows[runs]
    ends = counts.cumsum()
    rows: Ints = (file.starts[runs] + lows[runs] - (ends - counts)).repeat(counts) + np.arange(int(ends[-1]))
    return rows


def passed(upto: int, *, ends: SegmentEnds | None) -> Answer:
    """Return the answer that holds nothing up to `upto`, where the reader stands at `ends`."""
    return Answer(upto=upto, events=0, first_id=0, last_id=0, parts=(), body=(), ends=ends, nbytes=0)


def kinds_of(values: StoredValues, rows: Ints) -> npt.NDArray[np.uint8]:
    """Return from the headers of values which kinds they hold, as bits; all where that was not noted."""
    found = values.kinds(rows)
    return np.where(found == 0, np.uint8(255), found)


def judge(events: EventColumns, matches: CompiledFilter, *, top: int, limits: Limits, window_events: int = WINDOW_EVENTS) -> Matched:
    """Return the events that match, all up to `top` or, sooner, up to where `limits` are reached; the first window has so many events."""
    count = len(events)
    first = max(window_events, _WINDOW_TIMES * min(limits.events, count))
    if not matches.is_costly or count <= first * _WINDOW_TIMES:
        rows, changes = _judge(events, matches)
        return Matched(events=events.take(rows), upto=top, changes=changes)
    found: list[Ints] = []
    noted: list[npt.NDArray[np.uint8]] = []
    low, taken, nbytes = 0, 0, 0
    for high in (*_bounds(events.ids, first), top):
        window = ((events.ids > low) & (events.ids <= high)).nonzero()[0]
        part = events.take(window)
        rows, changes = _judge(part, matches)
        found.append(window[rows])
        if changes is not None:
            noted.append(changes)
        low, taken = high, taken + len(rows)
        nbytes += int(weights(part.take(rows)).sum()) if limits.nbytes != NO_LIMIT else 0
        if taken >= limits.events or nbytes >= limits.nbytes:
            break
    rows = np.concatenate(found)
    order = rows.argsort(kind="stable")
    return Matched(events=events.take(rows[order]), upto=low, changes=np.concatenate(noted)[order] if noted else None)


def _judge(events: EventColumns, matches: CompiledFilter) -> tuple[Ints, npt.NDArray[np.uint8] | None]:
    if not matches.spec.continuous:
        return matches.mask(events).nonzero()[0], None
    changes = matches.changes(events)
    rows = changes.nonzero()[0]
    return rows, changes[rows]


def _bounds(ids: Ints, first: int) -> Sequence[int]:
    """Return ids up to which so many events lie, then each time as many again times `_WINDOW_GROWTH`."""
    places, size = [], first
    at = first - 1
    while at < len(ids) - 1:
        places.append(at)
        size *= _WINDOW_GROWTH
        at += size
    ordered = np.partition(ids, places) if places else ids
    found: list[int] = [int(ordered[place]) for place in places]
    return found


def within(matched: Matched, limits: Limits) -> Matched:
    """Return as many of the events as `limits` allow, at least one if there is any; they end at one id."""
    events, count = matched.events, len(matched.events)
    sizes = weights(events)
    if count <= limits.events and (limits.nbytes == NO_LIMIT or int(sizes.sum()) <= limits.nbytes):
        return matched
    order = events.ids.argsort(kind="stable")
    fitting = int(sizes[order].cumsum().searchsorted(limits.nbytes, side="right"))
    taken = max(1, min(count, limits.events, fitting))
    if taken == count:
        return matched
    cut = int(events.ids[order[taken - 1]])
    kept = events.ids <= cut
    return Matched(events=events.take(kept), upto=cut, changes=None if matched.changes is None else matched.changes[kept])


def weights(events: EventColumns) -> Ints:
    """Return the bytes that each event counts for."""
    sizes = events.keys.sizes + events.values.sizes
    return sizes if events.before is None else sizes + events.before.sizes


def answer_of(
    matched: Matched, matches: CompiledFilter | None, *, ends: SegmentEnds | None, without: frozenset[str] = frozenset()
) -> Answer:
    """Return the answer with these events, their values as `matches` projects them, and nothing of the columns in `without`."""
    events = matched.events
    if not len(events):
        return passed(matched.upto, ends=ends)
    if matches is None:
        joined = join_events(events, without=without)
    else:
        keeps_before = matches.keeps_before and "before" not in without
        values = None if "value" in without else matches.project(events)
        before = matches.project(events, image="before") if keeps_before else None
        joined = join_events(events, values=values, before=before, keeps_before=keeps_before, without=without)
    notes: tuple[bytes, ...] = ()
    if matched.changes is not None:
        notes = (matched.changes.tobytes() + bytes(-len(matched.changes) & 7),)
    body = (joined.runs.tobytes(), *notes, joined.block)
    nbytes = sum(map(len, body))
    part = Part(length=nbytes, runs=len(joined.runs), segment=0, events=joined.events, has_changes=bool(notes))
    return Answer(
        upto=matched.upto,
        events=joined.events,
        first_id=int(events.ids.min()),
        last_id=int(events.ids.max()),
        parts=(part,),
        body=body,
        ends=ends,
        nbytes=nbytes,
    )


def _ends(values: StoredValues, rows: Ints, cursor: Cursor, *, after: int | Ints, upto: int) -> SegmentEnds | None:
    """Return where the reader stands in each segment of `rows`, sorted by segment, once everything up to `upto` has passed."""
    if cursor.asked is None:
        return None
    lows, highs = indexes_within(values.bases, values.counts, after=after, until=upto)
    passed_rows = rows[highs[rows] > lows[rows]]
    return ends_of(values, passed_rows, highs) if len(passed_rows) else None


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
        return replace(passed(top, ends=_ends_of_all(parts, top)), scanned_bytes=scanned)
    events = columns_of_joined([part.joined for part in found if part.joined is not None])
    noted = [part.changes for part in found if part.changes is not None]
    changes = np.concatenate(noted) if noted else None
    rows = np.flatnonzero(events.ids <= top)
    rows = rows[np.argsort(events.segments[rows], kind="stable")]
    merged = within(Matched(events=events.take(rows), upto=top, changes=None if changes is None else changes[rows]), limits)
    return replace(answer_of(merged, None, ends=None, without=limits.without), ends=_ends_of_all(parts, merged.upto), scanned_bytes=scanned)


def _ends_of_all(parts: Sequence[Gathered], cut: int) -> SegmentEnds:
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
