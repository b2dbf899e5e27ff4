"""A model of primaries that are slow, refuse, forget nothing, read old connections late and stand in the past, against the window."""

import random
from collections import Counter, deque
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.errors import EventLogError, Overloaded, ProducerUnknown, SequenceGap
from eventlog.limits import PRODUCER_RESULTS_KEPT
from eventlog.routing.window import NumberedFrame, Numbering, Window, judge
from tests.examples import examples

SEGMENTS = 3


@dataclass
class Sending:
    """One frame as it lies in the buffers of a connection."""

    frame: NumberedFrame[list[str]]
    producer: int
    blocks: list[tuple[int, int, str]]


@dataclass
class Primaries:
    """Every segment's primary: dense numbers, the last results kept, connections read in any order, each in its own."""

    last: dict[tuple[int, int], int] = field(default_factory=dict)
    results: dict[tuple[int, int], dict[int, str]] = field(default_factory=dict)
    log: list[tuple[int, str]] = field(default_factory=list)
    past: "Primaries | None" = None

    def fall_asleep(self) -> None:
        """Have somebody who leads all segments now stand still, and somebody else lead them from now on."""
        self.past = Primaries(last=dict(self.last), results={place: dict(known) for place, known in self.results.items()})

    def would_write(self, sending: Sending) -> bool:
        """Return whether a block goes on where the last one ended."""
        return any(sequence == self.last.get((sending.producer, segment), -1) + 1 for segment, sequence, _ in sending.blocks)

    def handle(self, sending: Sending, *, whim: EventLogError | None, is_live: bool) -> dict[int, EventLogError]:
        if whim is not None:
            return dict.fromkeys(range(len(sending.blocks)), whim)
        refusals: dict[int, EventLogError] = {}
        for index, (segment, sequence, name) in enumerate(sending.blocks):
            place = (sending.producer, segment)
            known = self.results.setdefault(place, {})
            last = self.last.get(place, -1)
            if sequence == last + 1:
                self.last[place] = sequence
                self.log.append((segment, name))
                known[sequence] = name
                known.pop(sequence - PRODUCER_RESULTS_KEPT, None)
            elif sequence in known:
                assert known[sequence] == name, "two blocks had one number"
            elif last < 0:
                refusals[index] = ProducerUnknown(producer=sending.producer, segment=segment)
            else:
                assert sequence > last or not is_live, "a result was forgotten although the window is bounded"
                refusals[index] = SequenceGap(producer=sending.producer, segment=segment, found=sequence, last=last)
        return refusals


