"""Segments led here that lack in-sync replicas: what is new is refused at once, what is in flight is answered as unknown.

A group in flight there cannot end before a replica is back, and nobody knows when that is. So after `ack_ms_max` its writers are told
that the outcome is unknown, and its other segments go on. What of it waits stays in the log, is `stuck`, and comes into the state as on
a backup once it is committed.
"""

import logging
from collections.abc import Iterable
from typing import Protocol

import numpy as np

from eventlog.arrays import Ints, Mask
from eventlog.errors import EventLogError, NotEnoughReplicas, NotPrimary
from eventlog.node.cluster.metadata import Metadata
from eventlog.node.state.following import Followed
from eventlog.replication import Replication

log = logging.getLogger("eventlog.node")


class ShortageReplicas(Protocol):
    """What is led here: the core, what is served, and groups in flight."""

    core: Replication
    serving: Mask

    @property
    def now_ms(self) -> int: ...

    def settle(self, segments: frozenset[int]) -> None: ...

    def take_in(self, segments: Ints, ends: Ints) -> None: ...


class Waiting(Protocol):
    """Writes that wait for a group."""

    def wake(self) -> None: ...

    def refuse_waiting(self, short: Mask) -> None: ...

    def freed(self, segments: Iterable[int]) -> None: ...


class ShortageGround(Protocol):
    """What this module needs of the node."""

    metadata: Metadata
    followed: Followed

    @property
    def writer(self) -> Waiting: ...


class Shortage:
    """`writable`: which segments take writes here now. Read by anyone; whatever changes what it depends on calls `look`."""

    def __init__(self, node: ShortageGround, replicas: ShortageReplicas) -> None:
        self._node = node
        self._replicas = replicas
        self._core = replicas.core
        self.short = np.zeros(self._core.segments, bool)
        self.writable = np.zeros(self._core.segments, bool)
        self.stuck: set[int] = set()

    def look(self) -> None:
        """See what is short now; refuse writes that wait for a group there, and give groups up that have waited for too long."""
        now_ms = self._replicas.now_ms
        short = self._core.short(now_ms=now_ms)
        gained = short & ~self.short
        self.short = short
        is_more = np.count_nonzero(self.mark() & ~gained)
        if np.count_nonzero(gained):
            log.warning("short_of_replicas segments=%d of=%d", np.count_nonzero(short), np.count_nonzero(self._core.leads))
            self._node.writer.refuse_waiting(gained)
        elif is_more:
            self._node.writer.wake()
        if np.count_nonzero(short):
            self._give_up(short & self._replicas.serving & self._core.overdue(now_ms=now_ms))

    def mark(self) -> Mask:
        """Set `writable` anew; return where it is that was not."""
        before = self.writable.copy()
        np.logical_and(self._replicas.serving, ~self.short, out=self.writable)
        return self.writable & ~before

    def refusal(self, segment: int) -> EventLogError:
        """Return why a segment takes no writes here."""
        core = self._core
        if not (core.leads[segment] and self.short[segment]):
            return NotPrimary(segment=segment)
        view, needed = self._node.metadata.view, int(core.primary.needed[segment])
        missing = core.missing(segment, now_ms=self._replicas.now_ms)
        names = [view.nodes[replica.node].record.name if replica.node in view.nodes else str(replica.node) for replica in missing]
        have = int(core.primary.sizes[segment]) - len(missing)
        return NotEnoughReplicas(segment=segment, have=have, need=needed, missing=names)

    # ------------------------------------------------------------ in flight

    def _give_up(self, overdue: Mask) -> None:
        segments = frozenset(np.flatnonzero(overdue).tolist()) - self.stuck
        if segments:
            log.warning("writes_given_up segments=%d", len(segments))
            self._node.followed.take_up(np.array(sorted(segments), np.int64))
            self.stuck |= segments
            self._replicas.settle(segments)

    def committed(self) -> None:
        """Bring what was given up and is committed after all into the state; then its segments may be written again."""
        ends, watermark = self._core.ends, self._core.watermark
        done = [segment for segment in self.stuck if watermark.item(segment) >= ends.item(segment)]
        if done:
            at = np.array(sorted(done), np.int64)
            self._replicas.take_in(at, ends[at])
            self.forget(done)

    def forget(self, segments: "frozenset[int] | list[int]") -> None:
        """Take note that nothing given up is in flight in some segments any more: it is committed, or another node leads them."""
        freed = self.stuck.intersection(segments)
        if freed:
            self.stuck -= freed
            self._node.writer.freed(freed)
