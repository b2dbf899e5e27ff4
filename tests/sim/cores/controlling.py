"""One process as the controller, when it is its turn: holds the key, asks the product's controller what to do, and commits that."""

import asyncio
from collections.abc import Callable
from typing import Final

from eventlog.control.controller import Controller, ControllerOptions, Situation
from eventlog.control.records import CONTROLLER_KEY, CommitPlan, ControllerRecord, encode
from eventlog.control.view import ClusterView
from eventlog.errors import MetadataConflict, MetadataUnavailable
from tests.sim.cores.records import Records

_TURN_S: Final = 0.1
_COMMITS_PER_TURN_MAX: Final = 16


class Controlling:
    """The controller's task of one process. `dead` says which members do not answer."""

    def __init__(self, records: Records, *, dead: Callable[[], frozenset[int]], now_ms: Callable[[], int]) -> None:
        self._records = records
        self._dead = dead
        self._now_ms = now_ms
        self._controller = Controller(ControllerOptions(balance_primaries_calm_ms=1_500, rebalance_delay_ms=0, verifies=False))

    async def run(self) -> None:
        """Take the key whenever nobody has it, and work while it is held."""
        while True:
            await asyncio.sleep(_TURN_S)
            try:
                if await self._holds_key():
                    await self._work()
            except MetadataConflict:
                self._records.see(await self._read())
            except MetadataUnavailable:
                continue

    async def _read(self) -> ClusterView:
        while True:
            try:
                return await self._records.driver.view()
            except MetadataUnavailable:
                await asyncio.sleep(_TURN_S)

    async def _holds_key(self) -> bool:
        view, member = self._records.view, self._records.driver.member
        found = view.controller
        if found is not None:
            if (found.record.node, found.record.session) == (member.number, member.session):
                return True
            holder = view.members.get(found.record.node)
            if holder is not None and holder.session == found.record.session and holder.number not in self._dead():
                return False
        record = ControllerRecord(node=member.number, session=member.session, nonce=self._records.driver.token())
        plan = CommitPlan(expect={CONTROLLER_KEY: found.revision if found else 0}, puts={CONTROLLER_KEY: encode(record)})
        await self._commit(plan)
        return True

    async def _work(self) -> None:
        for _ in range(_COMMITS_PER_TURN_MAX):
            situation = Situation(view=self._records.view, dead=self._dead(), now_ms=self._now_ms())
            plan = self._controller.next_commit(situation, nonce=self._records.driver.token())
            if plan is None:
                return
            await self._commit(plan)

    async def _commit(self, plan: CommitPlan) -> None:
        revision = await self._records.driver.carry_out(plan)
        self._records.see(self._records.view.after(plan, revision))