class Client:
    """What a shell does with a window, without a socket."""

    def __init__(self) -> None:
        self.window: Window[list[str]] = Window(Numbering(SEGMENTS))
        self.primaries = Primaries()
        self.producer = 1
        self.unread: list[deque[Sending]] = []
        self.answers: deque[tuple[Sending, dict[int, EventLogError], bool]] = deque()
        self.acknowledged: list[tuple[int, str]] = []
        self.unknown: set[str] = set()
        self.count = 0
        self.connect()

    def connect(self) -> None:
        self.unread.append(deque())
        for again in self.window.resume():
            self.send(again)
        self.pump()

    def disconnect(self) -> None:
        self.answers.clear()
        self.window.lost()
        if (self.window.wants_anew and not list(self.window.unanswered())) or self.window.is_pointless:
            self.producer += 1
            for lost in self.window.begin_anew():
                self.unknown.update(lost.content)
        self.connect()

    def write(self, segments: list[int]) -> None:
        name = f"f{self.count}"
        self.count += 1
        names = [f"{name}.{segment}" for segment in segments]
        self.window.add(NumberedFrame(cache=1, segments=np.array(segments), content=names))
        self.pump()

    def pump(self) -> None:
        while (taken := self.window.take()) is not None:
            self.send(taken)
        if self.window.wants_anew and not list(self.window.unanswered()):
            self.disconnect()

    def send(self, sent: NumberedFrame[list[str]]) -> None:
        blocks = list(zip(sent.segments.tolist(), sent.sequences.tolist(), sent.content, strict=True))
        self.unread[-1].append(Sending(frame=sent, producer=self.producer, blocks=blocks))

    def primary_reads(self, connection: int, *, refuses: bool, is_past: bool = False) -> None:
        waiting = [index for index, buffer in enumerate(self.unread) if buffer]
        if not waiting:
            return
        index = waiting[connection % len(waiting)]
        sending = self.unread[index].popleft()
        is_live = index == len(self.unread) - 1
        primaries = self.primaries.past if is_past and self.primaries.past is not None else self.primaries
        refuses |= primaries is self.primaries.past and primaries.would_write(sending)  # it finds nobody to replicate it to
        refusals = primaries.handle(sending, whim=Overloaded(what="x", limit=1) if refuses else None, is_live=is_live)
        if is_live:
            self.answers.append((sending, refusals, refuses))

    def answer_comes(self) -> None:
        if not self.answers:
            return
        sending, refusals, whole = self.answers.popleft()
        sent = sending.frame
        if whole:
            self.window.refused(sent)
        elif not refusals:
            self.acknowledge(sent, range(len(sent.content)))
            self.window.answered(sent)
        else:
            self.sort_out(sent, refusals)
        self.pump()

    def sort_out(self, sent: NumberedFrame[list[str]], refusals: dict[int, EventLogError]) -> None:
        verdict = judge(refusals, sequences=sent.sequences, answered=self.window.answered_before(sent), doubtful=sent.doubtful)
        self.acknowledge(sent, [block for block in range(len(sent.content)) if block not in refusals])
        self.unknown.update(sent.content[block] for block in verdict.failed)
        rest = NumberedFrame(cache=1, segments=sent.segments[verdict.again], content=[sent.content[block] for block in verdict.again])
        rest.wanted = sent.wanted and bool(verdict.again)
        free, again = np.array(verdict.unnumbered, np.int64), np.array(verdict.again, np.int64)
        self.window.refused_in_part(sent, rest, free=free, again=again, told=verdict.told, is_behind=verdict.is_behind)

    def acknowledge(self, sent: NumberedFrame[list[str]], blocks: "range | list[int]") -> None:
        self.acknowledged += [(int(sent.segments[block]), sent.content[block]) for block in blocks]

    def abandon(self, which: int) -> None:
        frames = list(self.window.unanswered())
        if frames:
            frames[which % len(frames)].wanted = False
            self.unknown.update(frames[which % len(frames)].content)


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=examples(150), deadline=None)
def test_every_acknowledged_block_is_written_once_in_order_whatever_fails(seed: int) -> None:
    chance = random.Random(seed)
    client = Client()
    faults = chance.choice((0.05, 0.2))
    for _ in range(chance.randrange(150)):
        step = chance.random()
        if step < faults / 4:
            client.disconnect()
        elif step < faults / 2:
            client.abandon(chance.randrange(9))
        elif step < faults * 3 / 4:
            client.primary_reads(chance.randrange(4), refuses=True)
        elif step < faults * 7 / 8:
            client.primaries.fall_asleep()
        elif step < faults:
            client.primary_reads(chance.randrange(4), refuses=False, is_past=True)
        elif step < 0.5:
            client.write(sorted(chance.sample(range(SEGMENTS), chance.choice((1, 1, 2, 3)))))
        elif step < 0.75:
            client.primary_reads(chance.randrange(4), refuses=False)
        else:
            client.answer_comes()
    heal(client)
    check(client)


def heal(client: Client) -> None:
    for _ in range(10_000):
        if not len(client.window) and not any(client.unread):
            return
        client.primary_reads(len(client.unread) - 1, refuses=False)
        client.answer_comes()
    pytest.fail("the window does not come to rest")


def check(client: Client) -> None:
    written = Counter(client.primaries.log)
    assert max(written.values(), default=1) == 1, "a block was written twice"
    acknowledged = set(client.acknowledged)
    assert acknowledged <= set(written), "an acknowledged block is missing"
    assert {name for _, name in written} <= {name for _, name in acknowledged} | client.unknown
    names = {f"f{n}" for n in range(client.count)}
    assert names == {name.split(".")[0] for name in {name for _, name in acknowledged} | client.unknown}
    certain = {(segment, name) for segment, name in acknowledged if name not in client.unknown}
    for segment in range(SEGMENTS):
        order = [int(name[1:].split(".")[0]) for own, name in client.primaries.log if own == segment and (own, name) in certain]
        assert order == sorted(order), "writes changed places"
