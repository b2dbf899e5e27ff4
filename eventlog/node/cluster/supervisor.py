"""Several nodes of one host under one process: started together, their logs in one stream, started again when they die.

A node uses one core well; a host with more runs more nodes. Each is a process like any other, with options of its own made from those
of the whole: ports that count up, a directory inside the data directory, one host label, so that replicas avoid sharing the host.
"""

import asyncio
import logging
import shutil
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from eventlog.errors import BadConfig, MemberReplaced
from eventlog.node.config import PORT_MAX, NodeConfig, environment_of_child, split_address

log = logging.getLogger("eventlog.supervisor")
_LINE_BYTES_MAX = 1 << 20
_MISUSE = 2  # the exit code of a start that cannot succeed, however often it is tried
_NOT_STARTED = 127  # as a shell says that there was nothing to run
_REPLACED = MemberReplaced.exit_code  # that of a node that is no member any more


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorOptions:
    """When a node that died is started again, and how long one may take to stop; milliseconds."""

    pause_ms_min: int = 200
    pause_ms_max: int = 10_000
    calm_ms: int = 30_000  # a node that lived for so long is started again at once
    stop_ms_max: int = 60_000


def config_of(config: NodeConfig, index: int) -> NodeConfig:
    """Return the configuration of the node `index` in [0, processes).

    Raises:
        BadConfig: there are not enough ports.
    """
    meta, join = config.meta, config.join
    if config.is_managed and index and not join:
        join = (_counted(config.listen, 0, option="listen"),)  # the first one begins with a member, the others join it
    if not meta and not config.join:
        meta = str(config.default_location)
    return replace(
        config,
        processes=1,
        data=config.data / str(index),
        listen=_counted(config.listen, index, option="listen"),
        http=_counted(config.http, index, option="http"),
        advertise=_counted(config.advertise, index, option="advertise") if config.advertise else "",
        node_name=f"{config.node_name}-{index}" if config.node_name else "",
        host_label=config.host_label or socket.gethostname(),
        meta=meta,
        join=join,
        ready_file=f"{config.ready_file}.{index}" if config.ready_file else "",
    )


def _counted(address: str, index: int, *, option: str) -> str:
    _, port = split_address(address, option=option)
    if not port:
        return address  # any free one
    if port + index > PORT_MAX:
        raise BadConfig(option=option, why=f"{address} leaves no room for ports up to {port + index}")
    return f"{address.rpartition(':')[0]}:{port + index}"


