"""Everything that the store holds of some segments, as ranges and rows. For the storage thread."""

from collections.abc import Iterable, Sequence

from eventlog.segment import keys
from eventlog.segment.port import LogEnds, Range, Store


def delete_segments(store: Store, segments: Sequence[int], caches: Iterable[int], ends: LogEnds, *, reached: int = 0) -> None:
    """Delete log, state and rows of `segments`; `ends`, in which they are empty, are beside the log before anything goes.

    Their logs had got to `reached`, which is remembered: others know that this directory had it.
    """
    ranges = [keys.segment_range(segment) for segment in segments]
    meta: list[Range] = [keys.epoch_range(segment) for segment in segments]
    known = {cache for cache, *_ in (keys.decode_trim(pair) for pair in store.read_meta(*keys.trim_range()))} | set(caches)
    for segment in segments:
        meta.extend(_row(keys.encode_trim(cache, segment, 0, 0)[0]) for cache in known)
        meta.append(_row(keys.encode_end(segment, 0, 0)[0]))
    rows = [keys.encode_partial(segment) for segment in segments]
    left = max((keys.decode_left(pair) for pair in store.read_meta(*keys.left_range())), default=0)
    if reached > left:
        rows.append(keys.encode_left(reached))
    store.drop(ranges, ranges, meta, meta=rows, ends=ends)


def drop_partial(store: Store, caches: Iterable[int], *, ends: LogEnds | None = None) -> list[int]:
    """Delete, at a start, what is there of segments that were being deleted or copied; return them. `ends`: if not those of the opening.

    Their marks go to 0 and the state to the disk, before the row goes that would have them deleted again.
    """
    segments = [keys.decode_partial(pair) for pair in store.read_meta(*keys.partial_range())]
    if segments:
        found = ends or store.ends
        ends = LogEnds(ids=found.ids.copy(), epochs=found.epochs.copy())
        ends.ids[segments] = ends.epochs[segments] = 0
        delete_segments(store, segments, caches, ends)
        marks, epochs = keys.decode_marks(store.get_many(keys.applied_keys(store.segments)), store.segments)
        marks[segments] = epochs[segments] = 0
        store.apply([keys.encode_marks(page, marks, epochs) for page in sorted({segment // keys.MARKS_PER_PAGE for segment in segments})])
        store.flush_state()
        store.trim([], [], meta_ranges=[keys.partial_range(segment) for segment in segments])
        store.sync(ends)
    return segments


def _row(key: bytes) -> Range:
    return key, key + b"\0"
