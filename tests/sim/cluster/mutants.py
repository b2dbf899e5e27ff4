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
_SEEDS: Final[Mapping[str, int]] = {}

MUTANTS: Final = tuple(
    replace(mutant, seed=_SEEDS[mutant.name], also=mutant.also + _ALSO.get(mutant.name, ())) for mutant in OF_CORES if mutant.name in _SEEDS
)
