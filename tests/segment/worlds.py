"""A small log with state, written group by group as a primary would, for tests of what reads it back."""

from dataclasses import dataclass, field

import numpy as np

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.entries import encode_entry
from eventlog.batch.layout import ValueHead, encode_value
from eventlog.errors import EventLogError
from eventlog.events import Kind
from eventlog.ids import ID_STEP
from eventlog.segment import keys
from eventlog.segment.port import Store, StoreEnds
from eventlog.segment.recovery import Recovery
from eventlog.segment.retention import OwnStep

Change = tuple[bytes, bytes | None]  # key, value; None removes


def stored_value(segment: int, cache: int, changes: list[Change], *, base: int, offset: int, epoch: int = 1) -> bytes:
    kinds = np.array([Kind.REMOVED if value is None else Kind.CREATED for _, value in changes], np.uint8)
    columns = Columns(kinds=kinds, keys=[key for key, _ in changes], values=[value or b"" for _, value in changes])
    blocks = [build_blocks(columns, np.array([len(changes)]))[0]] if changes else []
    head = ValueHead(
        flags=0,
        sections=len(blocks),
        epoch=epoch,
        count=len(changes),
        bitmap=0,
        kinds=int(np.bitwise_or.reduce(1 << kinds.astype(int), initial=0)),
        producers=0,
        base=base,
        first_offset=offset,
    )
    return encode_value(head, segment=segment, cache=cache, sections=blocks)


@dataclass
class World:
    """`group` writes one group, `mark` says in the state how far it has come. Ids are `ID_STEP`, `2 * ID_STEP`, ..."""

    store: Store
    next_id: int = ID_STEP
    epoch: int = 1
    offsets: dict[tuple[int, int], int] = field(default_factory=dict)
    steps: dict[int, list[OwnStep]] = field(default_factory=dict)
    state: dict[bytes, bytes] = field(default_factory=dict)
    log: dict[bytes, bytes] = field(default_factory=dict)
    ends: StoreEnds = None  # type: ignore[assignment]

    def __post_init__(self):
        self.ends = StoreEnds.empty(self.store.segments)
        for segment in range(self.store.segments):
            self.store.append([], [keys.encode_epoch(segment, self.epoch, self.next_id if self.epoch > 1 else 0, previous=0)])

    @classmethod
    def going_on(cls, store: Store, recovery: Recovery) -> "World":
        """Return a world that writes on behind what is there, in the next epoch."""
        epoch = int(recovery.ends.epochs.max()) + 1
        made = cls(store, next_id=recovery.last_id + ID_STEP, epoch=epoch)
        for cache, tail in recovery.caches.items():
            made.offsets |= {(segment, cache): int(offset) for segment, offset in enumerate(tail.next_offsets)}
        made.ends = StoreEnds(ids=recovery.ends.ids.copy(), epochs=recovery.ends.epochs.copy())
        return made

    def group(self, *parts: tuple[int, int, list[Change]], sync: bool = True, apply: bool = True) -> int:
        """Write (segment, cache, changes) each as one value, return the last id. A group that is refused never was."""
        before = self.next_id, dict(self.offsets), self.ends, {cache: list(steps) for cache, steps in self.steps.items()}
        log, puts = [], []
        for segment, cache, changes in parts:
            offset = self.offsets.get((segment, cache), 0)
            data = stored_value(segment, cache, changes, base=self.next_id, offset=offset, epoch=self.epoch)
            log.append((keys.log_key(segment, cache, self.next_id), data))
            for index, (key, value) in enumerate(changes):
                version = self.next_id + index * ID_STEP
                puts.append((keys.entry_key(segment, cache, key), None if value is None else encode_entry(version, value)))
            self._count(segment, cache, changes, data)
        try:
            self.store.append(log, [])
        except EventLogError:
            self.next_id, self.offsets, self.ends, self.steps = before
            raise
        self.log.update(log)
        if sync:
            self.store.sync(self.ends)
        if apply:
            self.apply(puts)
        return self.next_id - ID_STEP

    def apply(self, puts):
        self.store.apply(puts)
        for key, value in puts:
            self.state.pop(key, None)
            if value is not None:
                self.state[key] = value

    def _count(self, segment, cache, changes, data):
        self.next_id += max(len(changes), 1) * ID_STEP
        last = self.next_id - ID_STEP
        self.offsets[segment, cache] = self.offsets.get((segment, cache), 0) + len(changes)
        before = self.steps.setdefault(cache, [OwnStep(0, 0, 0)])[-1]
        self.steps[cache].append(OwnStep(last, before.events + len(changes), before.nbytes + len(data)))
        ids, epochs = self.ends.ids.copy(), self.ends.epochs.copy()
        ids[segment], epochs[segment] = last, self.epoch
        self.ends = StoreEnds(ids=ids, epochs=epochs)

    def mark(self):
        """Say that the state has everything up to the log's end."""
        pages = -(-self.store.segments // keys.MARKS_PER_PAGE)
        self.store.apply([keys.encode_marks(page, self.ends.ids, self.ends.epochs) for page in range(pages)])
