"""A group of a few plain events, each in a segment of its own, as single puts make it: one after the other, without columns.

Columns cost about as much for two events as for fifty, and that several times what one event by itself does.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from eventlog.batch.check import Bounds
from eventlog.consume.groups import CacheValues
from eventlog.ids import ID_STEP
from eventlog.node.copying.replicate_body import Carried, GroupValues
from eventlog.node.writing.groups import Pending
from eventlog.node.writing.lone import Lone, plain
from eventlog.node.writing.storage import Put

Ints = npt.NDArray[np.int64]
FEW_MAX = 32  # from about there on columns are cheaper
_LAYER_BYTES = 100  # of an entry in the overlay, besides its value
_ONES = np.ones(FEW_MAX, np.int64)
_ONES.flags.writeable = False  # groups share it


class Few:
    """Events of one cache, whose segments rise. Stamp them, then everything else may be asked."""

    __slots__ = ("cache", "ids", "lones", "segments")

    ids: Ints  # from the stamp on

    def __init__(self, lones: Sequence[Lone]) -> None:
        self.cache = lones[0].pending.cache
        self.lones = lones
        self.segments: Ints = np.array([lone.segment for lone in lones])

    @property
    def nbytes(self) -> int:
        """Return the bytes of what is stored."""
        return sum([len(lone.stored) for lone in self.lones])

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
        for lone in self.lones:
            lone.answer()
        for send in {lone.pending.send for lone in self.lones}:
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


def few_of(frames: Sequence[Pending], bounds: Bounds) -> tuple[Few, list[Pending]] | None:
    """Return the plain events of frames, and the frames that have to wait for another group, because an earlier one has their segment.

    None where the common road is the right one: it takes what is not plain, many frames, and those that would wait in numbers.
    """
    if len(frames) > FEW_MAX:
        return None
    cache = frames[0].cache
    lones: dict[int, Lone] = {}
    rest = []
    for pending in frames:
        if pending.only in lones and pending.cache is cache:
            rest.append(pending)
            continue
        lone = plain(pending, bounds) if pending.cache is cache else None
        if lone is None:
            return None
        lones[lone.segment] = lone
    if len(rest) * 4 > len(frames):
        return None
    return Few([lones[segment] for segment in sorted(lones)]), rest
