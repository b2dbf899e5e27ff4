"""Reading the log of one segment over all its caches, in the order of ids."""

from dataclasses import dataclass

from eventlog.batch.layout import place_seed, read_head
from eventlog.checksum import crc32c
from eventlog.errors import CorruptData
from eventlog.segment import keys
from eventlog.segment.cutting import caches_in
from eventlog.segment.port import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """All stored values with ids in `(after, upto]`, in the order of their ids; `caches` says whose each is."""

    after: int
    upto: int
    caches: list[int]
    data: list[bytes]

    @property
    def nbytes(self) -> int:
        """Return the bytes of the values."""
        return sum(map(len, self.data))


def read_segment(store: Store, segment: int, *, after: int, upto: int, bytes_max: int) -> LogPart:
    """Return what the log has in `(after, upto]`, or its beginning if that is much more than `bytes_max`; at least one value if any.

    Values of caches that were dropped, and what retention removed, are missing; the caller knows whether that matters.

    Raises:
        CorruptData: the engine met a damaged file, or a value shorter than its header.
    """
    found: list[tuple[int, int, bytes]] = []
    for cache in list(caches_in(store, segment)):
        pairs = store.read_log(*keys.log_range(segment, cache, after=after, upto=upto), bytes_max=bytes_max)
        found += [(keys.parse_log_key(key)[2], cache, data) for key, data in pairs]
        if pairs and sum(len(data) for _, data in pairs) >= bytes_max:  # there may be more: nothing above its last value counts
            last = read_head(pairs[-1][1], where=f"segment {segment}, cache {cache}").last_id
            upto = min(upto, last)
    found = sorted(row for row in found if row[0] <= upto)
    nbytes = 0
    for index, (_, cache, data) in enumerate(found):
        nbytes += len(data)
        if nbytes >= bytes_max and index + 1 < len(found):
            upto = min(upto, read_head(data, where=f"segment {segment}, cache {cache}").last_id)
            found = found[: index + 1]
            break
    return LogPart(after=after, upto=upto, caches=[cache for _, cache, _ in found], data=[data for _, _, data in found])


def read_sound(store: Store, segment: int, *, after: int, upto: int, bytes_max: int) -> LogPart:
    """Return `read_segment` with every checksum compared: for a caller that hands the values to others without looking into them.

    Raises:
        CorruptData: as `read_segment`, or a value's checksum is wrong, or one is missing between two of a cache.
    """
    part = read_segment(store, segment, after=after, upto=upto, bytes_max=bytes_max)
    due: dict[int, int] = {}
    for cache, data in zip(part.caches, part.data, strict=True):
        check_sum(segment, cache, data)
        head = read_head(data, where=f"segment {segment}, cache {cache}")
        if head.first_offset != due.get(cache, head.first_offset):
            why = f"the events with the offsets {due[cache]} to {head.first_offset - 1} are missing, before id {head.base}"
            raise CorruptData(where=f"log of segment {segment}, cache {cache}", why=why)
        due[cache] = head.first_offset + head.count
    return part


def check_sum(segment: int, cache: int, data: bytes) -> None:
    """Raise CorruptData where the checksum of a stored value is wrong."""
    if crc32c(memoryview(data)[4:], place_seed(segment, cache)) != int.from_bytes(data[:4], "little"):
        raise CorruptData(where=f"log of segment {segment}, cache {cache}", why="the checksum of a stored value is wrong")
