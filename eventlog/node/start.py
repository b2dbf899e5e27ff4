"""Starting a node: metadata, store, recovery, a new primary term, its adoption, the state; in this order.

Being primary does not survive a process: the node is appointed again under epoch + 1, appends a marker of that epoch to every
segment, and serves once those are on disk.
"""

import logging

import numpy as np

from eventlog.batch.layout import ValueHead, encode_value
from eventlog.consume.steps import StepIndex
from eventlog.consume.watermark import LowWatermark, Promises
from eventlog.ids import ID_STEP, FlakeClock
from eventlog.node.caches import Caches, CacheState
from eventlog.node.checkpoint import load_counts, load_marks
from eventlog.node.replay import replay
from eventlog.replication import PrimaryCore
from eventlog.segment.keys import decode_step, encode_epoch, log_key, step_range
from eventlog.segment.port import LogEnds, Store

log = logging.getLogger("eventlog.node")
MARKER_CACHE = 0


def take_over(store: Store, *, clock: FlakeClock, core: PrimaryCore, ends: np.ndarray, epochs: np.ndarray) -> None:
    """Become primary of all segments under `epochs`, with a log that reaches `ends`, and adopt the tail.

    One marker a segment, all in one write: a value without events in cache 0, and the epoch's first id.
    """
    segments = np.arange(store.segments)
    core.appoint(segments, epochs=epochs, ends=ends, in_sync=[0], needed=1)
    base = clock.next(store.segments)
    ids = base + segments * ID_STEP
    values, meta = [], []
    for segment, id_, epoch in zip(segments.tolist(), ids.tolist(), epochs.tolist(), strict=True):
        head = ValueHead(flags=0, sections=0, epoch=epoch, count=0, bitmap=0, kinds=0, producers=0, base=id_, first_offset=0)
        values.append((log_key(segment, MARKER_CACHE, id_), encode_value(head, segment=segment, cache=MARKER_CACHE, sections=[])))
        meta.append(encode_epoch(segment, epoch, id_))
    core.append_marker(segments, ids)
    store.append(values, meta)
    store.sync(LogEnds(ids=ids, epochs=epochs.astype(np.uint32)))
    core.acknowledged(0, segments, ids)
    assert core.adopted.all(), "a set of one adopts with its own acknowledgement"


def bring_state_up(store: Store, caches: Caches, core: PrimaryCore) -> None:
    """Load counters and producers, and apply what the log has above the marks."""
    marks, _ = load_marks(store)
    for cache in caches:
        load_counts(store, cache)
    done = replay(store, caches, marks=marks, watermark=core.watermark)
    log.info("state_replayed values=%d events=%d", done.values, done.events)


def lead(core: PrimaryCore) -> tuple[Promises, LowWatermark]:
    """Return the promises and limits of a node that leads all segments."""
    segments = np.arange(core.segments)
    promises, low = Promises(core.segments), LowWatermark(core.segments)
    promises.lead(segments, epochs=core.epochs.astype(np.int64), last_ids=core.watermark.copy())
    low.hold(segments, core.watermark)
    return promises, low


def load_steps(store: Store, caches: Caches) -> StepIndex:
    """Return the index of the log by id, with what came after each cache's last step."""
    steps = StepIndex()
    for cache in caches:
        rows = [decode_step(pair) for pair in store.read_meta(*step_range(cache.cache_id))]
        steps.load(rows)
        _count_tail(store, steps, cache)
    return steps


def _count_tail(store: Store, steps: StepIndex, cache: CacheState) -> None:
    from eventlog.batch.layout import read_head
    from eventlog.segment.keys import log_range

    last = steps.last(cache.cache_id)
    events = nbytes = 0
    for segment in range(store.segments):
        lower, upper = log_range(segment, cache.cache_id, after=last.id, upto=(1 << 63) - 2)
        while True:
            pairs = store.read_log(lower, upper, bytes_max=4 << 20)
            if not pairs:
                break
            for _, data in pairs:
                events += read_head(data, where="tail").count
                nbytes += len(data)
            lower = pairs[-1][0] + b"\0"
    steps.add_tail(cache.cache_id, events=events, nbytes=nbytes)
