"""A member of etcd that this node runs as its child: started, started again when it dies, ended with the node.

The child dies with its parent where the system can arrange that (`setpriv --pdeathsig`), so a killed node leaves nothing behind that
would hold the ports when it starts again.
"""

import asyncio
import logging
import shutil
from dataclasses import dataclass
from pathlib import Path

from eventlog.errors import BadConfig

log = logging.getLogger("eventlog.etcd")

RESTART_MS_MIN = 200
RESTART_MS_MAX = 5_000
STOP_MS_MAX = 5_000
_FLAGS = (
    "--heartbeat-interval=100",
    "--election-timeout=1000",
    "--pre-vote=true",
    "--snapshot-count=10000",
    "--auto-compaction-mode=revision",
    "--auto-compaction-retention=10000",
    "--quota-backend-bytes=2147483648",
    "--max-txn-ops=1024",
    "--grpc-keepalive-min-time=1s",
    "--strict-reconfig-check=true",
    "--experimental-initial-corrupt-check=true",
    "--log-level=warn",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdSeat:
    """One member: its name, where it listens (`host:port`) for clients and for other members, and where it stores."""

    name: str
    directory: Path
    client: str
    peer: str

    @property
    def has_run(self) -> bool:
        """Whether it is a member already, of the cluster that its directory remembers."""
        return (self.directory / "member").exists()


def find_etcd(program: str = "etcd") -> str:
    """Return the program's path.

    Raises:
        BadConfig: there is none.
    """
    found = shutil.which(program)
    if found is None:
        raise BadConfig(option="meta", why=f"managed-etcd needs the program {program!r}: install etcd 3.5.14 or newer")
    return found


def command_line(program: str, seat: EtcdSeat, *, cluster: dict[str, str], token: str, joins: bool) -> list[str]:
    """Return how the member is started; `cluster` has every member's name and address for other members, its own too."""
    die_with_parent = shutil.which("setpriv")
    return [
        *([die_with_parent, "--pdeathsig", "TERM"] if die_with_parent else []),
        program,
        f"--name={seat.name}",
        f"--data-dir={seat.directory}",
        f"--listen-client-urls=http://{seat.client}",
        f"--advertise-client-urls=http://{seat.client}",
        f"--listen-peer-urls=http://{seat.peer}",
        f"--initial-advertise-peer-urls=http://{seat.peer}",
        f"--initial-cluster={','.join(f'{name}=http://{peer}' for name, peer in cluster.items())}",
        f"--initial-cluster-token={token}",
        f"--initial-cluster-state={'existing' if joins else 'new'}",
        *_FLAGS,
    ]


class EtcdChild:
    """The running member. `restarts` counts how often it died."""

    def __init__(self, command: list[str], *, log_path: Path) -> None:
        self._command = command
        self._log_path = log_path
        self._process: asyncio.subprocess.Process | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self.restarts = 0

    async def start(self) -> None:
        """Start it; when this returns it runs, but may not answer yet."""
        self._process = await self._spawn()
        self._supervisor = asyncio.get_running_loop().create_task(self._supervise(self._process), name="etcd")

    async def _spawn(self) -> asyncio.subprocess.Process:
        self._log_path.parent.mkdir(parents=True, exist_ok=True)
        with self._log_path.open("ab") as output:
            # A session of its own: Ctrl-C at a terminal ends the node, which ends it after its last commit.
            return await asyncio.create_subprocess_exec(*self._command, stdout=output, stderr=output, start_new_session=True)

    async def _supervise(self, process: asyncio.subprocess.Process) -> None:
        pause_ms = RESTART_MS_MIN
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            code = await process.wait()
            self.restarts += 1
            pause_ms = RESTART_MS_MIN if loop.time() - began > RESTART_MS_MAX / 1000 else min(2 * pause_ms, RESTART_MS_MAX)
            log.warning("etcd_died code=%s restart_ms=%d log=%s", code, pause_ms, self._log_path)
            self._process = process = await self._spawn_again(pause_ms)

    async def _spawn_again(self, pause_ms: int) -> asyncio.subprocess.Process:
        """Start it after a pause, as often as it takes: a full disk or too many open files may be over soon."""
        while True:
            await asyncio.sleep(pause_ms / 1000)
            try:
                return await self._spawn()
            except OSError as error:
                pause_ms = min(2 * pause_ms, RESTART_MS_MAX)
                log.warning("etcd_not_started error=%s restart_ms=%d", error, pause_ms)

    @property
    def pid(self) -> int:
        """The present process's number."""
        assert self._process is not None, "it is started first"
        return self._process.pid

    async def stop(self) -> None:
        """End it: SIGTERM, by which a leader hands over, and SIGKILL if that takes too long."""
        if self._supervisor is not None:
            self._supervisor.cancel()
            await asyncio.gather(self._supervisor, return_exceptions=True)
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(STOP_MS_MAX / 1000):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
