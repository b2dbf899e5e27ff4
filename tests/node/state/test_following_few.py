"""A few values of one event each on a backup: the same state as the common road leaves."""

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.layout import HAS_PRODUCERS, PRODUCER, ValueHead, encode_value
from eventlog.control.records import CacheOptions
from eventlog.events import Kind
from eventlog.ids import ID_STEP
from eventlog.node.state.following import Followed
from eventlog.node.workers import ThreadWorker
from eventlog.node.writing.storage import StorageThread
from eventlog.replication.bodies import values_from
from eventlog.segment.keys import entry_key
from eventlog.segment.memory import MemoryDisk, MemoryStore
from eventlog.segment.port import StoreEnds
from eventlog.state.caches import Caches, new_cache
from eventlog.write import apply as module
from eventlog.write.overlay import Overlay
from tests.examples import examples

SEGMENTS, CACHE, OWN = 3, 7, 1
KEYS = [b"", b"a", b"key-1", b"a longer key"]

events = st.fixed_dictionaries(
    {
        "segment": st.integers(0, SEGMENTS - 1),
        "origin": st.integers(1, 3),
        "kinds": st.one_of(
            st.sampled_from([[Kind.CREATED], [Kind.MODIFIED], [Kind.REMOVED]]),
            st.lists(st.sampled_from([Kind.CREATED, Kind.MODIFIED, Kind.REMOVED, Kind.EXPIRED]), min_size=1, max_size=2),
        ),
        "key": st.sampled_from(KEYS),
        "value": st.binary(max_size=20),
        "producer": st.sampled_from([0, 0, 5, 6]),
        "image": st.one_of(st.none(), st.binary(max_size=20)),
        "headers": st.one_of(st.none(), st.binary(max_size=20)),
    }
)


def images_of(event):
    """Return the values that were replaced, None where the cache keeps none."""
    return None if event["image"] is None else [b"" if kind == Kind.CREATED else event["image"] for kind in event["kinds"]]


def value_of(event, *, id_, offset):
    kinds = np.array(event["kinds"], np.uint8)
    values = [b"" if kind >= Kind.REMOVED else event["value"] for kind in kinds]
    headers = None if event["headers"] is None else [event["headers"]] * len(kinds)
    columns = Columns(kinds=kinds, keys=[event["key"]] * len(kinds), values=values, before=images_of(event), headers=headers)
    section, _ = build_blocks(columns, np.array([len(kinds)]))
    row = np.array([(event["producer"], offset, 0, len(kinds), len(kinds))], PRODUCER).tobytes() if event["producer"] else b""
    head = ValueHead(
        flags=HAS_PRODUCERS if row else 0,
        sections=1,
        epoch=1,
        count=len(kinds),
        bitmap=columns.bitmap,
        kinds=int(np.bitwise_or.reduce(1 << kinds)),
        producers=1 if row else 0,
        base=id_,
        first_offset=offset,
    )
    return encode_value(head, segment=event["segment"], cache=CACHE, sections=[section], producers=row)


def arrivals_of(found):
    """Return each event as what arrived by itself."""
    id_, offsets = 0, [0] * SEGMENTS
    for event in found:
        id_ = (id_ // ID_STEP + 1) * ID_STEP + event["origin"]
        segment = event["segment"]
        yield values_from(np.array([segment]), [CACHE], [value_of(event, id_=id_, offset=offsets[segment])])
        id_, offsets[segment] = id_ + (len(event["kinds"]) - 1) * ID_STEP, offsets[segment] + len(event["kinds"])


async def left_by(arrivals, **options):
    """Return everything that a backup knows when it has followed them all at once."""
    none = StoreEnds.empty(SEGMENTS)
    store = MemoryStore(MemoryDisk(segments=SEGMENTS, ends=none))
    storage, overlay, caches, steps, shown = (
        StorageThread(store, ends=none, on_fenced=lambda _: None, worker=ThreadWorker("storage")),
        Overlay(),
        Caches(),
        [],
        [],
    )
    storage.start()
    cache = new_cache(cache_id=CACHE, name="c", options=CacheOptions(format="bytes", **options), from_id=0, segments=SEGMENTS)
    caches.add(cache)
    followed = Followed(
        store=store,
        storage=storage,
        overlay=overlay,
        caches=caches,
        applied=np.zeros(SEGMENTS, np.int64),
        ends=np.zeros(SEGMENTS, np.int64),
        number=OWN,
        steps=lambda *row: steps.append(row) or [],
        show=lambda *told: shown.append([one.tolist() if isinstance(one, np.ndarray) else one for one in told]),
        mending=None,  # nothing is read
        refresh_caches=asyncio.Event().wait,
    )
    ends = np.zeros(SEGMENTS, np.int64)
    for arrived in arrivals:
        followed.keep(arrived)
        ends[arrived.segments] = arrived.lasts
    assert not len(followed.learned(np.arange(SEGMENTS), ends))
    entries = overlay.find([entry_key(segment, CACHE, key) for segment in range(SEGMENTS) for key in KEYS])
    await storage.stop()
    events_counted = {origin: sum(row[2] for row in steps if row[1] % ID_STEP == origin) for origin in range(4)}
    producers = [sorted(cache.producers.export(segment)) for segment in range(SEGMENTS)]
    counters = cache.next_offsets.tolist(), cache.stored_bytes, cache.live.tolist()
    return followed.applied.tolist(), counters, producers, entries, events_counted, shown


@pytest.mark.parametrize("state", [True, False])
@settings(deadline=None, max_examples=examples(60))
@given(found=st.lists(events, min_size=1, max_size=6))
def test_event_by_event_is_left_what_the_common_road_leaves(state, found):
    arrivals = list(arrivals_of(found))
    few = asyncio.run(left_by(arrivals, state=state, before=False))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW_MAX", 0)
        assert asyncio.run(left_by(arrivals, state=state, before=False)) == few


def test_only_single_plain_events_go_by_themselves_and_only_a_few():
    plain = {"segment": 1, "origin": 2, "kinds": [Kind.MODIFIED], "key": b"a", "value": b"v", "producer": 5, "image": None, "headers": None}
    for columns in ({}, {"image": b""}, {"image": b"replaced"}, {"headers": b"h"}, {"image": b"replaced", "headers": b"h"}):
        (one,) = module.read_few(list(arrivals_of([plain | columns])))
        assert (one.kind, one.key, one.value, one.producer) == (Kind.MODIFIED, b"a", b"v", 5)
    assert module.read_few(list(arrivals_of([plain | {"kinds": [Kind.EXPIRED]}]))) is None
    assert module.read_few(list(arrivals_of([plain | {"kinds": [Kind.CREATED, Kind.REMOVED]}]))) is None
    assert module.read_few(list(arrivals_of([plain] * (module.FEW_MAX + 1)))) is None
