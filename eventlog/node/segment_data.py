"""Everything that the store holds of some segments, as ranges and rows. For the storage thread."""

from collections.abc import Iterable, Sequence

from eventlog.segment import keys
from eventlog.segment.port import LogEnds, Range, Store


def delete_segments(store: Store, segments: Sequence[int], caches: Iterable[int], ends: LogEnds) -> None:
    """Delete log, state and rows of `segments`; `ends`, in which they are empty, are beside the log before anything goes."""
    ranges = [keys.segment_range(segment) for segment in segments]
    meta: list[Range] = [keys.epoch_range(segment) for segment in segments]
    known = {cache for cache, *_ in (keys.decode_trim(pair) for pair in store.read_meta(*keys.trim_range()))} | set(caches)
    for segment in segments:
        meta.extend(_row(keys.encode_trim(cache, segment, 0, 0)[0]) for cache in known)
        meta.append(_row(keys.encode_end(segment, 0, 0)[0]))
    store.drop(ranges, ranges, meta, ends=ends)


def _row(key: bytes) -> Range:
    return key, key + b"\0"
