"""A group of a few plain events, each in a segment of its own, as single puts make it: one after the other, without columns.

Columns cost about as much for two events as for fifty, and that several times what one event by itself does.

An event by itself (`Lone`) follows the rules of the common road, without the arrays that many events are worth. Only what is plain comes
here. Whatever expires, has to be joined or refused goes the common road, which also knows the words for what is wrong. Both leave the
same events, state and answers: a test holds them against each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.build import ROW
from eventlog.batch.check import BlockLimits, are_headers
from eventlog.batch.entries import FORMAT, HEAD, StoredEntry, decode_entry
from eventlog.batch.marks import ABSENT, HEADERS
from eventlog.batch.one import One, find_one, with_image
from eventlog.batch.stored import seal_one
from eventlog.errors import EventLogError
from eventlog.events import Kind
from eventlog.hashing import hash_key, segment_of
from eventlog.ids import ID_STEP
from eventlog.read.answer import CacheValues
from eventlog.replication.bodies import Carried, GroupValues
from eventlog.segment.keys import entry_key
from eventlog.segment.port import Put, Store
from eventlog.state.caches import CacheState
from eventlog.write.admission import is_json
from eventlog.write.groups import Pending, WriteResult
from eventlog.write.overlay import Overlay, find_held
from eventlog.write.share import KeyCondition

_CREATED, _MODIFIED, _REMOVED = int(Kind.CREATED), int(Kind.MODIFIED), int(Kind.REMOVED)
_BITMAP_AT = 4  # in a block's head; there are fewer than nine columns
KINDS = {kind: np.frombuffer(bytes((kind,)), np.uint8) for kind in (_CREATED, _MODIFIED, _REMOVED)}  # made once, and never written to
FEW_MAX = 24  # from about there on columns are cheaper
_LAYER_BYTES = 100  # of an entry in the overlay, besides its value
_ONES = np.ones(FEW_MAX, np.int64)
_ONES.flags.writeable = False  # groups share it


@dataclass(slots=True, kw_only=True, eq=False)
class Lone:
    """One event on its way; `id` and what is `stored` are set by its group's stamp.

    `depends_on` is the state key of the entry that has to be looked at before, by `see`: because it is replaced and the cache keeps
    before-images, because the writer wants it back, or because of a condition. `replaced` is its value then.
    """

    cache: CacheState
    producer: int
    segment: int
    sequence: int
    key: bytes
    value: bytes
    hashed: int
    kind: int
    block: bytes
    places: One
    keeps_image: bool
    depends_on: bytes | None
    condition: KeyCondition | None
    replaced: bytes | None = None
    id: int = field(init=False)
    stored: bytes = field(init=False)

    def see(self, entry: StoredEntry | None) -> bool:
        """Take what it needs of the entry that it replaces; False where its condition does not hold."""
        version, self.replaced = (0, b"") if entry is None else (entry.version, entry.value)
        return self.condition is None or _holds(self.condition, version)


def plain(pending: Pending, bounds: BlockLimits) -> list[Lone] | None:
    """Return the events of a frame, one a block; None where the common road is the right one."""
    cache = pending.cache
    if pending.internal or not _is_plain(cache):
        return None
    if (pending.conditions or pending.previous) and (pending.table.only < 0 or len(pending.conditions) > 1 or not cache.options.state):
        return None
    found = []
    at = 0
    for row in ROW.iter_unpack(pending.table.data):
        length = row[3]
        lone = _event(pending, row, pending.blocks[at : at + length], bounds)
        if lone is None:
            return None
        found.append(lone)
        at += length
    return found


def _event(pending: Pending, row: tuple[int, ...], data: memoryview, bounds: BlockLimits) -> Lone | None:
    cache, producer = pending.cache, pending.producer
    segment, _, count, length, sequence = row
    found = find_one(data, length, columns=HEADERS) if count == 1 else None
    if found is None:
        return None
    block = bytes(data)
    key, value, asked = block[found.key_at : found.key_end], block[found.value_at : found.value_end], found.kind
    headers = block[found.headers_at : found.headers_end]
    hashed = hash_key(key)
    fits = len(key) <= bounds.key_bytes and len(value) <= bounds.value_bytes and len(headers) <= bounds.header_bytes
    if not fits or segment_of(hashed, cache.segments) != segment:
        return None
    if not _can_be_read(cache, key, None if asked == _REMOVED else value, headers):
        return None
    is_next = not producer or cache.producers.is_next(producer, segment, sequence)
    kind = _kind(cache, asked, hashed)
    if kind == ABSENT or not is_next:
        return None
    condition = pending.conditions[0] if pending.conditions else None
    replaces = cache.options.state and kind != _CREATED
    if condition is not None and (condition.key != key or not (replaces or _holds(condition, 0))):
        return None
    keeps_image = cache.options.before and cache.options.state
    depends = replaces and (keeps_image or pending.previous or condition is not None)
    if kind != asked:
        block = b"".join((block[: found.kind_at], bytes((kind,)), block[found.kind_at + 1 :]))
    return Lone(
        cache=cache,
        producer=producer,
        segment=segment,
        sequence=sequence,
        key=key,
        value=value,
        hashed=hashed,
        kind=kind,
        block=block,
        places=found,
        keeps_image=keeps_image,
        depends_on=entry_key(segment, cache.cache_id, key) if depends else None,
        condition=condition,
    )


def _holds(condition: KeyCondition, version: int) -> bool:
    return version != 0 if condition.version is None else version == condition.version


def _can_be_read(cache: CacheState, key: bytes, value: bytes | None, headers: bytes) -> bool:
    if not (cache.options.bytes_keys or key.isascii()) or (headers and not are_headers(headers)):
        return False
    return value is None or cache.options.format != "json" or is_json(value)


def _kind(cache: CacheState, asked: int, hashed: int) -> int:
    if cache.keys is None:
        return asked
    if cache.keys.has(hashed):
        return _REMOVED if asked == _REMOVED else _MODIFIED
    return ABSENT if asked == _REMOVED else asked


def _is_plain(cache: CacheState) -> bool:
    """Whether nothing expires in a cache, is placed by part of its key or has fields set apart, and what exists is known."""
    options = cache.options
    if cache.dropped or cache.may_expire or options.lifespan_ms or options.route_by_prefix or options.promote:
        return False
    return not options.state or cache.keys is not None


class Few:
    """Events of one cache, whose segments rise, and the frames that brought them.

    Have them `see` what they depend on, and stamp them; then everything else may be asked.
    """

    __slots__ = ("by_frame", "cache", "ids", "lones", "segments")

    ids: Ints  # from the stamp on

    def __init__(self, frames: Sequence[tuple[Pending, list[Lone]]]) -> None:
        self.by_frame = frames  # in their order
        self.cache = frames[0][0].cache
        self.lones = sorted([lone for _, lones in frames for lone in lones], key=_segment_of) if len(frames) > 1 else frames[0][1]
        self.segments: Ints = np.array([lone.segment for lone in self.lones])

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
        """Give the events a run of ids, and have their producers go on behind them; return what is stored."""
        cache, count = self.cache, len(self.lones)
        self.ids = np.arange(base, base + count * ID_STEP, ID_STEP)
        for lone, id_ in zip(self.lones, self.ids.tolist(), strict=True):
            segment, producer, lone.id = lone.segment, lone.producer, id_
            section = with_image(lone.block, lone.places, lone.replaced or b"") if lone.keeps_image else lone.block
            lone.stored = seal_one(
                section,
                epoch=epochs.item(segment),
                kind_bits=1 << lone.kind,
                base=id_,
                first_offset=cache.next_offsets.item(segment),
                row=(producer, lone.sequence, 0, 1, 1),
                seed=cache.seeds[segment],
                bitmap=section[_BITMAP_AT],
            )
            if producer:
                cache.producers.advance_one(producer, segment, lone.sequence)
        data = [lone.stored for lone in self.lones]
        carried = Carried(caches=[cache.cache_id] * count, data=data, bounds=range(count + 1))
        return GroupValues(segments=self.segments, last_ids=self.ids, counts=_ONES[:count], carried=carried)

    def answer(self) -> None:
        """Tell their writers that they are committed."""
        for pending, lones in self.by_frame:
            pending.done(_result(lones, wants_previous=pending.previous))
        for send in dict.fromkeys(pending.send for pending, _ in self.by_frame):
            if send is not None:
                send()

    def commit(self) -> None:
        """Move the cache's offsets, counters, key table and producers."""
        cache = self.cache
        for lone in self.lones:
            segment, kind = lone.segment, lone.kind
            cache.next_offsets[segment] += 1
            cache.count_one(segment, kind=kind, nbytes=len(lone.stored))
            if cache.keys is not None:
                cache.keys.put_one(lone.hashed, is_there=kind != _REMOVED)
            elif cache.building is not None:
                cache.building.append((np.array((lone.hashed,), np.uint64), KINDS[kind], np.zeros(1, np.int64)))
            if lone.producer:
                cache.producers.record_one(lone.producer, segment=segment, sequence=lone.sequence, id_=lone.id, kind=kind)

    def layer(self) -> tuple[list[Put], int]:
        """Return what stands under which state keys from now on, for the overlay and the store, and about how many bytes that is."""
        entries: list[Put] = []
        if not self.cache.options.state:
            return entries, 0
        nbytes = 0
        for lone in self.lones:
            key = lone.depends_on or entry_key(lone.segment, self.cache.cache_id, lone.key)
            entries.append((key, None if lone.kind == _REMOVED else HEAD.pack(FORMAT, 0, lone.id) + lone.value))
            nbytes += _LAYER_BYTES + len(lone.value)
        return entries, nbytes

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
        return WriteResult(ids=np.array((lones[0].id,)), kinds=KINDS[lones[0].kind], refusals={}, previous=previous)
    kinds = np.frombuffer(bytes([lone.kind for lone in lones]), np.uint8)
    return WriteResult(ids=np.array([lone.id for lone in lones]), kinds=kinds, refusals={})


def few_of(frames: Sequence[Pending], bounds: BlockLimits) -> tuple[Few, list[Pending]] | None:
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
