"""What a node does by the clock: id lease, wall clocks compared, checkpoints of the state, lifespans, free space, retention, groups."""

import asyncio
import logging
import time
from contextlib import suppress
from functools import partial

import numpy as np

from eventlog.control.operators import end_previous_key
from eventlog.errors import DiskFull, EventLogError, MetadataConflict
from eventlog.limits import BALLAST_BYTES, EXPIRE_PER_TURN_MAX, KEY_INDEX_BYTES_MAX, LEASE_RENEW_MS, LOOP_DELAY_WARN_MS
from eventlog.node.background import aside, every
from eventlog.node.consumers.coordinator_admin import DroppedGroups
from eventlog.node.disk import keep_ballast, shrink_ballast
from eventlog.node.freed_memory import GIVE_BACK_MS, FreedMemory
from eventlog.node.node import Node
from eventlog.node.state.checkpoint import Puts
from eventlog.node.state.expiry import Expirer
from eventlog.node.state.keys_build import give_up_tables

log = logging.getLogger("eventlog.node")
_CHECKPOINT_MS = 1_000
_EXPIRY_MS = 1_000
_DISK_MS = 250
_ROOM_MS = 2_000
_BALLAST_LOOKS = 4  # how often the disk is looked at before the journal's size is asked of it although nothing was appended
_SETTLE_MS = 1_000  # what the engine wrote since is checked event by event, or not at all, if a file of it gets lost
_CLOSE_UP_MS = 500
_CLOCKS_MS = 1_000
_GROUPS_MS = 1_000
_KEY_MS = 1_000


class Periodic:
    """The periodic work of a node; `start` gives each piece a task that the node owns."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._expirer = Expirer(
            store=node.store,
            entries=node.entries,
            serving=node.replicas.serving,
            submit=node.writer.submit,
            delete_rows=self._delete_rows,
        )
        self._close_up_due_ms = 0
        self._looks = 0
        self._ends = node.core.ends.copy()
        self._key_seen = 0, 0.0  # revision of the cluster key's record, and since when it has been known here

    def start(self) -> None:
        """Begin."""
        works = {
            "lease": (LEASE_RENEW_MS, self._node.lease.renew),
            "checkpoint": (_CHECKPOINT_MS, self._node.checkpoints.write),
            "expiry": (_EXPIRY_MS, self.expire),
            "disk": (_DISK_MS, self._look_at_disk),
            "room": (_ROOM_MS, self._make_room),
            "settle": (_SETTLE_MS, self._settle),
            "clocks": (_CLOCKS_MS, self._hear_clocks),
            "groups": (_GROUPS_MS, self._node.coordinators.tidy),
            "cluster key": (_KEY_MS, self._end_older_key),
            "dropped groups": (_GROUPS_MS, DroppedGroups(self._node).tick),
            "freed memory": (GIVE_BACK_MS, FreedMemory().give_back),
            "close_up": (_CLOSE_UP_MS, self._close_up),
            "retention": (self._node.config.retention_interval_ms, self._node.retention.run_all),
        }
        for name, (interval_ms, act) in works.items():
            work = every(interval_ms, act, name=name, failures=self._node.failures, is_shared=name == "lease")
            self._node.own(asyncio.create_task(work, name=name))

    async def _end_older_key(self) -> None:
        """End the cluster key that was replaced, when members have had the time to prove the newer one."""
        view, now = self._node.view, time.monotonic()
        if view.key is None or view.key.record.previous is None:
            return
        if self._key_seen[0] != view.key.revision:
            self._key_seen = view.key.revision, now
        elif now - self._key_seen[1] >= view.key.record.overlap_ms / 1000 and (plan := end_previous_key(view)) is not None:
            with suppress(MetadataConflict):  # another node was quicker
                await self._node.records.carry_out(plan)
                log.info("cluster_key_ended revision=%d", view.key.revision)

    async def _hear_clocks(self) -> None:
        """Compare wall clocks: one that is far ahead of the others' is followed only so far."""
        self._node.clock.hear_others(self._node.peers.clocks_ahead_ms(), members=len(self._node.view.members))

    async def expire(self) -> None:
        """End lifespans. On a disk that is nearly full they wait: `get` gives none that is over, and a write without room ends the node."""
        node, now = self._node, self._node.now_2020()
        for cache in list(node.caches):
            try:
                while cache.may_expire and not (cache.dropped or node.is_stopping or node.disk.is_scarce):
                    if await self._expirer.turn(cache, now=now) < EXPIRE_PER_TURN_MAX:
                        break
            except EventLogError as error:  # this cache's lifespans wait for a repair, those of the others do not
                log.warning("expiry_failed cache=%s error=%s", cache.name, error)

    async def _delete_rows(self, rows: list[bytes]) -> None:
        puts: Puts = [(row, None) for row in rows]
        await self._node.storage.run(partial(self._node.store.apply, puts))

    async def _settle(self) -> None:
        await aside(self._node.store.settle)

    async def _look_at_disk(self) -> None:
        was_full = self._node.disk.is_full
        self._node.disk.look()
        if was_full and not self._node.disk.is_short:
            await self._resume()
        if not self._node.disk.is_full and self._may_have_grown():
            await asyncio.to_thread(self._keep_ballast)
        give_up_tables(self._node.caches, bytes_max=KEY_INDEX_BYTES_MAX)  # here because both grow with what is written
        if self._node.disk.is_full != was_full:
            self._node.reads.files.clear()
            log.warning("disk_%s free_bytes=%d", "resumed" if was_full else "full", self._node.disk.free_bytes)

    async def _resume(self) -> None:
        """Take writes again if the engine does: it may have run out of space itself, and looks for it every few seconds."""
        try:
            await self._node.storage.run(partial(self._node.store.trim, [], []))
        except DiskFull:
            return
        self._node.disk.look()
        if not self._node.disk.is_short:
            self._node.disk.resume()

    async def _make_room(self) -> None:
        """On a full disk, write the journal out, and keep no more ballast than a start needs then.

        The engine merges nothing where it lacks room for all that it would merge, be most of that deleted: room is what gives more room.
        """
        node = self._node
        if not node.disk.is_full:
            return
        if node.store.replay_bytes() > BALLAST_BYTES:
            await aside(node.store.release_journal)
        await aside(partial(shrink_ballast, node.config.data, start_bytes=node.store.replay_bytes()))

    def _may_have_grown(self) -> bool:
        """Return whether the journal may be larger than at the last look: something was appended, or that is a while ago."""
        self._looks += 1
        ends = self._node.core.ends
        if np.array_equal(ends, self._ends) and self._looks % _BALLAST_LOOKS:
            return False
        self._ends = ends.copy()
        return True

    def _keep_ballast(self) -> None:
        node = self._node
        keep_ballast(node.config.data, start_bytes=node.store.replay_bytes(), reserve_bytes=node.disk.reserve_bytes)

    async def _close_up(self) -> None:
        """Promise idle time away, so that readers' positions move on without writes; note how late the loop called this."""
        self._node.close_up()
        now_ms = int(time.monotonic() * 1000)
        delay_ms = now_ms - self._close_up_due_ms if self._close_up_due_ms else 0
        self._close_up_due_ms = now_ms + _CLOSE_UP_MS
        self._node.loop_delay_ms_peak = max(self._node.loop_delay_ms_peak, delay_ms)
        if delay_ms > LOOP_DELAY_WARN_MS:
            log.warning("loop_delayed ms=%d", delay_ms)
