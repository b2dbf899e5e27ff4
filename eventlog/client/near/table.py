"""What a near cache holds and may serve. Pure: no clock, no connection.

A value is served while two things are known. First, that it holds everything of its key up to the id `as_of`: the primary said so
when it was read. Second, that the tail tells of everything after that: the server looks for the key's digest in all events after
`registered_at`, so a value read as of an earlier id than that could hide a change that nobody will tell of, and is not kept. How
long ago a server last said that it had looked at everything acknowledged so far bounds how old a value can be.
"""

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from eventlog.hashing import hash_key

Miss = Literal["miss"]
MISS: Final[Miss] = "miss"
SLOT_BYTES: Final = 400  # of memory beside key and value, about


@dataclass(frozen=True, slots=True, kw_only=True)
class NearStatistics:
    """What a near cache has done so far, and how full it is.

    `refused`: values read that could not be kept, because a write came between. `resets`: how often everything was forgotten, because
    the log no longer told what had happened since.
    """

    hits: int
    misses: int
    invalidations: int
    evictions: int
    refused: int
    resets: int
    entries: int
    bytes: int

    @property
    def hit_ratio(self) -> float:
        """Return the part of all reads that was served from memory, 0.0 before the first."""
        return self.hits / max(self.hits + self.misses, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a primary said of a key: its `entry`, everything of the key up to the id `as_of` included. Use it before `until`."""

    entry: Any
    as_of: int
    until: float
    nbytes: int


class Slot:
    """A key that the tail watches, or is about to. `held` is (serve before, entry), replaced as one: other threads read it.

    `since` is the id up to which the tail had been followed when the slot was made, `newest` the last write of the key known of.
    """

    __slots__ = ("as_of", "digest", "generation", "held", "is_gone", "key", "nbytes", "newest", "registered_at", "since", "waiting")

    def __init__(self, key: Hashable, digest: int, *, since: int, nbytes: int) -> None:
        self.key = key
        self.digest = digest
        self.since = since
        self.nbytes = nbytes  # key and slot; what is held or waits is counted beside
        self.held: tuple[float, Any, int] | None = None
        self.as_of = 0
        self.newest = 0
        self.registered_at: int | None = None
        self.waiting: Read | None = None
        self.is_gone = False
        self.generation = 0  # a read that began in an earlier one is not kept


class Fill:
    """A read under way whose result may be kept."""

    __slots__ = ("generation", "slot")

    def __init__(self, slot: Slot) -> None:
        self.slot = slot
        self.generation = slot.generation


class NearTable:
    """Keys with their values, the least recently used at the front. Times are seconds of any one clock that never goes back.

    `find` may be called from any thread, everything else from one. `upto` is the id up to which the tail has been followed.
    `find` moves what it found within `_slots`, so nothing else goes through these: it takes from them, or goes through `_by_digest`.
    """

    def __init__(self, *, entries_max: int, bytes_max: int, staleness_s: float) -> None:
        self.entries_max = entries_max
        self.bytes_max = bytes_max
        self.staleness_s = staleness_s
        self.upto = 0
        self.fresh_until = 0.0
        self._slots: OrderedDict[Hashable, Slot] = OrderedDict()
        self._by_digest: dict[int, Slot] = {}
        self._added: set[int] = set()  # not told to the server yet
        self._removed: set[int] = set()
        self._in_flight: frozenset[int] = frozenset()
        self._is_open = False
        self._held = 0
        self._nbytes = 0
        self._hits = self._misses = self._invalidations = self._evictions = self._refused = self._resets = 0

    # ------------------------------------------------------------ reading

    def find(self, key: Hashable, now: float) -> Any:
        """Return the entry of `key` (None: it has none), or MISS."""
        slot = self._slots.get(key)
        if slot is None:
            return MISS
        held = slot.held
        if held is None or now >= held[0] or now >= self.fresh_until:
            return MISS
        try:
            self._slots.move_to_end(key)
        except KeyError:
            return MISS  # evicted this moment, by another thread
        self._hits += 1
        return held[1]

    def begin(self, key: Hashable, digest: int, *, nbytes: int) -> Fill | None:
        """Note that `key` is about to be read, from now on; None if the result cannot be kept. `nbytes` is the key's size."""
        self._misses += 1
        slot = self._slots.get(key)
        if slot is None:
            if digest in self._by_digest:
                return None  # of another key: one of the two does without
            slot = self._add(key, digest, nbytes=nbytes + SLOT_BYTES)
        else:
            self._slots.move_to_end(key)
        return Fill(slot)

    def begin_write(self, key: Hashable, digest: int, *, nbytes: int) -> Fill | None:
        """Note that `key` is about to be written: what is written may be kept. As `begin`, but nobody has missed anything."""
        fill = self.begin(key, digest, nbytes=nbytes)
        self._misses -= 1
        return fill

    def end(self, fill: Fill, read: Read) -> None:
        """Keep what was read, if nothing can have changed it without word; as soon as the tail watches the key."""
        slot = fill.slot
        if slot.is_gone or fill.generation != slot.generation:
            self._refused += 1
        elif slot.registered_at is None:
            self._have_wait(slot, read)
        else:
            self._keep(slot, read)

    def wrote(self, digest: int, id_: int) -> None:
        """Note a write of this client: what was read before it is not served any more."""
        slot = self._by_digest.get(digest)
        if slot is None:
            return
        slot.newest = max(slot.newest, id_)
        if slot.held is not None and slot.as_of < id_:
            self._drop(slot)

    def touch(self, digest: int) -> None:
        """Drop a value, also where it is being read: it was written under an id that is not known."""
        slot = self._by_digest.get(digest)
        if slot is not None:
            self._forget(slot)

    def forget(self) -> None:
        """Drop every value, also those being read: nobody knows which keys were written."""
        for slot in self._by_digest.values():
            self._forget(slot)

    def _forget(self, slot: Slot) -> None:
        slot.generation += 1
        self._take_waiting(slot)
        self._drop(slot)

    # ------------------------------------------------------------ the tail

    def opening(self) -> list[int]:
        """Return the digests to open the tail with."""
        self._is_open = True
        self._in_flight = frozenset(self._by_digest)
        return sorted(self._in_flight)

    def changes(self) -> tuple[list[int], list[int]]:
        """Return the digests to tell the server of, (added, removed). `registered` comes before the next call."""
        assert not self._in_flight, "one request at a time"
        added, removed = self._added, self._removed
        self._added, self._removed = set(), set()
        self._in_flight = frozenset(added)
        return sorted(added), sorted(removed)

    @property
    def has_changes(self) -> bool:
        """Whether there is something to tell the server."""
        return bool(self._added or self._removed)

    def registered(self, after: int) -> None:
        """Note that the server looks for what was told last in all events after the id `after`."""
        digests, self._in_flight = self._in_flight, frozenset()
        for digest in digests:
            slot = self._by_digest.get(digest)
            if slot is None or slot.registered_at is not None:
                continue
            slot.registered_at = max(after, slot.since)
            waiting = self._take_waiting(slot)
            if waiting is not None:
                self._keep(slot, waiting)

    def advance(self, upto: int, *, digests: Sequence[int] = (), ids: Sequence[int] = ()) -> None:
        """Follow the tail up to an id: these keys were written, last with these ids."""
        for digest, id_ in zip(digests, ids, strict=True):
            slot = self._by_digest.get(digest)
            if slot is None:
                continue
            slot.newest = max(slot.newest, id_)
            if slot.held is not None and slot.as_of < id_:
                self._invalidations += 1
                self._drop(slot)
        self.upto = max(self.upto, upto)

    def confirm(self, asked_at: float) -> None:
        """Note that everything acknowledged before the moment `asked_at` has been told of."""
        self.fresh_until = max(self.fresh_until, asked_at + self.staleness_s)

    def close(self) -> None:
        """Note that the tail is lost. What it was last told of stands, until it is too old; it may go on from `upto`."""
        self._is_open = False
        self._in_flight = frozenset()
        self._added.clear()
        self._removed.clear()

    def reset(self) -> None:
        """Forget everything: what happened since `upto` will not be told."""
        self.upto, self.fresh_until = 0, 0.0
        self.forget()
        for slot in list(self._by_digest.values()):
            self._remove(slot)
        self.close()
        self._resets += 1

    # ------------------------------------------------------------ what it has

    def statistics(self) -> NearStatistics:
        """Return what was counted so far."""
        return NearStatistics(
            hits=self._hits,
            misses=self._misses,
            invalidations=self._invalidations,
            evictions=self._evictions,
            refused=self._refused,
            resets=self._resets,
            entries=self._held,
            bytes=self._nbytes,
        )

    # ------------------------------------------------------------ slots

    def _add(self, key: Hashable, digest: int, *, nbytes: int) -> Slot:
        slot = Slot(key, digest, since=self.upto, nbytes=nbytes)
        self._slots[key] = self._by_digest[digest] = slot
        self._nbytes += nbytes
        if digest in self._removed:
            self._removed.discard(digest)  # the server still looks for it, and was heard on it up to now
            if digest not in self._in_flight:
                slot.registered_at = slot.since
        elif self._is_open:
            self._added.add(digest)
        self._evict(keep=slot)
        return slot

    def _have_wait(self, slot: Slot, read: Read) -> None:
        """Have a value wait for the tail to watch its key. It takes room meanwhile, for the tail may be lost."""
        if slot.nbytes + read.nbytes > self.bytes_max:
            self._refused += 1
        elif slot.waiting is None or slot.waiting.as_of < read.as_of:
            self._take_waiting(slot)
            slot.waiting = read
            self._nbytes += read.nbytes
            self._evict(keep=slot)

    def _take_waiting(self, slot: Slot) -> Read | None:
        waiting, slot.waiting = slot.waiting, None
        if waiting is not None:
            self._nbytes -= waiting.nbytes
        return waiting

    def _keep(self, slot: Slot, read: Read) -> None:
        assert slot.registered_at is not None, "watched first"
        if read.as_of < slot.registered_at or read.as_of < slot.newest:
            self._refused += 1
            return
        if slot.held is not None:
            if slot.as_of > read.as_of:
                return
            self._drop(slot)
        if slot.nbytes + read.nbytes > self.bytes_max:
            self._refused += 1
            return
        slot.as_of, slot.held = read.as_of, (read.until, read.entry, read.nbytes)
        self._held += 1
        self._nbytes += read.nbytes
        self._evict(keep=slot)

    def _drop(self, slot: Slot) -> None:
        if slot.held is not None:
            self._held -= 1
            self._nbytes -= slot.held[2]
            slot.held = None

    def _evict(self, *, keep: Slot) -> None:
        while len(self._slots) > self.entries_max or self._nbytes > self.bytes_max:
            key, slot = self._slots.popitem(last=False)
            if slot is keep:
                self._slots[key] = slot
                if len(self._slots) == 1:
                    return
                continue
            self._evictions += slot.held is not None
            self._remove(slot)

    def _remove(self, slot: Slot) -> None:
        self._drop(slot)
        self._take_waiting(slot)
        slot.is_gone = True
        self._slots.pop(slot.key, None)
        del self._by_digest[slot.digest]
        self._nbytes -= slot.nbytes
        if slot.digest in self._added:
            self._added.discard(slot.digest)
        elif self._is_open:
            self._removed.add(slot.digest)


class Nears(dict[int, list[NearTable]]):
    """The near caches of a client, by cache: its writes are to be seen there when they return."""

    def wrote(self, cache_id: int, keys: Sequence[bytes], ids: Sequence[int | None]) -> None:
        """Note which ids keys were written with last, None for no event."""
        for table in self.get(cache_id, ()):
            for key, id_ in zip(keys, ids, strict=True):
                if id_:
                    table.wrote(hash_key(key), id_)

    def wrote_some(self, cache_id: int, keys: Sequence[bytes]) -> None:
        """Note that keys were written, or may have been, under whatever ids."""
        for table in self.get(cache_id, ()):
            for key in keys:
                table.touch(hash_key(key))

    def wrote_unknown(self, cache_id: int) -> None:
        """Note that keys were written, and nobody knows which."""
        for table in self.get(cache_id, ()):
            table.forget()
