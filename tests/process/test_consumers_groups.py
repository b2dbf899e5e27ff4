"""Members of groups that come and go as processes do, and what retention does to them. `test_consumers_faults` has the other faults."""

import signal
import threading
import time
from contextlib import ExitStack, suppress
from itertools import islice
from pathlib import Path
from types import FrameType

import pytest

import eventlog.blocking
from eventlog.errors import ClientClosed, EventsTrimmed, InvalidArgument
from eventlog.groups.record import GROUPS_CACHE
from tests.process.group_checks import gaps, read_twice
from tests.process.group_member import CACHE, SESSION_MS, GroupMember
from tests.process.nodes import RETENTION_WHEN_TOLD, NodeProcess
from tests.process.trials import Load
from tests.process.waiting import until


def more(members: list[GroupMember], count: int = 60, what: str = "read") -> None:
    """Wait until the members together have seen that much more."""

    def seen() -> int:
        return sum(line[0] == what for member in members for line in member.lines())

    before = seen()
    until(lambda: seen() >= before + count)


def read_all(members: list[GroupMember], values: set[str]) -> None:
    """Wait until every value has been read by somebody."""
    until(lambda: values <= {line[4] for member in members for line in member.lines() if line[0] == "read"})


def judge(members: list[GroupMember], load: Load) -> None:
    history = load.end()
    written = {value for operation in history.operations if operation["outcome"] == "ok" for value in operation["values"]}
    read_all(members, written)
    lines = [line for member in members for line in member.lines()]
    assert gaps(lines) == []
    assert read_twice(lines) == []


def test_members_that_are_killed_stopped_and_leave_are_replaced(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node", "--segments", "16") as node, ExitStack() as stack:
        load = stack.enter_context(Load(tmp_path, [node.address], options=("--writers=2", "--readers=0")))
        load.busy()
        members = [stack.enter_context(GroupMember(tmp_path, f"m{number}", [node.address])) for number in range(3)]
        more(members)
        members[0].kill()
        more(members[1:])
        members[1].process.send_signal(19)
        time.sleep(2 * SESSION_MS / 1000)  # the fault itself
        more(members[2:])
        members[1].process.send_signal(18)
        members.append(stack.enter_context(GroupMember(tmp_path, "m0", [node.address])))  # killed, and started again
        more(members[3:])
        members[2].end()
        more(members)
        judge(members[:3], load)  # the fourth writes into the file of the first
        assert f'"{GROUPS_CACHE}"' not in node.command("cache", "list", "--json").stdout.decode()


def test_retention_that_passes_the_position_is_said(tmp_path: Path) -> None:
    with (
        NodeProcess(tmp_path, "--segments", "4", environment=RETENTION_WHEN_TOLD) as node,
        eventlog.blocking.connect(node.address) as client,
    ):
        cache = client.create_cache(CACHE)
        cache.put_many([(f"k{n}", n) for n in range(100)])
        with cache.consumer("g", auto_commit=False) as consumer:
            for batch in consumer.batches(10):
                consumer.commit(batch)
                break
        for part in range(20):
            cache.put_many([(f"k{n}", f"{part}-{n}") for n in range(1_000)])
        client.alter_cache(CACHE, retain_events=100)
        assert client.run_retention(CACHE).removed > 0
        with cache.consumer("g") as consumer, pytest.raises(EventsTrimmed) as trimmed:
            for _ in consumer:
                pass  # of segments where nothing was committed, what is kept
        assert trimmed.value.lost > 0
        with cache.consumer("g", on_trimmed="earliest") as consumer:
            assert all(event.id >= trimmed.value.first_id for event in islice(consumer, 50))


def test_blocking_callers_consume_too(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "--segments", "4") as node, eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache(CACHE)
        cache.put_many([(f"k{n}", n) for n in range(100)])
        for use in (iter, lambda consumer: consumer.batches()):
            with pytest.raises(InvalidArgument, match="not open"):
                next(iter(use(cache.consumer("g"))))
        with pytest.raises(InvalidArgument, match="not open"):
            cache.consumer("g").commit()
        with pytest.raises(InvalidArgument, match="not open"):
            next(iter(cache.consumer("w", mode="work")))
        with cache.consumer("g") as consumer:
            found = [event.value for _ in range(2) for event in islice(consumer, 30)]
        with cache.consumer("g") as consumer:
            found += [event.value for event in islice(consumer, 40)]
        assert sorted(found) == list(range(100))
        assert [group.group for group in client.groups.list()] == ["g"]
        with cache.consumer("left") as consumer:
            events = iter(consumer)
            next(events)
        with pytest.raises(ClientClosed):
            next(events)  # the rest of what it had fetched is the next member's
        with cache.consumer("w", mode="work") as workers:
            for task in islice(workers, 100):
                assert task.deliveries == 1
                task.ack()
        assert sum(row.lag_events for row in client.groups.describe("w")[0].segments) == 0


def test_no_batch_is_lost_to_interrupts(tmp_path: Path) -> None:
    def interrupt(_: int, frame: FrameType | None) -> None:
        if frame is not None and frame.f_code is threading.Condition.wait.__code__:  # elsewhere the test would lose what it was given
            raise KeyboardInterrupt

    with NodeProcess(tmp_path, "--segments", "4") as node, eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache(CACHE)
        last = cache.put_many([(f"k{n}", n) for n in range(2_000)]).last_id
        found: list[int] = []
        tries, is_over = 0, False
        before = signal.signal(signal.SIGALRM, interrupt)
        with cache.consumer("g") as consumer:
            while not is_over:
                tries += 1
                signal.setitimer(signal.ITIMER_REAL, tries / 1000)  # longer each time, so that it comes to an end
                with suppress(KeyboardInterrupt):
                    for batch in consumer.batches(20, until_id=last):
                        found += batch.ids.tolist()
                    is_over = True
                signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        assert len(found) == len(set(found)) == 2_000
