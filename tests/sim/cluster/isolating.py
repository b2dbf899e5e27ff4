"""A member of a group that is cut off right when one commits.

Either who commits cannot speak until another member reads the segment: the commit comes right then. Or another one cannot hear for less
than a session, and the clock of the node that coordinates the group jumps meanwhile: its session goes on all the same.
"""

from collections.abc import Collection
from typing import Any, Final

from tests.sim.cluster.homing import Home
from tests.sim.cluster.swarm import Fault
from tests.sim.cluster.world import ClusterWorld

_STRUCK: Final = 0.3  # of the commits, where none was for a while
_BETWEEN_US: Final = 1_000_000
_LOOK_US: Final = 1_000
_LOOKS_MAX: Final = 4_000  # more than a session lasts
_DEAF_US: Final = 700_000
_JUMP_MS: Final = 4_000  # more than a session


class Isolation:
    """Half of the runs are without it: a member that is cut off is none to which something else happens. Where clocks jump, one is deaf."""

    def __init__(self, world: ClusterWorld, home: Home, members: Collection[Any]) -> None:
        self._world = world
        self._home = home
        self._members = members
        self._ready_us = 0 if world.chance.random() < 0.5 else world.swarm.faults_ms * 1000

    def commits(self, member: Any, segment: int) -> None:
        """Hear that a member is about to commit, and perhaps cut it or another one off."""
        world = self._world
        if world.is_over or world.scheduler.now_us < self._ready_us or world.chance.random() > _STRUCK:
            return
        if Fault.CLOCK in world.swarm.intervals_ms:
            self._deafen(member)
        else:
            self._silence(member, segment)

    def _silence(self, member: Any, segment: int) -> None:
        world = self._world
        ways = [(member.name, host.name) for host in world.hosts]
        world.network.cut_ways(ways)

        def look(left: int) -> None:
            others = (other for other in self._members if other is not member and other.is_awake)
            is_taken = any(segment in other.assignment for other in others)
            if not is_taken and left and not world.is_over:
                world.scheduler.after(_LOOK_US, lambda: look(left - 1))
                return
            if is_taken:
                world.reached["commit held up"] += 1
            self._ready_us = world.scheduler.now_us + _BETWEEN_US
            world.network.mend_ways(ways)

        self._ready_us = world.scheduler.now_us + _LOOKS_MAX * _LOOK_US
        look(_LOOKS_MAX)

    def _deafen(self, member: Any) -> None:
        world = self._world
        primary = self._home.primary()
        others = [other for other in self._members if other is not member and other.is_awake and other.assignment]
        if primary is None or not primary.may_jump or not others:
            return
        primary.jump(_JUMP_MS)
        world.reached["clock jumped while a member was deaf"] += 1
        self._ready_us = world.scheduler.now_us + _DEAF_US + _BETWEEN_US
        deaf = world.chance.choice(others)
        ways = [(host.name, deaf.name) for host in world.hosts]
        world.network.cut_ways(ways)
        world.scheduler.after(_DEAF_US, lambda: world.network.mend_ways(ways))
