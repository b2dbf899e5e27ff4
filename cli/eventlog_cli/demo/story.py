"""The demo told step by step: start, load, read, kill, restart, grow, drain, check.

Writers go on all the while, whatever happens to the nodes, and remember what they were told.
"""

import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

import orjson

from eventlog import blocking
from eventlog.errors import ClientClosed, EventLogError, Unavailable
from eventlog.events import Kind
from eventlog_cli.conventions import settings
from eventlog_cli.demo.checks import Check, Entries, SeenEvent, TriedWrite, check_log, check_rest, check_same, check_state
from eventlog_cli.demo.cluster import Cluster, Known, NodeProcess
from eventlog_cli.demo.input import DemoRows
from eventlog_cli.loading.loader import CacheTarget, LoadedRows, Loader, Sent, UnderWay
from eventlog_cli.loading.rows import RowBatch
from eventlog_cli.output import ProgressLine, note, print_text, stdout
from eventlog_cli.parameters import format_seconds

if TYPE_CHECKING:
    from eventlog.blocking import Cache, Client

WRITERS = 4
WRITERS_CACHE = "demo-writers"
WRITES_BEFORE_KILL = 300  # acknowledged, of each writer
WRITES_AFTER = 50
WRITING_SECONDS_MAX = 20.0
TIMEOUT_MS = 20_000  # longer than a restart: the client sends again what was not answered, under the same numbers
_KEY_SHOWN = b"Europe/Berlin"
_LOADER = 0  # the number under which the loaded rows are kept beside the writers' writes


