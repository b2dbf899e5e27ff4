"""Frames of single puts and the two roads that they may take through the writer, up to what is stored, shown and answered."""

import numpy as np

from eventlog.batch.build import read_table
from eventlog.batch.layout import TABLE
from eventlog.batch.one import build_one
from eventlog.batch.stored import make_values
from eventlog.control.records import CacheOptions
from eventlog.hashing import hash_key, segment_of
from eventlog.segment.memory import MemoryDisk, MemoryStore
from eventlog.segment.port import StoreEnds
from eventlog.state.caches import CacheState, new_cache
from eventlog.write.admission import BOUNDS
from eventlog.write.apply import changes_of
from eventlog.write.drafts import Drafter
from eventlog.write.few import few_of
from eventlog.write.groups import Pending, Queue, answer_frames, record_producers
from eventlog.write.overlay import Overlay

SEGMENTS, PRODUCER = 8, 77
EPOCHS = np.arange(SEGMENTS, dtype=np.uint32) + 3
BASE = 5_000 << 10
KEYS = [b"a", b"b", b"c", b"a longer key", "clé".encode(), b"", b"x" * 64]


def cache_with(**options) -> CacheState:
    own = CacheOptions(**{"format": "bytes", "before": False, **options})
    return new_cache(cache_id=9, name="c", options=own, from_id=0, segments=SEGMENTS)


def frame(cache, body, blocks, *, told=None, **other) -> Pending:
    """Return a frame as the queue hands it out; `told` gets its answer."""
    table, data = read_table(memoryview(body), blocks)
    done = (told if told is not None else []).append
    pending = Pending(
        cache=cache, table=table, blocks=data, done=done, **{"producer": 0, "conditions": (), "previous": False, "internal": False, **other}
    )
    queue = Queue()
    queue.put(pending)
    return queue.take()[0]


def event(cache, key, value=b"v", *, sequence=0, is_removal=False, segment=None, headers=b"", **other) -> Pending:
    at = segment_of(hash_key(key), SEGMENTS) if segment is None else segment
    body = build_one(key, value, kind=2 if is_removal else 0, segment=at, sequence=sequence, headers=headers)
    return frame(cache, body, 1, **other)


def events(cache, given, **other) -> Pending:
    """Return a frame of events (key, value, is a removal, sequence), each of a segment of its own."""
    bodies = {}
    for key, value, is_removal, sequence in given:
        segment = segment_of(hash_key(key), SEGMENTS)
        bodies[segment] = build_one(key, value, kind=2 if is_removal else 0, segment=segment, sequence=sequence)
    rows, blocks = zip(*[(bodies[segment][: TABLE.itemsize], bodies[segment][TABLE.itemsize :]) for segment in sorted(bodies)], strict=True)
    return frame(cache, b"".join((*rows, *blocks)), len(bodies), **other)


def store_with(entries=()) -> MemoryStore:
    """Return a store whose state is `entries`."""
    store = MemoryStore(MemoryDisk(segments=SEGMENTS, ends=StoreEnds.empty(SEGMENTS)))
    store.apply(list(entries))
    return store


def by_common_road(frames, base, store=None) -> tuple[list[bytes], dict]:
    """Return what is stored and what it does to the state, and do to their cache what a commit does."""
    store = store or store_with()
    drafter = Drafter(overlay=Overlay(), store=store, bounds=BOUNDS, put_back=list)
    (draft,) = drafter.drafts(frames, now=0)
    draft.found.update(zip(draft.missing, store.get_many(draft.missing), strict=True))
    part = drafter.part(draft)
    cache = frames[0].cache
    if not len(part.stamped.sections.segments):
        answer_frames(part)
        return [], {}
    part.values = make_values(part.stamped.sections, base=base, epochs=EPOCHS, next_offsets=cache.next_offsets, seeds=cache.seeds)
    answer_frames(part)
    change = changes_of(part)
    change.commit(cache, part.values)
    record_producers(part)
    return list(part.values.data), dict(change.layer)


def by_short_road(frames, base, store) -> tuple[list[bytes], dict] | None:
    found = few_of(frames, BOUNDS)
    if found is None:
        return None
    few, rest = found
    assert not rest
    if not few.see(Overlay(), store):
        return None
    values = few.stamp(base, epochs=EPOCHS)
    few.answer()
    few.commit()
    seen = few.seen()
    assert seen.data == list(values.carried.data)
    assert seen.segments == values.segments.tolist()
    return seen.data, dict(few.layer()[0])


def standing(cache) -> tuple:
    producers = [row for segment in range(SEGMENTS) for row in cache.producers.export(segment)]
    known = [] if cache.keys is None else [cache.keys.has(hash_key(key)) for key in KEYS]
    return cache.next_offsets.tolist(), cache.stored_bytes, cache.live.tolist(), known, producers


def assert_roads_alike(caches, groups) -> None:
    """Write groups of frames to one cache by the common road, to the other by the short one.

    A frame is (is numbered, events); an event is (key, value, is a removal).
    """
    numbers, stores = [0] * SEGMENTS, (store_with(), store_with())
    for place, group in enumerate(groups):
        found, answers = [], []
        for cache, store, road in zip(caches, stores, (by_common_road, by_short_road), strict=True):
            told: list = []
            frames = [
                events(
                    cache,
                    [
                        (key, value, is_removal, numbers[segment_of(hash_key(key), SEGMENTS)] if is_numbered else 0)
                        for key, value, is_removal in given
                    ],
                    told=told,
                    producer=PRODUCER if is_numbered else 0,
                )
                for is_numbered, given in group
            ]
            base = BASE + (place << 20)
            found.append(road(frames, base, store) or by_common_road(frames, base, store))
            store.apply(list(found[-1][1].items()))
            answers.append(sorted((one.ids.tolist(), one.kinds.tolist(), one.refusals, one.previous) for one in told))
        for is_numbered, given in group:
            for key, *_ in given:
                numbers[segment_of(hash_key(key), SEGMENTS)] += is_numbered
        assert found[0] == found[1]
        assert answers[0] == answers[1]
        assert standing(caches[0]) == standing(caches[1])
