"""What a client process does to a node, and what it cost both: writing prepared frames, single puts, reading streams.

The functions that benchmarks call are plain ones, to be run by `processes.in_child`: a client's CPU is never the node's. Writers use the
client's fast road without its conveniences: bodies made by `batch.build`, numbered as an idempotent producer's, on one connection.
"""

import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import numpy as np
import uvloop

from benchmarks.baseline import WARM_BYTES
from benchmarks.inputs import KEYS_LIVE, SEGMENTS, Load, distinct_frames, frame_of, frames_of, random_keys, random_values
from benchmarks.machine import warm_memory
from benchmarks.processes import Address, background_seconds, cpu_seconds, kernel_seconds
from eventlog.batch.build import WriteFrame, segments_of
from eventlog.batch.one import build_one
from eventlog.events import Kind
from eventlog.limits import PRODUCER_RESULTS_KEPT
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection
from eventlog.transport.greeting import GreetingOptions
from eventlog.wire.eventlog_pb2 import BYTES, CacheOptions, CreateCache, Message, Poll, Watch, Write

Result = TypeVar("Result")
Request = tuple[Message, list[bytes]]
DEPTH_FRAMES = PRODUCER_RESULTS_KEPT  # what a client keeps unanswered of one segment
SETTLE_SECONDS = 0.5
SETTLED_CPU_SECONDS = 0.01
GROUPS_METRIC = "eventlog_groups_total"


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What some traffic took on both sides."""

    events: int
    requests: int
    groups: int
    seconds: float
    server_cpu: float
    client_cpu: float
    kernel_cpu: float  # of the server's, what the kernel did for it
    background_cpu: float  # of the server's, RocksDB's own threads
    nbytes: int = 0

    @property
    def us_per_event(self) -> float:
        """Server CPU in microseconds an event."""
        return self.server_cpu / self.events * 1e6

    @property
    def requests_per_group(self) -> float:
        return self.requests / max(self.groups, 1)


class Meter:
    """Reads both processes' CPU and the node's count of groups, from `Meter()` to `spent`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._groups = address.metrics().get(GROUPS_METRIC, 0.0)
        self._background, self._kernel = background_seconds(address.pid), kernel_seconds(address.pid)
        self._server, self._client, self._time = cpu_seconds(address.pid), time.process_time(), time.monotonic()

    def spent(self, *, events: int, requests: int, nbytes: int = 0) -> Spent:
        seconds, client = time.monotonic() - self._time, time.process_time() - self._client
        server = cpu_seconds(self._address.pid) - self._server
        background = background_seconds(self._address.pid) - self._background
        kernel = kernel_seconds(self._address.pid) - self._kernel
        groups = int(self._address.metrics().get(GROUPS_METRIC, 0.0) - self._groups)
        return Spent(
            events=events,
            requests=requests,
            groups=groups,
            seconds=seconds,
            server_cpu=server,
            client_cpu=client,
            kernel_cpu=kernel,
            background_cpu=background,
            nbytes=nbytes,
        )


class _Client:
    """One connection of one producer, and the sequences it has used."""

    def __init__(self, connection: Connection, cache_id: int) -> None:
        self.connection = connection
        self.cache_id = cache_id
        self._next = np.zeros(SEGMENTS, np.uint32)

    def request(self, frame: WriteFrame) -> Request:
        segments = frame.table["segment"]
        frame.table["sequence"] = self._next[segments]
        self._next[segments] += 1
        return self._message(len(frame.table)), frame.buffers

    def one(self, key: bytes, value: bytes, segment: int) -> Request:
        sequence = self._next.item(segment)
        self._next[segment] += 1
        return self._message(1), [build_one(key, value, kind=Kind.CREATED, segment=segment, sequence=sequence)]

    def _message(self, blocks: int) -> Message:
        return Message(write=Write(cache_id=self.cache_id, producer_id=self.connection.producer_id, blocks=blocks))

    async def pump(self, requests: Iterable[Request], *, depth: int) -> int:
        """Send requests with at most `depth` unanswered; return how many. An error of any ends it."""
        waiting: deque[Any] = deque()
        count = 0
        for message, buffers in requests:
            if len(waiting) >= depth:
                await waiting.popleft()
            waiting.append(self.connection.send(message, *buffers))
            count += 1
        for future in waiting:
            await future
        return count


