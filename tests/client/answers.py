"""Answers to readers, made from events that a test chose."""

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.layout import RUN, ValueHead, encode_value
from eventlog.client.reading.batches import EventBatch
from eventlog.events import Event, EventSource
from eventlog.ids import ID_STEP
from eventlog.wire.eventlog_pb2 import Part, PollAnswer

CACHE = 7
SOURCE = EventSource(cache="c", cache_id=CACHE, cluster="x", text_keys=True, json_values=False)


@dataclass(frozen=True)
class Row:
    """One event of an answer."""

    id: int
    segment: int
    offset: int
    kind: int
    key: bytes
    value: bytes
    before: bytes = b""
    headers: bytes = b""
    epoch: int = 3

    def event(self, *, has_before: bool) -> Event:
        """The event that a reader should get."""
        return Event(
            id=self.id,
            kind_number=self.kind,
            key_bytes=self.key,
            value_bytes=self.value,
            segment=self.segment,
            offset=self.offset,
            source=SOURCE,
            before_bytes=self.before if has_before and self.kind else None,
            header_bytes=self.headers,
        )


def columns(rows: list[Row]) -> Columns:
    return Columns(
        kinds=np.array([row.kind for row in rows], np.uint8),
        keys=[row.key for row in rows],
        values=[row.value for row in rows],
        before=[row.before for row in rows] if any(row.before for row in rows) else None,
        headers=[row.headers for row in rows] if any(row.headers for row in rows) else None,
    )


def block(rows: list[Row]) -> bytes:
    built, _ = build_blocks(columns(rows), np.array([len(rows)]))
    return bytes(built)


def runs_of(rows: list[Row]) -> list[list[Row]]:
    """Neighbours of one segment whose ids and offsets follow each other."""
    runs: list[list[Row]] = []
    for row in rows:
        last = runs[-1][-1] if runs else None
        if last and (last.segment, last.id + ID_STEP, last.offset + 1, last.epoch) == (row.segment, row.id, row.offset, row.epoch):
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs


def joined(answer: PollAnswer, rows: list[Row]) -> bytes:
    """Add a JOINED part."""
    ordered = sorted(rows, key=lambda row: (row.segment, row.id))
    runs = runs_of(ordered)
    table = np.zeros(len(runs), RUN)
    for name, column in {
        "segment": [run[0].segment for run in runs],
        "count": [len(run) for run in runs],
        "base": [run[0].id for run in runs],
        "first_offset": [run[0].offset for run in runs],
        "epoch": [run[0].epoch for run in runs],
    }.items():
        table[name] = column
    data = table.tobytes() + block(ordered)
    answer.parts.add(form=Part.JOINED, length=len(data), runs=len(runs), events=len(ordered))
    return data


def stored(answer: PollAnswer, rows: list[Row], *, sections: int = 2) -> bytes:
    """Add a STORED part: one run of one segment, as several sections."""
    assert len(runs_of(rows)) == 1
    parts = [part.tolist() for part in np.array_split(np.arange(len(rows)), sections) if len(part)]
    blocks = [block([rows[index] for index in part]) for part in parts]
    head = ValueHead(
        flags=0,
        sections=len(blocks),
        epoch=rows[0].epoch,
        count=len(rows),
        bitmap=0,
        kinds=0,
        producers=0,
        base=rows[0].id,
        first_offset=rows[0].offset,
    )
    data = encode_value(head, segment=rows[0].segment, cache=CACHE, sections=blocks)
    answer.parts.add(form=Part.STORED, length=len(data), segment=rows[0].segment, events=len(rows))
    return data


def make(*parts: tuple[str, list[Row]]) -> tuple[PollAnswer, memoryview]:
    """An answer of parts in this order."""
    answer = PollAnswer(last_id=max((row.id for _, rows in parts for row in rows), default=0) + 5)
    data = b"".join((joined if form == "joined" else stored)(answer, rows) for form, rows in parts)
    return answer, memoryview(data)


def rows_of(batch: EventBatch) -> list[Event]:
    return list(batch.events())


def numbered(rows: list[Row]) -> list[Row]:
    """The same rows with dense offsets within each segment."""
    offsets: dict[int, int] = {}
    found = []
    for row in sorted(rows, key=lambda row: row.id):
        found.append(replace(row, offset=offsets.get(row.segment, 10)))
        offsets[row.segment] = offsets.get(row.segment, 10) + 1
    return found


small = st.binary(max_size=12)


@st.composite
def logs(draw: st.DrawFn) -> list[list[Row]]:
    """Groups as a node commits them: each one run of ids, laid out segment by segment; runs of other nodes may lie between."""
    base, groups = 1 << 30, []
    for _ in range(draw(st.integers(1, 5))):
        segments = sorted(draw(st.lists(st.integers(0, 3), min_size=1, max_size=12)))
        base += draw(st.integers(0, 3)) * ID_STEP + draw(st.sampled_from((0, 0, 1)))
        group = []
        for segment in segments:
            kind = draw(st.integers(0, 3))
            value = draw(small) if kind < 2 else b""
            group.append(Row(base, segment, 0, kind, draw(small), value, draw(small), draw(small)))
            base += ID_STEP
        groups.append(group)
    flat = numbered([row for group in groups for row in group])
    sizes = np.cumsum([0] + [len(group) for group in groups]).tolist()
    return [flat[low:high] for low, high in pairwise(sizes)]
