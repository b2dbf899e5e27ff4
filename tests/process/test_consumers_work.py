"""A work group while things go wrong: every event is done, none is handed out again that was acknowledged, keys stay in order."""

import time
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import pytest

import eventlog.blocking
from eventlog.errors import EventsTrimmed
from tests.process.clusters import ClusterProcesses
from tests.process.group_checks import out_of_order, worked_twice
from tests.process.group_member import CACHE, SESSION_MS, GroupMember
from tests.process.nodes import NodeProcess
from tests.process.test_consumers_groups import coordinator_of, more, until

KEYS = 40
EVENTS_A_FAULT = 200


class Writing:
    """Puts rising numbers under a few keys, as often as a test says."""

    def __init__(self, cache: eventlog.blocking.Cache) -> None:
        self.ids: list[int] = []
        self._cache = cache
        self._number = 0

    def more(self) -> None:
        for _ in range(EVENTS_A_FAULT // KEYS):
            self._number += 1
            self.ids += [int(id_) for id_ in self._cache.put_many([(f"key-{key}", self._number) for key in range(KEYS)]).ids]


def acknowledged(members: list[GroupMember]) -> set[int]:
    return {line[2] for member in members for line in member.lines() if line[0] == "ack"}


@pytest.mark.timeout(400)
def test_kills_stops_moves_and_members_that_come_and_go(tmp_path: Path) -> None:
    with ClusterProcesses(tmp_path) as cluster, eventlog.blocking.connect(*cluster.addresses) as client, ExitStack() as stack:
        writing = Writing(client.create_cache(CACHE))
        writing.more()
        members = [stack.enter_context(GroupMember(tmp_path, f"m{number}", cluster.addresses, mode="work")) for number in range(3)]
        more(members, what="ack")
        writing.more()
        cluster.kill(coordinator_of(cluster))
        writing.more()
        more(members, what="ack")
        cluster.start()
        cluster.settle()
        writing.more()
        cluster.kill(1)
        writing.more()
        more(members, what="ack")
        cluster.start()
        cluster.settle()
        writing.more()
        cluster.command("admin", "drain", "n3")
        cluster.command("admin", "rebalance", "start", "--wait")
        writing.more()
        more(members, what="ack")
        writing.more()
        members[0].kill()
        writing.more()
        more(members[1:], what="ack")
        members[1].process.send_signal(19)
        time.sleep(2 * SESSION_MS / 1000)  # the fault itself
        members[1].process.send_signal(18)
        writing.more()
        more(members[1:], what="ack")
        until(lambda: settled(client))
        members[2].end()
        lines = [line for member in members for line in member.lines()]
        done_or_unheard = acknowledged(members) | {line[2] for line in lines if line[0] == "end"}
        assert set(writing.ids) <= done_or_unheard
        assert worked_twice(lines) == []
        assert out_of_order(lines) == []


def settled(client: eventlog.blocking.Client) -> bool:
    return sum(row.lag_events or 0 for row in client.groups.describe("g")[0].segments) == 0


def acknowledge_all(tasks: Iterable[eventlog.blocking.Task]) -> None:
    for task in tasks:
        task.ack()


def test_retention_that_passes_what_is_not_done_is_said(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "--segments", "1") as node, eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache(CACHE)
        cache.put_many([(f"k{n}", n) for n in range(10)])
        with cache.consumer("w", mode="work", prefetch=1) as workers:
            next(iter(workers)).ack()
        for part in range(20):
            cache.put_many([(f"k{n}", f"{part}-{n}") for n in range(1_000)])
        client.alter_cache(CACHE, retain_events=100)
        assert client.run_retention(CACHE).removed > 0
        with cache.consumer("w", mode="work") as workers, pytest.raises(EventsTrimmed) as trimmed:
            acknowledge_all(workers)  # what was read before it was removed
        assert trimmed.value.lost > 0
        with cache.consumer("w", mode="work", on_trimmed="earliest") as workers:
            assert next(iter(workers)).event.id >= trimmed.value.first_id