class Story:
    """One run. Afterwards `checks` has what was checked, and ids of the run are known for commands to try."""

    def __init__(self, cluster: Cluster, given: DemoRows) -> None:
        self._cluster = cluster
        self._given = given
        self._loaded: list[TriedWrite] = []
        self._entries: Entries = {}
        self.middle_id = 0
        self.checks: list[Check] = []

    def run(self) -> None:
        """Run all steps; the nodes are left running.

        Raises:
            EventLogError: a step could not be done.
        """
        cluster = self._cluster
        seconds = cluster.start()
        with self._connect() as client:
            cluster.wait_until_well(client)
            tell_step("start", f"{named_nodes(cluster.running)} after {seconds:.1f} s, data under {cluster.directory}")
            cache = client.create_cache(self._given.cache, format="json")
            load(cache, self._given, self._loaded)
            rest = self._read_from_middle(cache)
            client.create_cache(WRITERS_CACHE, format="json")
        writes = self._write_through_faults()
        self._check(rest, writes)

    def _connect(self) -> "Client":
        return blocking.connect(*self._cluster.addresses, timeout_ms=TIMEOUT_MS)

    def known(self) -> Known:
        """Return what commands to try can name; `run` must have gone through."""
        key = key_shown(self._entries)
        last_id = max(write.id for write in self._loaded if write.id is not None)
        return Known(cache=self._given.cache, key=key, middle_id=self.middle_id, last_id=last_id)

    def _read_from_middle(self, cache: "Cache") -> list[SeenEvent]:
        ids = sorted(write.id for write in self._loaded if write.id is not None)
        self.middle_id = ids[len(ids) // 2]
        began = time.monotonic()
        rest = read_log(cache, after=self.middle_id)
        seconds = time.monotonic() - began
        tell_step(
            "read",
            f"what happened after id {self.middle_id}: {len(rest):,} events in {format_seconds(seconds)}, {rate_of(len(rest), seconds)}",
        )
        return rest

    def _write_through_faults(self) -> list[TriedWrite]:
        """Let writers write while nodes are killed, added and emptied; return all that they tried."""
        writers = Writers(self._cluster.addresses, WRITERS_CACHE, count=WRITERS)
        writers.start()
        try:
            self._go_on(writers, WRITES_BEFORE_KILL)
            if len(self._cluster.nodes) == 1:
                self._kill_the_only_one(writers)
            else:
                self._kill_the_busiest(writers)
                self._grow_and_shrink(writers)
        except BaseException:
            writers.abandon()
            raise
        writes = writers.stop()
        acknowledged = sum(write.id is not None for write in writes)
        tell_step("stop", f"{WRITERS} writers had {acknowledged:,} writes acknowledged, {len(writes) - acknowledged} are of unknown fate")
        return writes

    def _go_on(self, writers: "Writers", more: int) -> None:
        writers.wait_for_each(more, check=self._cluster.check_alive, seconds_max=WRITING_SECONDS_MAX)

    def _kill_the_only_one(self, writers: "Writers") -> None:
        [node] = self._cluster.nodes
        node.kill()
        tell_step("kill", f"kill -9 in the middle of {WRITERS} writers, {writers.acknowledged:,} writes acknowledged so far")
        seconds = node.start()
        self._go_on(writers, WRITES_AFTER)
        tell_step("restart", f"ready after {seconds:.1f} s; the same writers go on")

    def _kill_the_busiest(self, writers: "Writers") -> None:
        cluster = self._cluster
        with self._connect() as client:
            node, primaries = cluster.busiest(client)
        writers.forget_longest()
        node.kill()
        tell_step("kill", f"kill -9 of {node.name}, which led {primaries} segments, in the middle of {WRITERS} writers")
        self._go_on(writers, WRITES_AFTER)
        longest = format_seconds(writers.longest_seconds)
        tell_step("failover", f"others lead them; no writer saw an error, the slowest write took {longest}")
        seconds = node.start()
        with self._connect() as client:
            cluster.wait_until_well(client)
        tell_step("restart", f"{node.name} is back after {seconds:.1f} s and has caught up")

    def _grow_and_shrink(self, writers: "Writers") -> None:
        cluster = self._cluster
        joined = cluster.add()
        with self._connect() as client:
            cluster.wait_until_well(client)
            moved = cluster.rebalance(client)
            self._go_on(writers, WRITES_AFTER)
            tell_step("grow", f"{joined.name} has joined; {moved} segments were moved while the writers wrote")
            leaving = next(node for node in cluster.running if node is not joined and node.address != cluster.addresses[0])
            cluster.drain(client, leaving)
            cluster.wait_until_well(client)
            self._go_on(writers, WRITES_AFTER)
            tell_step("drain", f"{leaving.name} holds nothing any more; every segment has all its copies on the others")

    def _check(self, rest: list[SeenEvent], writes: list[TriedWrite]) -> None:
        began = time.monotonic()
        loaded_logs: dict[str, list[SeenEvent]] = {}
        written_logs: dict[str, list[SeenEvent]] = {}
        for node in self._cluster.running:
            with blocking.connect(node.address, timeout_ms=TIMEOUT_MS) as client:
                loaded_logs[node.name] = read_log(client.cache(self._given.cache))
                written_logs[node.name] = read_log(client.cache(WRITERS_CACHE))
        with self._connect() as client:
            self._entries = read_entries(client.cache(self._given.cache))
            written_entries = read_entries(client.cache(WRITERS_CACHE))
        loaded, written = next(iter(loaded_logs.values())), next(iter(written_logs.values()))
        self.checks = [
            *(named_check(check, self._given.cache) for check in check_log(self._loaded, loaded)),
            *(named_check(check, WRITERS_CACHE) for check in check_log(writes, written)),
            check_rest(self.middle_id, loaded, rest),
            check_state(self._given.cache, loaded, self._entries),
            check_state(WRITERS_CACHE, written, written_entries),
        ]
        if len(loaded_logs) > 1:
            self.checks += [check_same(self._given.cache, loaded_logs), check_same(WRITERS_CACHE, written_logs)]
        read = sum(map(len, (*loaded_logs.values(), *written_logs.values())))
        tell_step(
            "check",
            f"compared {read:,} events, read from each node, with what was acknowledged, in {format_seconds(time.monotonic() - began)}",
        )


def named_nodes(nodes: list[NodeProcess]) -> str:
    """Say which nodes there are."""
    said = ", ".join(f"{node.name} on {node.address}" for node in nodes)
    return f"{said}: one cluster" if len(nodes) > 1 else said


def load(cache: "Cache", given: DemoRows, writes: list[TriedWrite]) -> None:
    """Write all rows into a cache, and keep in `writes` what was acknowledged."""
    target = _Recorder(CacheTarget(cache), writes)
    began = time.monotonic()
    with ProgressLine("load") as progress:
        loader = Loader(
            target,
            errors_max=0,
            gathers=True,
            on_rejection=lambda _: None,
            on_progress=lambda rows: progress.update(rows, part=rows / given.rows),
        )
        loader.run(given)
    seconds = time.monotonic() - began
    summary = loader.summary
    tell_step("load", f"{given.title}: {summary.events:,} events in {format_seconds(seconds)}, {rate_of(summary.events, seconds)}")


class _Recorder:
    """A target that keeps each row with the id it was acknowledged under."""

    def __init__(self, target: CacheTarget, writes: list[TriedWrite]) -> None:
        self._target = target
        self._writes = writes

    def write(self, batch: RowBatch) -> UnderWay:
        """Send a batch."""
        return _Recorded(self._target.write(batch), batch, self._writes)


class _Recorded:
    def __init__(self, sent: Sent, batch: RowBatch, writes: list[TriedWrite]) -> None:
        self._sent = sent
        self._batch = batch
        self._writes = writes

    def result(self) -> LoadedRows:
        """Wait for the answer and keep what it says; a removal that found nothing is no event."""
        written = self._sent.result()
        batch = self._batch
        removals = batch.removals or [False] * len(batch.keys)
        self._writes += [
            TriedWrite(writer=_LOADER, key=key, value=None if is_removal else value, id=event_id)
            for key, value, is_removal, event_id in zip(batch.keys, batch.values, removals, self._sent.ids, strict=True)
            if event_id is not None
        ]
        return written


def key_shown(keys: Iterable[bytes]) -> str:
    """Return the key that commands to try are about."""
    return (_KEY_SHOWN if _KEY_SHOWN in (known := list(keys)) else known[0]).decode()


def read_log(cache: "Cache", *, after: int | str = "earliest") -> list[SeenEvent]:
    """Return the events after an id, in the order in which they are read."""
    return [
        SeenEvent(id=event.id, key=event.key_bytes, value=None if event.kind_number == Kind.REMOVED else event.value_bytes)
        for event in cache.events(from_id=after)
    ]


def read_entries(cache: "Cache") -> Entries:
    """Return the current entries, as they are stored."""
    return {key.encode() if isinstance(key, str) else key: (entry.value_bytes, entry.version) for key, entry in cache.entries()}


def named_check(check: Check, cache: str) -> Check:
    """Return a check that says of which cache it is."""
    return Check(promise=f"{cache}: {check.promise}", checked=check.checked, problems=check.problems)


def tell_step(name: str, text: str) -> None:
    """Print what has been done: a line of the story, and beside it where rows are printed."""
    line = f"{name:<9}{text}"
    if settings().is_json:
        note(line)
    else:
        print_text(line)
        stdout().flush()


def rate_of(events: int, seconds: float) -> str:
    """Say how many events that is a second."""
    return f"{events / max(seconds, 1e-3):,.0f}/s"


KEYS_PER_WRITER = 25
_LOOK_EVERY_SECONDS = 0.01


class Writers:
    """Several writers, each a thread with its own connection, putting one value after the other into a few keys of its own."""

    def __init__(self, addresses: list[str], cache: str, *, count: int) -> None:
        self._stop = threading.Event()
        self._writers = [_DemoWriter(number, addresses, cache, self._stop) for number in range(1, count + 1)]

    @property
    def acknowledged(self) -> int:
        """Return how many writes were acknowledged so far."""
        return sum(writer.acknowledged for writer in self._writers)

    @property
    def longest_seconds(self) -> float:
        """Return how long the slowest write since the last call of `forget_longest` took."""
        return max(writer.longest_seconds for writer in self._writers)

    def forget_longest(self) -> None:
        """Look for the slowest write anew."""
        for writer in self._writers:
            writer.longest_seconds = 0.0

    def start(self) -> None:
        """Begin to write."""
        for writer in self._writers:
            writer.start()

    def wait_for_each(self, more: int, *, check: Callable[[], None], seconds_max: float) -> None:
        """Wait until every writer has `more` further acknowledgements; `check` raises when there is no point in waiting.

        Raises:
            Unavailable: the last of them had none for `seconds_max`; how long all take is the machine's business.
        """
        begins = [(writer, writer.acknowledged) for writer in self._writers]
        wait_for(lambda: min(writer.acknowledged - begin for writer, begin in begins), more, check=check, seconds_max=seconds_max)

    def abandon(self) -> None:
        """End writing without waiting for answers: the node may be gone for good."""
        self._stop.set()
        for writer in self._writers:
            writer.cut_off()
            writer.join()

    def stop(self) -> list[TriedWrite]:
        """End writing and return everything that was tried, each writer's in its order."""
        self._stop.set()
        for writer in self._writers:
            writer.join()
        return [write for writer in self._writers for write in writer.writes]


def wait_for(
    reached: Callable[[], int],
    goal: int,
    *,
    check: Callable[[], None],
    seconds_max: float,
    monotonic: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until `reached` returns `goal` or more; `check` raises when there is no point in waiting.

    Raises:
        Unavailable: it stood still for `seconds_max`.
    """
    last, deadline = reached(), monotonic() + seconds_max
    while (now := reached()) < goal:
        check()
        if now > last:
            last, deadline = now, monotonic() + seconds_max
        elif monotonic() > deadline:
            raise Unavailable(why=f"a writer had no write acknowledged for {seconds_max:.0f} s")
        sleep(_LOOK_EVERY_SECONDS)


class _DemoWriter(threading.Thread):
    def __init__(self, number: int, addresses: list[str], cache: str, stop: threading.Event) -> None:
        super().__init__(name=f"writer-{number}", daemon=True)
        self.writes: list[TriedWrite] = []
        self.acknowledged = 0
        self.longest_seconds = 0.0
        self._number = number
        self._addresses = addresses
        self._cache = cache
        self._stop_asked = stop
        self._client: blocking.Client | None = None

    def cut_off(self) -> None:
        """End a call that waits for an answer."""
        if self._client is not None:
            self._client.close()

    def run(self) -> None:
        # a closed client is how `cut_off` ends this
        with suppress(ClientClosed), blocking.connect(*self._addresses, timeout_ms=TIMEOUT_MS) as self._client:
            cache = self._client.cache(self._cache)
            turn = 0
            while not self._stop_asked.is_set():
                turn += 1
                self._write(cache, turn)

    def _write(self, cache: blocking.Cache, turn: int) -> None:
        key = f"writer-{self._number}/{turn % KEYS_PER_WRITER}"
        value = {"writer": self._number, "turn": turn}
        event_id = None
        began = time.monotonic()
        try:
            event_id = cache.put(key, value).id
            self.acknowledged += 1
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
        except EventLogError as error:
            if error.outcome == "none":
                return  # it says that nothing was written, so there is nothing to look for
        self.writes.append(TriedWrite(writer=self._number, key=key.encode(), value=orjson.dumps(value), id=event_id))
