"""Who says what is not true: a stranger under the name of a member, and a member that speaks of what no record gives it.

Everything said is made for the log as it is at that moment, as one would say it who sees all: only that it comes from somebody who may
not say it keeps it from counting. What a record gives a member is left alone, for its word counts there: a primary's rows, and how far
the log of an in-sync replica is.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from eventlog.ids import ID_MAX, ID_STEP, TIME_SHIFT
from eventlog.limits import NODE_NUMBER_MAX
from eventlog.read.watermark import Promise
from eventlog.replication import Message, Replica
from eventlog.replication.columns import Row
from eventlog.replication.messages import ACK, APPEND, BEGIN, CUT, HELD, STALE
from tests.sim.cores.clients import primary_of
from tests.sim.cores.history import Value
from tests.sim.cores.node import Host
from tests.sim.cores.packets import Acks, Packet, Promised, Rows
from tests.sim.cores.state import State, ints
from tests.sim.cores.world import FIRST_CLIENT, World

_STRANGER: Final = FIRST_CLIENT - 1  # where it is in the network
_ABSURD: Final = (1 << 32) - 2
_SINGLED_OUT: Final = 0.5  # of the times that a stranger speaks
_SINGLED_OUT_MS: Final = 2_000
_LATE: Final = 1 << 40  # above the number of every message so far


@dataclass(frozen=True, slots=True)
class _Lie:
    """`source` is where it comes from in the network, `sender` who it is said to be from."""

    source: int
    sender: Replica
    target: State
    segment: int

    @property
    def known(self) -> int:
        """Return the epoch that the target knows."""
        return self.target.core.epochs.item(self.segment)

    @property
    def end(self) -> int:
        """Return where the target's log ends."""
        return self.target.core.ends.item(self.segment)


