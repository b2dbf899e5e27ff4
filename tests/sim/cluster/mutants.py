"""Planted bugs of the protocol that runs of a cluster find: those of `tests/sim/cores`, by name, with a seed that finds each.

Where whole nodes have another rule against the same damage, that one is taken away as well.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tests.sim.cores.mutants import MUTANTS as OF_CORES
from tests.sim.planting import Make, instead


def _go_on_with_what_was_led(original: Any) -> Any:
    """Begin what was led before without a term of its own."""

    async def appoint(self: Any, *, accepts_loss: bool = False) -> Any:
        own = [found.record for found in (await self.view()).segments.values() if found.record.primary == self.member.number]
        return own or await original(self, accepts_loss=accepts_loss)

    return appoint


async def _take_anybody_for_a_member(_self: Any, _number: int, _incarnation: str, **_: Any) -> None:
    return None


_ALSO: Final[Mapping[str, tuple[tuple[str, Make], ...]]] = {
    "primary goes on after a restart": (("eventlog.control.cluster:ClusterRecords.appoint", _go_on_with_what_was_led),),
    "acknowledgement of another incarnation": (("eventlog.node.cluster.peers:Peers._check_member", instead(_take_anybody_for_a_member)),),
}
_SEEDS: Final[Mapping[str, int]] = {
    "no epoch check": 11,
    "sender not compared with the record": 3,
    "higher epoch believed": 0,
    "refusal of a higher epoch believed": 23,
    "snapshot begun by a non-primary": 3,
    "acknowledgement of another incarnation": 12,
    "promise of a non-primary": 0,
    "two terms under one epoch": 0,
    "primary goes on after a restart": 0,
    "watermark waits for the proposed set alone": 8,
    "watermark waits for the recorded set alone": 11,
    "set smaller than its least size": 47,
    "watermark taken without a match": 23,
    "truncation to the own watermark": 0,
    "append over a gap": 0,
    "backup answers before its sync": 8,
    "primary counts itself before its sync": 0,
    "id clock not raised on takeover": 3,
    "no floor": 1,
    "promise above the lease": 39,
    "promise ignores what is in flight": 0,
    "promise served without its last event": 3,
    "lost disk electable": 19,
    "checksum not checked": 33,
    "cover not compared": 6,
    "near cache's probe answered by one node alone": 0,
}

MUTANTS: Final = tuple(
    replace(mutant, seed=_SEEDS[mutant.name], also=mutant.also + _ALSO.get(mutant.name, ())) for mutant in OF_CORES if mutant.name in _SEEDS
)
