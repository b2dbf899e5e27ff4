"""A group of a few plain events, each in a segment of its own, as single puts make it: one after the other, without columns.

Columns cost about as much for two events as for fifty, and that several times what one event by itself does.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eventlog.batch.check import Bounds
from eventlog.batch.entries import decode_entry
from eventlog.consume.groups import CacheValues
from eventlog.errors import EventLogError
from eventlog.ids import ID_STEP
from eventlog.node.copying.replicate_body import Carried, GroupValues
from eventlog.node.writing.groups import Pending, WriteResult
from eventlog.node.writing.lone import KINDS, Lone, plain
from eventlog.node.writing.overlay import Overlay, find_held
from eventlog.node.writing.storage import Put
from eventlog.segment.port import Store

Ints = npt.NDArray[np.int64]
FEW_MAX = 24  # from about there on columns are cheaper
_LAYER_BYTES = 100  # of an entry in the overlay, besides its value
_ONES = np.ones(FEW_MAX, np.int64)
_ONES.flags.writeable = False  # groups share it


class Few:
    """Events of one cache, whose segments rise, and the frames that brought them.

    Have them `see` what they depend on, and stamp them; then everything else may be asked.
    """

    __slots__ = ("_frames", "cache", "ids", "lones", "segments")

    ids: Ints  # from the stamp on

    def __init__(self, frames: Sequence[tuple[Pending, list[Lone]]]) -> None:
        self._frames = frames
        self.cache = frames[0][0].cache
        self.lones = sorted([lone for _, lones in frames for lone in lones], key=_segment_of) if len(frames) > 1 else frames[0][1]
        self.segments: Ints = np.array([lone.segment for lone in self.lones])

    @property
    def frames(self) -> list[Pending]:
        """Return the frames, in their order."""
        return [pending for pending, _ in self._frames]

    @property
    def nbytes(self) -> int:
        """Return the bytes of what is stored."""
        return sum([len(lone.stored) for lone in self.lones])

    def see(self, overlay: Overlay, store: Store) -> bool:
        """Show them the entries that they depend on.

        False where the common road is the right one: the disk would have to be read, an entry is damaged, a condition does not hold.
        """
        depending = [(lone, lone.depends_on) for lone in self.lones if lone.depends_on]
        if not depending:
            return True
        found, missing = find_held(overlay, store, [key for _, key in depending])
        if missing:
            return False
        try:
            entries = [None if (data := found[key]) is None else decode_entry(data) for _, key in depending]
        except EventLogError:
            return False
        return all(lone.see(entry) for (lone, _), entry in zip(depending, entries, strict=True))

    def stamp(self, base: int, *, epochs: npt.NDArray[np.uint32]) -> GroupValues:
        """Give the events a run of ids; return what is stored."""
        count, segments = len(self.lones), self.segments
        ids = self.ids = np.arange(base, base + count * ID_STEP, ID_STEP)
        for place, lone in enumerate(self.lones):
            lone.stamp(segments[place : place + 1], ids[place : place + 1], epoch=epochs.item(lone.segment))
        data = [lone.stored for lone in self.lones]
        carried = Carried(caches=[self.cache.cache_id] * count, data=data, bounds=range(count + 1))
        return GroupValues(segments=self.segments, last_ids=self.ids, counts=_ONES[:count], carried=carried)

    def appended(self) -> None:
        """Take note that they are in flight."""
        for lone in self.lones:
            lone.appended()

    def answer(self) -> None:
        """Tell who wrote them that they are committed."""
        for pending, lones in self._frames:
            pending.done(_result(lones, wants_previous=pending.previous))
        for send in {pending.send for pending, _ in self._frames}:
            if send is not None:
                send()

    def commit(self) -> None:
        """Move the cache's offsets, counters, key table and producers."""
        for lone in self.lones:
            lone.commit()

    def layer(self) -> tuple[list[Put], int]:
        """Return what they do to the state, for the overlay and the store, and about how many bytes that is."""
        if not self.cache.options.state:
            return [], 0
        entries = [lone.entry() for lone in self.lones]
        return entries, sum([_LAYER_BYTES + len(lone.value) for lone in self.lones])

    def seen(self) -> CacheValues:
        """Return what readers get."""
        return CacheValues(
            cache_id=self.cache.cache_id,
            segments=self.segments.tolist(),
            bases=self.ids.tolist(),
            counts=[1] * len(self.lones),
            data=[lone.stored for lone in self.lones],
        )


def _segment_of(lone: Lone) -> int:
    return lone.segment


def _result(lones: Sequence[Lone], *, wants_previous: bool) -> WriteResult:
    if len(lones) == 1:
        previous = lones[0].replaced if wants_previous else None
        return WriteResult(ids=lones[0].ids, kinds=KINDS[lones[0].kind], refusals={}, previous=previous)
    kinds = np.frombuffer(bytes([lone.kind for lone in lones]), np.uint8)
    return WriteResult(ids=np.array([lone.id for lone in lones]), kinds=kinds, refusals={})


def few_of(frames: Sequence[Pending], bounds: Bounds) -> tuple[Few, list[Pending]] | None:
    """Return the plain events of frames, and the frames that wait for another group, because an earlier one has a segment of theirs.

    None where the common road is the right one: it takes what is not plain, many events, and frames that would wait in numbers.
    """
    if sum([len(pending.table) for pending in frames]) > FEW_MAX:
        return None
    cache = frames[0].cache
    taken: set[int] = set()
    good = []
    rest = []
    for pending in frames:
        if pending.cache is not cache:
            return None
        own = pending.table.segment_list()
        if not taken.isdisjoint(own):
            rest.append(pending)
        else:
            lones = plain(pending, bounds)
            if lones is None:
                return None
            good.append((pending, lones))
        taken.update(own)
    if len(rest) * 4 > len(frames):
        return None
    return Few(good), rest
