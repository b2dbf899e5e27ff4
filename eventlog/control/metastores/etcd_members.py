"""The members of an etcd cluster that the nodes run themselves: one at first, three (or five) once as many nodes are there.

A member joins as a learner, which has no vote, and is promoted when it has caught up: so a slow or dead newcomer never costs the
majority. One at a time; two voters last no longer than it takes the third to follow.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from eventlog.control.metastores import etcd_pb2 as pb
from eventlog.control.metastores.etcd import MEMBER_ADD, MEMBER_LIST, MEMBER_PROMOTE, MEMBER_REMOVE, STATUS, Endpoints, NotThere
from eventlog.errors import MetadataUnavailable

ADD_TRIES = 30
ADD_PAUSE_MS = 500
PROMOTE_TRIES = 100
PROMOTE_PAUSE_MS = 100
REMOVE_TRIES = 40  # etcd lets no member go while another was connected less than 5 s ago (HealthInterval of its strict check)
REMOVE_PAUSE_MS = 200
ANSWER_MS_MAX = 2_000


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdMember:
    """A member; `peer` and `clients` are `host:port`. One that has not started yet has no name and no clients."""

    id: int
    name: str
    peer: str
    clients: tuple[str, ...]
    is_learner: bool


def _member(found: pb.Member) -> EtcdMember:
    clients = tuple(url.removeprefix("http://") for url in found.clientURLs)
    return EtcdMember(
        id=found.ID, name=found.name, peer=found.peerURLs[0].removeprefix("http://"), clients=clients, is_learner=found.isLearner
    )


class EtcdMembers:
    """The members as one of them sees them."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self._endpoints = Endpoints(endpoints)

    async def read(self) -> list[EtcdMember]:
        """Return all members."""
        answer = await self._endpoints.ask(MEMBER_LIST, pb.MemberListRequest())
        return [_member(found) for found in answer.members]

    async def add(self, peer: str, *, members_max: int) -> list[EtcdMember] | None:
        """Add a learner that will listen at `peer`, unless it is a member already; return all members, None if there are enough.

        etcd takes nobody in before its members have been connected for five seconds, nor beside another learner: it is asked again.

        Raises:
            MetadataUnavailable: it did not take it in.
        """
        request = pb.MemberAddRequest(peerURLs=[f"http://{peer}"], isLearner=True)
        why = ""
        for _ in range(ADD_TRIES):
            members = await self.read()
            if any(member.peer == peer for member in members):
                return members
            if len(members) >= members_max:
                return None  # of several that come at once etcd takes one at a time
            try:
                return [_member(found) for found in (await self._endpoints.call(MEMBER_ADD, request)).members]
            except MetadataUnavailable as error:
                why = error.why
            await asyncio.sleep(ADD_PAUSE_MS / 1000)
        raise MetadataUnavailable(why=f"etcd does not take in the member at {peer}: {why}")

    async def promote(self, peer: str) -> None:
        """Give the learner at `peer` a vote when it has caught up.

        Raises:
            MetadataUnavailable: it did not catch up in time.
        """
        why = ""
        for _ in range(PROMOTE_TRIES):
            found = next((member for member in await self.read() if member.peer == peer), None)
            if found is not None and not found.is_learner:
                return
            try:
                if found is not None:
                    await self._endpoints.call(MEMBER_PROMOTE, pb.MemberPromoteRequest(ID=found.id))
            except MetadataUnavailable as error:
                why = error.why  # "not in sync with leader" so far
            await asyncio.sleep(PROMOTE_PAUSE_MS / 1000)
        raise MetadataUnavailable(why=f"the etcd member at {peer} was not promoted: {why}")

    async def answers(self, member: EtcdMember) -> bool:
        """Return whether a member that has started runs, with or without others."""
        own = Endpoints(member.clients)
        try:
            await own.call(STATUS, pb.StatusRequest(), timeout_ms=ANSWER_MS_MAX)
        except MetadataUnavailable:
            return False
        finally:
            await own.close()
        return True

    async def remove(self, peer: str) -> None:
        """Remove the member at `peer`, if it is one: its directory is gone, or its node was removed.

        Raises:
            MetadataUnavailable: it is still one; etcd lets none go without which it could not commit.
        """
        why = ""
        for _ in range(REMOVE_TRIES):
            found = next((member for member in await self.read() if member.peer == peer), None)
            if found is None:
                return
            try:
                await self._endpoints.call(MEMBER_REMOVE, pb.MemberRemoveRequest(ID=found.id), timeout_ms=5_000)
            except MetadataUnavailable as error:
                why = error.why
            except NotThere:  # an earlier try went through, and the member that was read from did not know yet
                continue
            await asyncio.sleep(REMOVE_PAUSE_MS / 1000)
        raise MetadataUnavailable(why=f"etcd does not let go of the member at {peer}: {why}")

    async def close(self) -> None:
        """Let go of the connections."""
        await self._endpoints.close()
