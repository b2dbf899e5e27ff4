"""One of three members of a consumer group is killed, or stands still: how long nobody reads its segments."""

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.clusters import cluster
from benchmarks.figures import Row, Scale, bounded, note
from benchmarks.inputs import key_of
from benchmarks.processes import scratch

TRIALS = 5
SEGMENTS = 32
MEMBERS = 3
EVENTS_A_SECOND = 1_000
SESSION_MS = 10_000
BEFORE_S, LEFT_S = 3.0, 3.0
JOINED_S_MAX = 60
TARGET_KILLED_MS, TARGET_SLACK_MS = 2_000, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What a member said: that it has read an event, or committed up to one."""

    member: int
    is_read: bool
    at: float
    segment: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """How long nobody read the slowest of the victim's segments, and what came of the events."""

    ms: float
    lost: int
    read_twice: int
    read_though_committed: int


def run(scale: Scale) -> Iterator[Row]:
    trials = scale.of(TRIALS, quick=1)
    session_ms = SESSION_MS if trials == TRIALS else SESSION_MS // 4
    cases = (("kill -9", signal.SIGKILL, TARGET_KILLED_MS), ("SIGSTOP", signal.SIGSTOP, session_ms + TARGET_SLACK_MS))
    for name, number, at_most in cases:
        gaps = []
        for _ in range(trials):
            with scratch() as directory, cluster(directory, segments=SEGMENTS) as nodes:
                addresses = [node.address.text for node in nodes]
                gaps.append(_trial(directory, addresses, number, session_ms=session_ms))
        worst = sorted(gap.ms for gap in gaps)
        yield bounded(f"{name} of a member: its segments are read again, worst of {trials}", value=worst[-1], unit="ms", at_most=at_most)
        yield note(f"{name}: min / median / max", f"{worst[0]:.0f} / {worst[len(worst) // 2]:.0f} / {worst[-1]:.0f} ms")
        yield bounded(f"{name}: events lost", value=sum(gap.lost for gap in gaps), unit="", at_most=0)
        yield bounded(
            f"{name}: events read again though committed", value=sum(gap.read_though_committed for gap in gaps), unit="", at_most=0
        )
        yield note(f"{name}: events read twice, uncommitted", f"{sum(gap.read_twice for gap in gaps):,}")
    yield note("session timeout", f"{session_ms / 1000:g} s")
    yield note("Kafka 4.3 on such a machine, kill -9 of a member", "11.9 s (aiokafka), 44-49 s (confluent, both protocols)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A running cluster and the members of a group, with the files that they write into."""

    addresses: Sequence[str]
    files: Sequence[Path]
    members: "Sequence[subprocess.Popen[bytes]]"
    session_ms: int


def _trial(directory: Path, addresses: Sequence[str], number: signal.Signals, *, session_ms: int) -> Gap:
    files = [directory / f"member-{at}" for at in range(MEMBERS)]
    asyncio.run(_create(addresses))
    with contextlib.ExitStack() as stack:
        members = [stack.enter_context(_member(file, addresses, session_ms)) for file in files]
        stage = Stage(addresses=addresses, files=files, members=members, session_ms=session_ms)
        struck, written = asyncio.run(_write(stage, number))
    return _judge([line for at, file in enumerate(files) for line in _lines(at, file)], struck, written)


@contextlib.contextmanager
def _member(file: Path, addresses: Sequence[str], session_ms: int) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-m", "benchmarks.group_member", str(session_ms), *addresses]
    with file.open("wb") as out, subprocess.Popen(command, stdout=out, stdin=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


async def _create(addresses: Sequence[str]) -> None:
    import eventlog

    async with eventlog.connect(*addresses) as client:
        await client.create_cache("w", format="bytes", key_format="bytes", state=False)


async def _write(stage: Stage, number: signal.Signals) -> tuple[float, dict[int, int]]:
    """Write at an even pace to all segments; strike once all members read. Return when, and how many events each segment has."""
    import eventlog

    async with eventlog.connect(*stage.addresses) as client:
        cache = client.cache("w")
        counts: dict[int, int] = {}

        async def write(end: float) -> None:
            at = 0
            while time.monotonic() < end:
                began = time.monotonic()
                keys = [key_of(at + step) for step in range(EVENTS_A_SECOND // 20)]
                at += len(keys)
                await cache.put_many([(key, b"x" * 100) for key in keys])
                await asyncio.sleep(max(0.0, began + 0.05 - time.monotonic()))

        give_up = time.monotonic() + JOINED_S_MAX
        while not all(any(line.is_read for line in _lines(0, file)) for file in stage.files):
            if time.monotonic() > give_up:
                raise TimeoutError(f"not every member reads after {JOINED_S_MAX} s")
            await write(time.monotonic() + 0.5)
        await write(time.monotonic() + BEFORE_S)
        stage.members[0].send_signal(number)
        struck = time.monotonic()
        await write(struck + LEFT_S + (stage.session_ms / 1000 if number == signal.SIGSTOP else 0))
        async for event in cache.events():
            counts[event.segment] = counts.get(event.segment, 0) + 1
        await _until_read(stage.files[1:], counts)
        return struck, counts


async def _until_read(files: Sequence[Path], counts: dict[int, int]) -> None:
    """Wait until the last event of every segment has been read by those who are left."""
    give_up = time.monotonic() + JOINED_S_MAX
    while time.monotonic() < give_up:
        read = {(line.segment, line.offset) for file in files for line in _lines(0, file) if line.is_read}
        if all((segment, count - 1) in read for segment, count in counts.items()):
            return
        await asyncio.sleep(0.2)


def _lines(member: int, file: Path) -> list[Line]:
    found = []
    for text in file.read_text().splitlines(keepends=True):
        if text.endswith("\n"):
            what, at, segment, offset = text.split()
            found.append(Line(member=member, is_read=what == "r", at=float(at), segment=int(segment), offset=int(offset)))
    return found


def _judge(lines: list[Line], struck: float, written: dict[int, int]) -> Gap:
    reader = {line.segment: line.member for line in sorted(lines, key=lambda line: line.at) if line.is_read and line.at <= struck}
    victims = {segment for segment, member in reader.items() if member == 0}
    again: dict[int, float] = {}
    committed: dict[int, int] = {}
    reads: dict[tuple[int, int], int] = {}
    though = 0
    for line in sorted(lines, key=lambda line: line.at):
        if not line.is_read:
            committed[line.segment] = max(line.offset, committed.get(line.segment, 0))
            continue
        though += line.offset < committed.get(line.segment, 0)
        reads[line.segment, line.offset] = reads.get((line.segment, line.offset), 0) + 1
        if line.member and line.at > struck and line.segment in victims:
            again.setdefault(line.segment, line.at)
    missing = victims - set(again)
    return Gap(
        ms=float("inf") if missing or not victims else (max(again.values()) - struck) * 1e3,
        lost=sum((segment, offset) not in reads for segment, count in written.items() for offset in range(count)),
        read_twice=sum(count - 1 for count in reads.values()),
        read_though_committed=though,
    )