class Supervisor:
    """The nodes of one host. `command` starts one that takes its configuration from the environment."""

    def __init__(self, config: NodeConfig, *, command: Sequence[str], options: SupervisorOptions | None = None) -> None:
        self._configs = [config_of(config, index) for index in range(config.processes)]
        self._command = _dying_with_parent(command)
        self._options = options or SupervisorOptions()
        self._running: dict[int, asyncio.subprocess.Process] = {}
        self._stop = asyncio.Event()
        self._code = 0
        self._kept = len(self._configs)  # nodes that are started again when they end

    async def run(self) -> int:
        """Run until `stop`, or until no node is a member any more; return the exit code: 0 when every node ended well.

        A node that is removed from the cluster ended well as long as there are others.
        """
        try:
            async with asyncio.TaskGroup() as group:
                for index, config in enumerate(self._configs):
                    group.create_task(self._keep(index, config), name=f"node_{index}")
                group.create_task(self._end_all(), name="end")
        finally:
            for process in self._running.values():
                process.kill()
        log.info("stopped nodes=%d code=%d", len(self._configs), self._code)
        return self._code

    def stop(self) -> None:
        """Have every node stop, and then `run`."""
        self._stop.set()

    async def _keep(self, index: int, config: NodeConfig) -> None:
        """Have one node running until everything stops."""
        options, loop = self._options, asyncio.get_running_loop()
        pause_ms = options.pause_ms_min
        is_first = True
        while not self._stop.is_set():
            started = loop.time()
            code = await self._run_one(index, config)
            if self._stop.is_set():
                self._code = self._code or (0 if code == 0 else 1)
                return
            if code == _MISUSE and is_first:  # later it is not the options: another process has taken its port, say, and may give it back
                log.error("node_cannot_start node=%d code=%d", index, code)
                self._code = code
                self._stop.set()
                return
            if code == _REPLACED:
                self._give_up(index)
                return
            is_calm = (loop.time() - started) * 1000 >= options.calm_ms
            pause_ms = options.pause_ms_min if is_calm else min(2 * pause_ms, options.pause_ms_max)
            log.warning("node_ended node=%d code=%d again_ms=%d", index, code, 0 if is_calm else pause_ms)
            if not is_calm:
                await _wait(self._stop, pause_ms)
            is_first, config = False, replace(config, accept_data_loss=False)  # that was said of what lay there at the first start

    def _give_up(self, index: int) -> None:
        """Have one node not started again, and end with the last of them."""
        log.error("node_given_up node=%d code=%d", index, _REPLACED)
        self._kept -= 1
        if not self._kept:
            self._code = _REPLACED
            self._stop.set()

    async def _run_one(self, index: int, config: NodeConfig) -> int:
        try:
            process = await asyncio.create_subprocess_exec(
                *self._command,
                env=environment_of_child(config),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                limit=_LINE_BYTES_MAX,
            )
        except OSError as error:  # no memory, or too many processes: no reason to end the others
            log.error("node_not_started node=%d error=%s", index, error)  # noqa: TRY400  # the sentence says it
            return _NOT_STARTED
        self._running[index] = process
        log.info("node_started node=%d pid=%d", index, process.pid)
        if self._stop.is_set():
            process.terminate()
        try:
            assert process.stdout is not None, "it was asked for"
            await _pass_on(process.stdout, index)
            return await process.wait()
        finally:
            if process.returncode is not None:
                del self._running[index]

    async def _end_all(self) -> None:
        """When it is time, ask all nodes to stop; one that does not is killed."""
        await self._stop.wait()
        for process in self._running.values():
            if process.returncode is None:
                process.terminate()
        deadline = asyncio.get_running_loop().time() + self._options.stop_ms_max / 1000
        while self._running and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110  # once in a life
            await asyncio.sleep(0.02)
        for index, process in self._running.items():
            log.error("node_killed node=%d", index)
            process.kill()


async def _pass_on(lines: asyncio.StreamReader, index: int) -> None:
    """Write what a node says into our own stream, each line with the number of the node."""
    while True:
        try:
            line = await lines.readline()
        except ValueError:
            line = b"a line of more than 1 MiB was left out\n"
        if not line:
            return
        with suppress(OSError):  # nobody reads it any more, or the disk is full: no reason to end the nodes
            sys.stderr.write(f"node={index} {line.decode(errors='replace')}")
            sys.stderr.flush()


async def _wait(event: asyncio.Event, timeout_ms: int) -> None:
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            await event.wait()
    except TimeoutError:
        return


def _dying_with_parent(command: Sequence[str]) -> list[str]:
    """Return the command so that its process ends with this one, even with a killed one, where the system can arrange that."""
    tool = shutil.which("setpriv")
    return [*([tool, "--pdeathsig", "TERM"] if tool else []), *command]


def check(config: NodeConfig) -> None:
    """Refuse what cannot be run.

    Raises:
        BadConfig: says what.
    """
    taken: dict[str, str] = {}
    for index in range(config.processes):
        one = config_of(config, index)
        for option, address in (("listen", one.listen), ("http", one.http)):
            other = taken.setdefault(address, option)
            if other != option and split_address(address, option=option)[1]:
                why = f"{address} is one of {config.processes} that count up from --listen, and of those of --http: put them further apart"
                raise BadConfig(option="http", why=why)
    if config.is_managed and not config.join and split_address(config.listen, option="listen")[1] == 0:
        raise BadConfig(option="listen", why="managed-etcd needs a port that is known before the nodes start")
    if _is_of_a_node(config.data):
        raise BadConfig(option="processes", why=f"{config.data} is the directory of one node; give another to several")


def check_alone(config: NodeConfig) -> None:
    """Refuse the directory of several nodes to one: it would find their metadata, and could take the place of the first of them.

    Raises:
        BadConfig: it is theirs.
    """
    if _is_of_a_node(config.data / "0") and not _is_of_a_node(config.data):
        raise BadConfig(option="data", why=f"{config.data} holds the nodes of --processes: start them with that, or name another directory")


def _is_of_a_node(directory: Path) -> bool:
    return (directory / "member.json").exists()
