"""Sparks as processes of their own: a master with workers, and a server of Spark Connect, on the loopback device."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Self

import pyspark

HOME = Path(pyspark.__file__).parent
JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xss4m"
QUICK = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.driver.extraJavaOptions": JAVA,
    "spark.executor.extraJavaOptions": JAVA,
}
_READY_S = 90
_MASTER = "org.apache.spark.deploy.master.Master"
_WORKER = "org.apache.spark.deploy.worker.Worker"
_CONNECT = "org.apache.spark.sql.connect.service.SparkConnectServer"


def confs() -> list[str]:
    """Return `QUICK` as options of a command."""
    return [word for name, value in QUICK.items() for word in ("--conf", f"{name}={value}")]


@contextmanager
def _process(words: list[str], log: Path, said: str) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """Start a process of Spark's; yield it and what its log says of itself, the first group of `said`."""
    own = {"SPARK_DAEMON_MEMORY": "640m", "SPARK_DAEMON_JAVA_OPTS": f"{JAVA} -Dspark.deploy.maxExecutorRetries=-1"}
    environment = os.environ | own | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
    with log.open("wb") as out, subprocess.Popen(words, stdout=out, stderr=out, env=environment, start_new_session=True) as running:
        try:
            deadline = time.monotonic() + _READY_S
            while not (found := re.search(said, log.read_text())):
                assert running.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                time.sleep(0.05)  # a look at its log; nothing else tells
            yield running, found[1]
        finally:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)


class Standalone:
    """A master and workers of one core each; `url` is the master's."""

    def __init__(self, folder: Path, *, workers: int = 2) -> None:
        self._folder = folder
        self._count = workers
        self._stack = ExitStack()
        self._workers: list[subprocess.Popen[bytes]] = []
        self.url = ""

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            _, self.url = stack.enter_context(self._start(_MASTER, r"Starting Spark master at (spark://\S+)"))
            for number in range(self._count):
                own = ("--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / f"work-{number}"), self.url)
                worker, _ = stack.enter_context(self._start(_WORKER, r"(Successfully registered) with master", *own))
                self._workers.append(worker)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, name: str, said: str, *options: str) -> AbstractContextManager[tuple["subprocess.Popen[bytes]", str]]:
        words = [str(HOME / "bin" / "spark-class"), name, "--host", "127.0.0.1", "--port", "0", "--webui-port", "0", *options]
        return _process(words, self._folder / f"{name.rpartition('.')[2]}-{len(self._workers)}.log", said)

    def working(self) -> list[int]:
        """Return the numbers of the executors that have started Python."""
        executors = [pid for worker in self._workers for pid in _children(worker.pid)]
        return [pid for pid in executors if any(_runs_python(child) for child in _children(pid))]


class Program:
    """A program with a Spark of its own, whose driver or Python workers can be killed. `words` are those of `python -m`."""

    def __init__(self, log: Path, *words: str) -> None:
        self.log = log
        environment = os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        with log.open("ab") as out:
            self.process = subprocess.Popen([sys.executable, "-m", *words], stdout=out, stderr=out, env=environment, start_new_session=True)

    def kill(self) -> None:
        """Kill the driver: the program and its JVM."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def workers(self) -> list[int]:
        """Return the numbers of the processes that run tasks in Python."""
        return workers_of(self.process.pid)


def workers_of(program: int) -> list[int]:
    """Return the numbers of the processes that run tasks in Python for a program with a Spark of its own."""
    daemons = [pid for java in _children(program) for pid in _children(java) if _runs_python(pid)]
    return [pid for daemon in daemons for pid in _children(daemon)]


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):  # it has ended meanwhile
            found += map(int, thread.read_text().split())
    return found


def _runs_python(pid: int) -> bool:
    with suppress(OSError):
        return b"pyspark.daemon" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """Yield the address of a server of Spark Connect, whose Spark is in its own process."""
    own = ["--conf", "spark.connect.grpc.binding.port=0", "--conf", "spark.connect.grpc.binding.address=127.0.0.1"]
    files = ["--conf", f"spark.local.dir={folder}", "--conf", f"spark.sql.warehouse.dir={folder / 'warehouse'}"]
    words = [str(HOME / "bin" / "spark-submit"), "--class", _CONNECT, "--master", "local[2]", *confs(), *own, *files, "spark-internal"]
    with _process(words, folder / "connect.log", r"Spark Connect server started at: (\S+)") as (_, address):
        yield f"sc://{address}"