def settle(address: Address) -> None:
    """Wait until the node has merged its files: what writing left to do is not the cost of what comes next."""
    before, now = -1.0, background_seconds(address.pid)
    while now - before > SETTLED_CPU_SECONDS:
        time.sleep(SETTLE_SECONDS)
        before, now = now, background_seconds(address.pid)


def _running(address: Address, cache: str, act: Callable[[_Client], Coroutine[Any, Any, Result]]) -> Result:
    """Return what `act` returns, on a connection to the node, with the cache found or made."""

    async def run() -> Result:
        connection = await connect(address.host, address.port, options=GreetingOptions(producer=True))
        try:
            reply = await connection.request(Message(create_cache=CreateCache(name=cache, use_existing=True, options=_options(cache))))
            return await act(_Client(connection, reply.message.cache_answer.cache.id))
        finally:
            connection.close()

    return uvloop.run(run())


def _options(cache: str) -> CacheOptions:
    """Return a cache's options, told by the first word of its name: append, keyed or images."""
    kind = cache.partition("-")[0]
    return CacheOptions(format=BYTES, state=kind != "append", before=kind == "images")


def append(address: Address, cache: str, load: Load, *, events: int, depth: int = DEPTH_FRAMES) -> Spent:
    """Write `events` in prepared batches, pipelined."""

    async def act(client: _Client) -> Spent:
        frames = frames_of(load, distinct_frames(load))
        count = max(events // load.batch, 1)
        await client.pump((client.request(frame) for frame in frames[:2]), depth=1)  # both sides are warm
        warm_memory(WARM_BYTES)
        meter = Meter(address)
        await client.pump((client.request(frames[number % len(frames)]) for number in range(count)), depth=depth)
        return meter.spent(events=count * load.batch, requests=count)

    return _running(address, cache, act)


def keyed(address: Address, cache: str, load: Load, *, phases: list[int], live: int = KEYS_LIVE, seed: int = 0) -> list[Spent]:
    """Write batches of keys random over `live`; one result a phase."""

    async def act(client: _Client) -> list[Spent]:
        spent = []
        values = random_values(load.batch, load.value_bytes)
        for phase, events in enumerate(phases):
            keys = random_keys(events, seed=seed + phase, live=live)
            frames = [frame_of(keys[low : low + load.batch], values) for low in range(0, events - load.batch + 1, load.batch)]
            warm_memory(WARM_BYTES)
            meter = Meter(address)
            await client.pump(map(client.request, frames), depth=DEPTH_FRAMES)
            spent.append(meter.spent(events=len(frames) * load.batch, requests=len(frames)))
        return spent

    return _running(address, cache, act)


def puts(address: Address, cache: str, *, phases: list[int], depth: int, live: int = KEYS_LIVE) -> list[Spent]:
    """Write single puts of 100 B, `depth` unanswered, keys random over `live`; one result a phase."""

    async def act(client: _Client) -> list[Spent]:
        spent = []
        for phase, events in enumerate(phases):
            keys, values = random_keys(events, seed=phase, live=live), random_values(1_000, 100)
            segments = segments_of(keys, segments=SEGMENTS).tolist()
            requests = [client.one(key, values[at % 1_000], segment) for at, (key, segment) in enumerate(zip(keys, segments, strict=True))]
            warm_memory(WARM_BYTES)
            meter = Meter(address)
            await client.pump(requests, depth=depth)
            spent.append(meter.spent(events=events, requests=events))
        return spent

    return _running(address, cache, act)


def read_raw(address: Address, cache: str, *, readers: int) -> Spent:
    """Read a whole cache with that many readers at once on connections of their own; what comes is dropped unread."""

    async def act(client: _Client) -> Spent:
        settle(address)
        meter = Meter(address)
        found = await gather(*[_drain(address, client.cache_id) for _ in range(readers)])
        return meter.spent(events=sum(events for events, _ in found), requests=readers, nbytes=sum(nbytes for _, nbytes in found))

    from asyncio import gather

    return _running(address, cache, act)


async def _drain(address: Address, cache_id: int) -> tuple[int, int]:
    connection = await connect(address.host, address.port)
    events = nbytes = 0
    try:
        watch = Message(watch=Watch(poll=Poll(cache_id=cache_id, after=0, earliest=True)))
        async for reply in connection.stream(watch):
            events += reply.message.stream_item.poll_answer.events
            nbytes += len(reply.body)
    finally:
        connection.close()
    return events, nbytes


def read_columns(address: Address, cache: str, *, order: Literal["id", "segment"] = "id") -> Spent:
    """Read a whole cache as columns through the client library; a numpy reduction touches every column."""
    import eventlog

    async def run() -> Spent:
        async with eventlog.connect(address.text) as client:
            handle = client.cache(cache)
            settle(address)
            meter = Meter(address)
            events = nbytes = batches = 0
            touched = np.uint64(0)
            async for batch in handle.event_batches(from_id=0, order=order):
                events += len(batch)
                batches += 1
                nbytes += len(batch.keys.data) + len(batch.values.data) + 9 * len(batch)
                touched ^= _touch(batch)
            return meter.spent(events=events, requests=batches, nbytes=nbytes)

    return uvloop.run(run())


def _touch(batch: Any) -> np.uint64:
    """Return a number that depends on every byte of ids, kinds, keys and values."""
    found = np.uint64(int(batch.ids.max()) + int(batch.kinds.sum()))
    for column in (batch.keys.data, batch.values.data):
        words = np.frombuffer(column, np.uint64, len(column) // 8)
        found ^= np.bitwise_xor.reduce(words)
    return found


def read_objects(address: Address, cache: str) -> Spent:
    """Read a whole cache as objects through the client library."""
    import eventlog

    async def run() -> Spent:
        async with eventlog.connect(address.text) as client:
            handle = client.cache(cache)
            settle(address)
            meter = Meter(address)
            events = 0
            async for _event in handle.events(from_id=0):
                events += 1
            return meter.spent(events=events, requests=1)

    return uvloop.run(run())


def put_latencies(address: Address, cache: str, *, count: int) -> list[float]:
    """Return the seconds of single puts through the client library, one in flight."""
    return latencies(address, cache, count=count)["put"]


def latencies(address: Address, cache: str, *, count: int, others: bool = False) -> dict[str, list[float]]:
    """Return the seconds of single requests, one in flight: puts of new keys; with `others` what else is done to a key, too."""
    import eventlog

    async def run() -> dict[str, list[float]]:
        keys, value = [key.decode() for key in random_keys(count, seed=7)], bytes(100)
        async with eventlog.connect(address.text) as client:
            handle = await client.create_cache(cache, format="bytes", if_exists="use")

            async def timed(request: Callable[[str], Awaitable[object]]) -> list[float]:
                found = []
                for key in keys:
                    begun = time.perf_counter()
                    await request(key)
                    found.append(time.perf_counter() - begun)
                return found

            for key in keys[:50]:
                await handle.put(key, value)
            found = {"put": await timed(lambda key: handle.put(key, value))}
            if others:
                found["an update, with its before-image"] = await timed(lambda key: handle.put(key, value))
                found["replace, the old value returned"] = await timed(lambda key: handle.replace(key, value, previous=True))
                found["get"] = await timed(handle.get)
        return found

    return uvloop.run(run())
