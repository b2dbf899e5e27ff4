"""The figures of a node for Prometheus: counters, and every bounded thing as used, limit and, where somebody keeps it, peak."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Protocol

from eventlog import limits
from eventlog.ids import TIME_SHIFT, time_of
from eventlog.node.node import Node

Row = tuple[str, int, int, int | None]  # name, used, limit, peak, None where nobody keeps it
Counter = tuple[str, str, str, float, str]  # name, help, kind, value, labels

_HELD_MAX = 64


class HasFigures(Protocol):
    """A part that knows its bounded things: name -> (used, limit, peak)."""

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return them."""
        ...


def bounded(node: Node, servers: Sequence[HasFigures]) -> Iterator[Row]:
    """Yield every bounded thing of the node and of what it is served by."""
    yield "write_queue_bytes", node.writer.queue.nbytes, limits.PROCESS_BYTES_IN_FLIGHT_MAX, node.writer.queue.peak
    yield "overlay_bytes", node.overlay.nbytes, limits.OVERLAY_BYTES_MAX, node.overlay.peak
    tables = sum(cache.keys.nbytes for cache in node.caches if cache.keys is not None)
    yield "key_index_bytes", tables, limits.KEY_INDEX_BYTES_MAX, None
    for name, row in node.reads.figures().items():
        yield (name, *row)
    for name, row in (node.state_reads.figures() | node.iterations.figures()).items():
        yield (name, *row)
    for name, row in (node.near.figures() | node.coordinators.figures() | node.value_gate.figures()).items():
        yield (name, *row)
    for server in (*servers, node.schemas):
        for name, row in server.figures().items():
            yield (name, *row)
    for name, (used, limit) in node.store.figures().items():
        yield f"store_{name}", used, limit, None


def counters(node: Node) -> Iterator[Counter]:
    """Yield what the node counts."""
    yield "eventlog_events_total", "Events committed since start.", "counter", node.writer.events, ""
    yield "eventlog_groups_total", "Groups committed since start, each one sync.", "counter", node.writer.groups, ""
    yield "eventlog_frames_total", "Frames of writes taken into groups since start.", "counter", node.writer.frames, ""
    yield "eventlog_answers_total", "Answers given to readers of events since start.", "counter", node.reads.given, ""
    made_help = "Answers read and judged since start: one for all that ask the same at one time."
    yield "eventlog_answers_made_total", made_help, "counter", node.reads.made, ""
    yield "eventlog_disk_free_bytes", "Free space of the data disk.", "gauge", node.disk.free_bytes, ""
    yield "eventlog_disk_reserve_bytes", "Free space below which writes are refused.", "gauge", node.disk.reserve_bytes, ""
    low = node.low.limit()
    age_ms = max(node.clock.physical_ms() - time_of(low), 0) if low else 0
    yield "eventlog_low_watermark_age_ms", "How far the low watermark lies behind the clock.", "gauge", age_ms, ""
    below = node.now_2020() - limits.STALLED_MS << TIME_SHIFT
    for segment in node.low.holders(None, below=below)[:_HELD_MAX].tolist():
        held_ms = max(node.clock.physical_ms() - time_of(int(node.low.limits[segment])), 0)
        label = f'segment="{segment}",node="{node.leader_of(segment)}"'
        yield "eventlog_segment_held_ms", "For how long a segment has held the low watermark, from 2 s on.", "gauge", held_ms, label
    delay_help = "The longest that the event loop was held up since start."
    yield "eventlog_loop_delay_ms_peak", delay_help, "gauge", node.loop_delay_ms_peak, ""
    refused_help = "Greetings refused since start: of no member, of another cluster, or of a version that cannot be mixed with this."
    yield "eventlog_greetings_refused_total", refused_help, "counter", node.peers.greetings_refused, ""
    yield "eventlog_log_repaired_total", "Damaged stored values mended from other nodes since start.", "counter", node.mending.repaired, ""
    for name, failed in sorted(node.failures.items()):
        yield "eventlog_periodic_failed_total", "Times that periodic work failed since start.", "counter", failed, f'work="{name}"'
    listeners = node.listeners.figures()
    yield "eventlog_listeners_kept", "Listeners whose routes this node leads.", "gauge", listeners["kept"], ""
    held_help = "The most that a durable listener kept here has used up of what it may hold back, in percent."
    yield "eventlog_listener_held_percent_max", held_help, "gauge", listeners["held_percent_max"], ""
    for cache in node.caches:
        label = f'cache="{cache.name}"'
        yield "eventlog_cache_events", "Events kept.", "gauge", cache.events_kept, label
        yield "eventlog_cache_entries", "Entries of the current state.", "gauge", int(cache.live.sum()), label


def metrics_page(
    node: Node, servers: Sequence[HasFigures], render: Callable[[Iterator[Counter], Iterator[Row]], str], *, more: Iterable[Counter] = ()
) -> str:
    """Return the page of `/metrics`; `more` is what is counted beside the node."""
    return render(chain(counters(node), more), bounded(node, servers))
