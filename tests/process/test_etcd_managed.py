"""etcd as children of nodes: one member, then three; a killed child comes back; the children end with their parents."""

import asyncio
import os
import signal
import sys
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from eventlog.control.metastores.etcd import EtcdOptions, open_etcd
from eventlog.control.metastores.etcd_members import EtcdMembers
from eventlog.errors import BadConfig
from eventlog.node.cluster.managed import EtcdChild, EtcdSeat, command_line, find_etcd
from tests.loops import until
from tests.ports import free_port
from tests.process.etcds import etcd_binary, wait_for_answers


@pytest.fixture(autouse=True)
def _answers(monkeypatch):
    wait_for_answers(monkeypatch)


def seat(tmp_path, number: int) -> EtcdSeat:
    return EtcdSeat(
        name=f"n{number}", directory=tmp_path / f"e{number}", client=f"127.0.0.1:{free_port()}", peer=f"127.0.0.1:{free_port()}"
    )


async def first_member(found: EtcdSeat, stack: AsyncExitStack) -> EtcdChild:
    command = command_line(str(etcd_binary()), found, cluster={found.name: found.peer}, token="t", joins=False)
    child = EtcdChild(command, log_path=found.directory.parent / f"{found.name}.log")
    await child.start()
    stack.push_async_callback(child.stop)
    return child


async def joined_member(found: EtcdSeat, endpoints: tuple[str, ...], stack: AsyncExitStack) -> EtcdChild:
    members = EtcdMembers(endpoints)
    stack.push_async_callback(members.close)
    taken = await members.add(found.peer, members_max=3)
    assert taken is not None
    cluster = {member.name or found.name: member.peer for member in taken}
    child = EtcdChild(
        command_line(str(etcd_binary()), found, cluster=cluster, token="t", joins=True), log_path=found.directory.parent / "log"
    )
    await child.start()
    stack.push_async_callback(child.stop)
    await members.promote(found.peer)
    return child


def test_one_member_becomes_three_and_survives_the_loss_of_the_first(tmp_path):
    async def story() -> None:
        async with AsyncExitStack() as stack:
            seats = [seat(tmp_path, number) for number in (1, 2, 3)]
            first = await first_member(seats[0], stack)
            store = await open_etcd(EtcdOptions(endpoints=(seats[0].client,)))
            await store.commit({"k": 0}, puts={"k": b"1"})
            await store.close()
            for found in seats[1:]:
                await joined_member(found, (seats[0].client,), stack)
            members = EtcdMembers([found.client for found in seats])
            stack.push_async_callback(members.close)
            assert [(member.name, member.is_learner) for member in sorted(await members.read(), key=lambda found: found.name)] == [
                ("n1", False),
                ("n2", False),
                ("n3", False),
            ]
            await first.stop()
            store = await open_etcd(EtcdOptions(endpoints=tuple(found.client for found in seats)))
            stack.push_async_callback(store.close)
            found = await store.get("k")
            assert found is not None
            assert found.value == b"1"

    asyncio.run(story())


def test_a_killed_child_is_started_again_with_what_it_had(tmp_path):
    async def story() -> None:
        async with AsyncExitStack() as stack:
            found = seat(tmp_path, 1)
            child = await first_member(found, stack)
            store = await open_etcd(EtcdOptions(endpoints=(found.client,)))
            stack.push_async_callback(store.close)
            await store.commit({"k": 0}, puts={"k": b"1"})
            killed = child.pid
            os.kill(killed, signal.SIGKILL)
            item = await store.get("k")  # waits until it answers again
            assert item is not None
            assert item.value == b"1"
            assert child.restarts == 1
            assert child.pid != killed

    asyncio.run(story())


def test_a_child_that_cannot_be_started_again_is_tried_until_it_can(tmp_path, caplog):
    async def story() -> None:
        log_path = tmp_path / "log"
        child = EtcdChild(["sleep", "600"], log_path=log_path)
        await child.start()
        try:
            killed = child.pid
            log_path.unlink()
            log_path.mkdir()  # it cannot be written to, as on a disk that fails
            os.kill(killed, signal.SIGKILL)
            await until(lambda: "etcd_not_started" in caplog.text)
            log_path.rmdir()
            await until(lambda: child.pid != killed)
        finally:
            await child.stop()

    asyncio.run(story())


@pytest.mark.skipif(sys.platform != "linux", reason="a child is tied to its parent by prctl")
def test_a_child_ends_when_its_parent_is_killed(tmp_path):
    async def story() -> None:
        script = (
            "import asyncio, sys\n"
            "from pathlib import Path\n"
            "from eventlog.node.cluster.managed import EtcdChild, EtcdSeat, command_line\n"
            "async def run():\n"
            "    seat = EtcdSeat(name='n1', directory=Path(sys.argv[2]), client=sys.argv[3], peer=sys.argv[4])\n"
            "    command = command_line(sys.argv[1], seat, cluster={'n1': seat.peer}, token='t', joins=False)\n"
            "    child = EtcdChild(command, log_path=Path(sys.argv[2] + '.log'))\n"
            "    await child.start()\n"
            "    print(child.pid, flush=True)\n"
            "    await asyncio.sleep(60)\n"
            "asyncio.run(run())\n"
        )
        found = seat(tmp_path, 1)
        arguments = [str(etcd_binary()), str(found.directory), found.client, found.peer]
        parent = await asyncio.create_subprocess_exec(sys.executable, "-c", script, *arguments, stdout=asyncio.subprocess.PIPE)
        assert parent.stdout is not None
        child = int(await parent.stdout.readline())
        async with asyncio.timeout(60):
            while not _is_etcd(child):  # noqa: ASYNC110 -- it is tied to its parent when it has become what it shall be
                await asyncio.sleep(0.01)
        parent.kill()
        await parent.wait()
        async with asyncio.timeout(60):
            while _runs(child):  # noqa: ASYNC110 -- nothing tells of the end of a process that is not a child
                await asyncio.sleep(0.02)

    asyncio.run(story())


def _is_etcd(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text().strip() == "etcd"


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(")")[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # gone, before or while it was read
        return False


def test_a_missing_program_is_named():
    with pytest.raises(BadConfig, match="managed-etcd needs the program 'no-such-etcd'"):
        find_etcd("no-such-etcd")