class Liars:
    """The two of them; each lie is about a segment at a host."""

    def __init__(self, world: World, hosts: Mapping[int, Host], *, part: Callable[[int], None]) -> None:
        self._world = world
        self._hosts = hosts
        self._part = part
        self._singled_out_until_us = 0
        self.is_over = False

    def stranger(self) -> None:
        """Speak as a node that nobody knows, or as a member's node with another data directory."""
        chance, members = self._world.random, self._running()
        if not members:
            return
        of = chance.choice(members).core.own
        number = NODE_NUMBER_MAX if chance.random() < 0.2 else of.node
        target, segment = chance.choice(members), chance.randrange(self._world.swarm.segments)
        record = primary_of(self._world, segment)
        if record is not None and chance.random() < 0.5:
            number = record.primary
        sender = Replica(number, "of a stranger")
        self._tell(_Lie(_STRANGER, sender, target, segment), epochs=(0, 0, 1, _ABSURD))
        if chance.random() < _SINGLED_OUT:
            self._single_out()

    def _single_out(self) -> None:
        """Have a primary with backups part from all other hosts for so long that another is appointed; acknowledge in their place."""
        now_us, primaries = self._world.scheduler.now_us, [state for state in self._running() if self._awaited(state)]
        if primaries and now_us >= self._singled_out_until_us:
            self._singled_out_until_us = now_us + 2 * _SINGLED_OUT_MS * 1000
            primary = self._world.random.choice(primaries)
            self._part(primary.host)
            for after_ms in range(20, _SINGLED_OUT_MS, 20):
                self._world.scheduler.after(after_ms * 1000, lambda: self._acknowledge(primary))

    def _awaited(self, primary: State) -> list[tuple[int, int]]:
        """Return the others whom a primary waits for, each with a segment."""
        core, found = primary.core, []
        for segment in core.adopted.nonzero()[0].tolist():
            found += [(segment, replica.node) for replica in sorted(core.in_sync(segment)) if replica != core.own]
        return found

    def _acknowledge(self, primary: State) -> None:
        """Tell a primary that all of its logs is on the disks of its backups, as other incarnations of them."""
        for segment, node in [] if self.is_over else self._awaited(primary):
            lie = _Lie(_STRANGER, Replica(node, "of a stranger"), primary, segment)
            self._answer(lie, (segment, HELD, lie.known, lie.end, 0, 0))

    def member(self) -> None:
        """Speak as a member of a segment that it does not lead."""
        chance, members = self._world.random, self._running()
        segment = chance.randrange(self._world.swarm.segments)
        record = primary_of(self._world, segment)
        others = [state for state in members if record is not None and state.core.own.node != record.primary]
        if not others:
            return
        liar = chance.choice(others)
        self._world.liars.add(liar.core.own)
        for target in members:
            term = target.core.term(segment)
            if target is not liar and term is not None and term.primary != liar.core.own.node:
                self._tell(_Lie(liar.host, liar.core.own, target, segment), epochs=(0, 0, _ABSURD))

    def _running(self) -> list[State]:
        nodes = [host.node for host in self._hosts.values()]
        return [node.state for node in nodes if node is not None and node.state is not None]

    # ------------------------------------------------------------ what is said

    def _tell(self, lie: _Lie, *, epochs: tuple[int, ...]) -> None:
        """Say one thing; epochs of 0 and 1 are the one that the target knows and the one after it."""
        chance = self._world.random
        epoch = chance.choice(epochs)
        tell: Callable[[_Lie, int], None] = chance.choice(
            (self._append, self._cut, self._begin, self._begin, self._commit, self._refuse, self._promise)
        )
        tell(lie, epoch if epoch == _ABSURD else lie.known + epoch)

    def _append(self, lie: _Lie, epoch: int) -> None:
        """Append an event that nobody asked for, and call it committed."""
        value = Value(lie.end + ID_STEP, lie.end + ID_STEP, epoch, (self._world.number(),))
        self._send(lie, (lie.segment, 0, epoch, lie.end, value.last, value.last, 1, 0), values=(value,))

    def _cut(self, lie: _Lie, epoch: int) -> None:
        """Have cut what the target does not know to be committed."""
        watermark = lie.target.core.watermark.item(lie.segment)
        if watermark < lie.end:
            self._send(lie, (lie.segment, CUT, epoch, lie.end, watermark, 0, 0, 0))

    def _begin(self, lie: _Lie, epoch: int) -> None:
        """Begin a snapshot, for which the target is to drop what it has."""
        self._send(lie, (lie.segment, BEGIN, epoch, _LATE, lie.end, lie.end, 0, 0))

    def _commit(self, lie: _Lie, epoch: int) -> None:
        """Call all committed that the target has."""
        self._send(lie, (lie.segment, 0, epoch, lie.end, lie.end, lie.end, 0, 0))

    def _refuse(self, lie: _Lie, epoch: int) -> None:
        """Know of a higher epoch."""
        self._answer(lie, (lie.segment, STALE, max(epoch, lie.known + 1), 0, 0, 0))

    def _promise(self, lie: _Lie, epoch: int) -> None:
        """Promise that nothing will be committed any more, up to an id a little or far above those of now."""
        id_ = self._world.random.choice((lie.target.clock.last + (1_000 << TIME_SHIFT), ID_MAX))
        promise = Promise(id=id_, segments=ints(lie.segment), epochs=ints(epoch), last_ids=ints(0))
        self._post(lie, Promised(sender=lie.sender, promise=promise))

    def _send(self, lie: _Lie, row: Row, *, values: tuple[Value, ...] = ()) -> None:
        rows = np.array([row], APPEND).tobytes()
        message = Message(sender=lie.sender, recipient=lie.target.core.own, correlation=_LATE, rows=rows)
        self._post(lie, Rows(message=message, values=values, is_lie=True))

    def _answer(self, lie: _Lie, row: tuple[int, int, int, int, int, int]) -> None:
        rows = np.array([row], ACK).tobytes()
        message = Message(sender=lie.sender, recipient=lie.target.core.own, correlation=_LATE, rows=rows)
        self._post(lie, Acks(message=message, is_lie=True))

    def _post(self, lie: _Lie, packet: Packet) -> None:
        self._world.reached["lie told"] += 1
        self._world.send(lie.source, lie.target.host, packet)
