"""The producer's window: which frames are on their way, under which numbers, and what must happen when one fails.

A primary takes the blocks of a producer only in a dense order per cache and segment (a *chain*), and remembers the results of the
last few. So the user of a window

1. adds frames in the order in which they are to take effect (`add`) and sends what `take` returns, in that order, on one connection;
2. reports every answer: `answered` when the numbers of the frame are used up (written, written without effect, or appended with an
   unknown outcome), `refused` and its sisters when they are not;
3. reports a lost connection (`lost`), and on the next one first sends what `resume` returns, in that order;
4. begins anew with another producer id, on another connection, when `wants_anew` says so and nothing is unanswered any more.

A refused frame leaves a hole in its chains: what was sent after it is refused too. The window then lets nothing new out until every
frame on its way is answered (it *drains*), gives the free numbers to what is left, in the old order, and goes on: with one frame, and
when that is answered with the others.

A frame is *doubtful* when an earlier sending was never answered: its bytes may still lie unread in the buffers of a lost connection.
It keeps its numbers for good, whatever is refused. Where that is impossible, because a number before it has nobody to use it any
more, only another producer id is safe, and the fate of the doubtful frames stays unknown.

A primary that has forgotten a producer refuses every number of it but 0, and writes that as new. It forgets no producer that wrote within
PRODUCER_IDLE_MS_MIN. So before a window resumes, and while frames in doubt are queued, its user asks `is_outlived`: whether one of them
is older, and has a block of a chain of which nothing was answered yet.

A number that was answered is never given again: its holder would take the new block for the old one. A node that knows less than what
was answered stands still in the past (it was paused, or cut off, and another leads its segments now), so frames keep their numbers and
are sent again; if that goes on, the producer was forgotten there, or data lost on purpose, and another producer id begins.

There is a window for each node, and they share one `Numbering`. The user of several sees to it that each segment is in one of them:
where its primary is another now, `withdraw` takes frames out, which is possible once nothing of a window is on its way or its
connection is lost, and `put_back` puts what belongs there into another window, with its place in the order and, if it is doubtful,
its numbers.
"""

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from itertools import count
from typing import Generic, TypeVar

import numpy as np
import numpy.typing as npt

from eventlog.arrays import NONE
from eventlog.errors import EventLogError, KeyExists, NoState, OutcomeUnknown, ProducerUnknown, SequenceGap, VersionMismatch
from eventlog.limits import PRODUCER_RESULTS_KEPT
from eventlog.routing.retry import CURABLE

Sequences = npt.NDArray[np.int64]
SEQUENCE_MAX = (1 << 32) - 1
Content = TypeVar("Content")
Blocks = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]

# Refusals that the primary logs as a block without effect, so that they use up a number.
LOGGED = (KeyExists, NoState, VersionMismatch)
OUT_OF_TURN = (ProducerUnknown, SequenceGap)


class Chains:
    """Of one cache, per segment: the next number to give, one above the highest answered, and how many blocks are unanswered."""

    __slots__ = ("answered", "next", "unanswered")

    def __init__(self, segments: int) -> None:
        self.next = np.zeros(segments, np.int64)
        self.answered = np.zeros(segments, np.int64)
        self.unanswered = np.zeros(segments, np.int64)


class Numbering:
    """A segment is in one window at a time, so windows never meet in a chain; what moves between windows finds its numbers here."""

    __slots__ = ("chains", "places", "segments", "wants_anew")

    def __init__(self, segments: int) -> None:
        self.segments = segments
        self.chains = defaultdict[int, Chains](partial(Chains, segments))  # by cache
        self.places = count(1)  # the next one is the place of a new frame, behind all others
        self.wants_anew = False  # only another producer id can go on

    def begin_anew(self) -> None:
        """Take note of another producer id: every chain begins at 0."""
        self.chains.clear()
        self.wants_anew = False


class State(IntEnum):
    """Where a frame is. `CHANGES` has every legal change."""

    QUEUED = 0  # has no numbers
    SENT = 1  # on the connection of now
    LOST = 2  # sent on a connection that is gone: may be written or not
    HELD = 3  # refused, waits for the window to drain, then for another turn
    DONE = 4


CHANGES = frozenset(
    {
        (State.QUEUED, State.SENT),
        (State.QUEUED, State.DONE),
        (State.SENT, State.LOST),
        (State.SENT, State.HELD),
        (State.SENT, State.DONE),
        (State.LOST, State.SENT),
        (State.LOST, State.DONE),
        (State.LOST, State.HELD),
        (State.HELD, State.QUEUED),
        (State.HELD, State.DONE),
    }
)


class NumberedFrame(Generic[Content]):
    """Blocks of one cache that are sent together; `segments` rise. `content` is the user's own.

    `sequences` has the number of each block while the frame is SENT, LOST or HELD, and always if it is `doubtful`. `wanted`: somebody
    still waits for it; the owner clears it. `place` rises in the order in which frames were added; what stands for a frame has its place.
    `only` is the segment of a frame of one block, which is worth a shorter way: numpy takes microseconds for one number.
    `sent_at` is the owner's, of any clock: not later than the first of the sendings that are in doubt.
    """

    __slots__ = ("cache", "content", "doubtful", "only", "place", "segments", "sent_at", "sequences", "state", "wanted")

    def __init__(self, *, cache: int, segments: npt.NDArray[np.int64], content: Content) -> None:
        self.cache = cache
        self.segments = segments
        self.only = segments.item(0) if len(segments) == 1 else -1
        self.content = content
        self.sequences: Sequences = NONE
        self.state = State.QUEUED
        self.doubtful = False
        self.wanted = True
        self.place = 0
        self.sent_at = 0.0

    def change(self, state: State) -> None:
        """Move to `state`."""
        assert (self.state, state) in CHANGES, f"a frame never goes from {self.state.name} to {state.name}"
        self.state = state


BEHIND_MAX = 5  # with the waits between: a few tenths of a second
_SENT, _DONE = State.SENT, State.DONE  # attributes of an enumeration are slow


class Window(Generic[Content]):
    """See the module. `numbered=False` is for writers without a producer id: nothing is numbered, held back or sent again.

    Invariant: in each chain the numbers of SENT, LOST and HELD frames are dense, rise in the order of sending, and end below `next`.
    """

    def __init__(self, numbering: Numbering, *, numbered: bool = True, unanswered_max: int = PRODUCER_RESULTS_KEPT) -> None:
        self._numbering = numbering
        self._numbered = numbered
        self._unanswered_max = unanswered_max
        self._queue: deque[NumberedFrame[Content]] = deque()
        self._sent: dict[int, NumberedFrame[Content]] = {}
        self._held: list[NumberedFrame[Content]] = []
        self._is_draining = False
        self.has_doubts = False  # doubtful frames may be QUEUED: nothing overtakes them, or their results could be forgotten meanwhile
        self._is_probing = False  # after a refusal: one frame alone, or each refusal would cost all that was sent behind it
        self._freed: dict[int, Sequences] = {}
        self._told: dict[tuple[int, int], int] = {}
        self._behind = 0  # how often in turn somebody knew less than was answered
        self.is_connected = False
        self.is_paused = False  # its owner wants nothing new to leave, so that frames can be withdrawn soon

    def __len__(self) -> int:
        """Return how many frames are not DONE."""
        return len(self._queue) + len(self._sent) + len(self._held)

    @property
    def is_draining(self) -> bool:
        """Whether new frames wait for the answers to all that were sent."""
        return self._is_draining or self.wants_anew

    @property
    def wants_anew(self) -> bool:
        """Whether only another producer id can go on."""
        return self._numbering.wants_anew

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is on its way, or it is unknown what became of it: frames can be withdrawn."""
        return not self._sent or not self.is_connected

    @property
    def has_unanswered(self) -> bool:
        """Whether a frame is SENT or LOST."""
        return bool(self._sent)

    @property
    def is_full(self) -> bool:
        """Whether frames wait for answers to others, and for nothing else."""
        return bool(self._queue and self.is_connected) and not (self.is_draining or self.is_paused or self._is_probing or self.has_doubts)

    def unanswered(self) -> Iterator[NumberedFrame[Content]]:
        """Yield frames that are SENT or LOST, in the order of sending."""
        return iter(tuple(self._sent.values()))

    @property
    def in_doubt(self) -> list[NumberedFrame[Content]]:
        """Return the doubtful frames that are to be sent again: LOST, or QUEUED under their numbers."""
        lost = [frame for frame in self._sent.values() if frame.state is State.LOST]
        return lost + [frame for frame in self._queue if frame.doubtful] if self.has_doubts else lost

    def is_outlived(self, before: float) -> bool:
        """Return whether a frame in doubt, sent before `before`, has a block of a chain of which nothing was answered.

        Then only another producer id can go on: of all frames in doubt nobody will know what became of them.
        """
        chains = self._numbering.chains
        found = any(frame.sent_at < before and not chains[frame.cache].answered[frame.segments].all() for frame in self.in_doubt)
        self._numbering.wants_anew |= found
        return found

    def answered_before(self, frame: NumberedFrame[Content]) -> Sequences:
        """Return, for the chain of each block, one above the highest number answered so far."""
        found: Sequences = self._numbering.chains[frame.cache].answered[frame.segments]
        return found

    def add(self, frame: NumberedFrame[Content]) -> None:
        """Put a QUEUED frame behind all others, of other windows too."""
        assert frame.state is State.QUEUED
        if not frame.place:
            frame.place = next(self._numbering.places)
        self._queue.append(frame)

    def take(self) -> NumberedFrame[Content] | None:
        """Return the next frame to send, numbered; None while nothing may be sent.

        A chain never has more unanswered blocks than the primary remembers results of, or a block that was written could be refused
        when it is sent again.
        """
        queue = self._queue
        while queue and not queue[0].wanted and not queue[0].doubtful:
            queue.popleft().change(_DONE)
        if not queue or not self.is_connected or self._is_draining or self.is_paused or self._numbering.wants_anew:
            return None
        if self._is_probing and self._sent:
            return None
        frame = queue[0]
        if self.has_doubts and not any(queued.doubtful for queued in self._queue):
            if any(sent.doubtful for sent in self._sent.values()):
                return None
            self.has_doubts = False
        if self._numbered:
            is_one = frame.only >= 0 and not frame.doubtful
            if not (self._number_one(frame) if is_one else self._number(frame)):
                return None
        queue.popleft()
        frame.change(_SENT)
        self._sent[id(frame)] = frame
        return frame

    def _number(self, frame: NumberedFrame[Content]) -> bool:
        chains = self._numbering.chains[frame.cache]
        segments = frame.segments
        if np.count_nonzero(chains.unanswered[segments] >= self._unanswered_max):
            return False
        following = chains.next[segments]
        if frame.doubtful:
            # What comes before an answered number was written; else it must be just the next one.
            is_safe = frame.wanted and not np.count_nonzero((following != frame.sequences) & (frame.sequences >= chains.answered[segments]))
        else:
            is_safe = not np.count_nonzero(following >= SEQUENCE_MAX)
            frame.sequences = following
        if not is_safe:
            self._numbering.wants_anew = True
            return False
        chains.next[segments] = np.maximum(following, frame.sequences + 1)
        chains.unanswered[segments] += 1
        return True

    def _number_one(self, frame: NumberedFrame[Content]) -> bool:
        chains, segment = self._numbering.chains[frame.cache], frame.only
        unanswered, following = chains.unanswered.item(segment), chains.next.item(segment)
        if unanswered >= self._unanswered_max:
            return False
        if following >= SEQUENCE_MAX:
            self._numbering.wants_anew = True
            return False
        frame.sequences = np.array((following,))
        chains.next[segment] = following + 1
        chains.unanswered[segment] = unanswered + 1
        return True

    def answered(self, frame: NumberedFrame[Content]) -> None:
        """Note that the numbers of a SENT frame are used up."""
        self._leave(frame, _DONE)
        self._is_probing = False
        self._behind = 0
        if self._numbered:
            if frame.only >= 0 and not self._told:
                answered, segment = self._numbering.chains[frame.cache].answered, frame.only
                answered[segment] = max(answered.item(segment), frame.sequences.item(0) + 1)
            else:
                self._use(frame.cache, frame.segments, frame.sequences)
        if self._is_draining:
            self._settle()

    def refused(self, frame: NumberedFrame[Content], *, told: Mapping[int, int] | None = None) -> None:
        """Note that nothing of a SENT frame was written. It gets another turn, if it is `wanted` by then.

        `told`: by segment the last number that its primary knows, -1 for none, where it said so.
        """
        if not self._numbered:
            self._leave(frame, State.DONE)
            return
        self._leave(frame, State.HELD)
        self._free(frame.cache, frame.segments, frame.sequences)
        self._held.append(frame)
        self._end_turn(frame, told)

    def doubted(self, frame: NumberedFrame[Content]) -> None:
        """Note that nobody knows whether a SENT frame was written: it is to be sent again under its numbers, as if it had been lost."""
        frame.doubtful = True
        self.refused(frame)

    def refused_in_part(
        self,
        frame: NumberedFrame[Content],
        rest: NumberedFrame[Content],
        *,
        free: Blocks,
        again: Blocks,
        told: Mapping[int, int],
        is_behind: bool = False,
    ) -> None:
        """Note that the numbers of the blocks `free`, by index, of a SENT frame were not used. `rest`, QUEUED, has its blocks `again`.

        Without any it is sent nowhere. `is_behind`: the node that refused it knows less than what was answered.
        """
        self._behind += is_behind
        self._numbering.wants_anew |= self._behind > BEHIND_MAX
        self._leave(frame, State.DONE)
        if frame.doubtful:
            self._numbering.wants_anew |= len(free) != len(again)
            rest.doubtful, rest.sequences, rest.sent_at = True, frame.sequences[again], frame.sent_at
        used = np.delete(np.arange(len(frame.segments)), free)
        self._use(frame.cache, frame.segments[used], frame.sequences[used])
        self._free(frame.cache, frame.segments[free], frame.sequences[free])
        if len(again):  # a frame of no blocks has no lane to go to
            rest.place = frame.place
            self._held.append(rest)
        self._end_turn(frame, told)

    def replaced(self, frame: NumberedFrame[Content], instead: Sequence[NumberedFrame[Content]]) -> None:
        """Note that nothing of a SENT frame, not doubtful, was written, and that other QUEUED frames take its place."""
        assert not frame.doubtful
        self._leave(frame, State.DONE)
        self._free(frame.cache, frame.segments, frame.sequences)
        for part in instead:
            part.place = frame.place
        self._held += instead
        self._end_turn(frame, None)

    def lost(self) -> None:
        """Note that the connection is gone: whatever it carried may be written or not."""
        self.is_connected = False
        for frame in self._sent.values():
            if frame.state is State.SENT:
                frame.change(State.LOST)
                frame.doubtful = True

    def resume(self) -> list[NumberedFrame[Content]]:
        """Note a new connection for the same producer, and return what must be sent on it before anything else, numbers unchanged."""
        self.is_connected = True
        again = list(self._sent.values())
        for frame in again:
            frame.change(State.SENT)
        return again

    def give_up(self, frame: NumberedFrame[Content]) -> None:
        """Forget a LOST frame whose numbers do not matter any more (a window that numbers nothing)."""
        assert not self._numbered
        self._leave(frame, State.DONE)

    @property
    def is_pointless(self) -> bool:
        """Whether all that a resumed producer would send again is no longer wanted: better begin anew and never write it."""
        return bool(self._sent) and not any(frame.wanted for frame in (*self._sent.values(), *self._held))

    def begin_anew(self) -> list[NumberedFrame[Content]]:
        """Note that the next connection has another producer id: chains begin at 0. Return frames whose fate stays unknown, now DONE."""
        self._requeue()
        unknown = [*self._sent.values(), *(frame for frame in self._queue if frame.doubtful)]
        for frame in unknown:
            frame.change(State.DONE)
        self._sent.clear()
        self._queue = deque(frame for frame in self._queue if not frame.doubtful)
        self._numbering.begin_anew()
        self._freed.clear()
        self._told.clear()
        self._is_draining = self._is_probing = False
        self._behind = 0
        return unknown

    def withdraw(self) -> list[NumberedFrame[Content]]:
        """Give all frames back, in their order; those that were LOST are doubtful. Nothing may be on its way: see `is_quiet`."""
        assert self.is_quiet, "a frame on its way is answered here or lost"
        for frame in list(self._sent.values()):
            self._leave(frame, State.HELD)
            if self._numbered:
                self._free(frame.cache, frame.segments, frame.sequences)
            self._held.append(frame)
        self._settle()
        self._requeue()
        self._is_probing = False
        frames = list(self._queue)
        self._queue.clear()
        return frames

    def put_back(self, frames: Sequence[NumberedFrame[Content]]) -> None:
        """Take QUEUED frames in that have a place already. Doubtful ones bring their numbers."""
        assert all(frame.state is State.QUEUED for frame in frames)
        self.has_doubts |= any(frame.doubtful for frame in frames)
        self._queue = deque(sorted((*self._queue, *frames), key=lambda frame: frame.place))

    def _leave(self, frame: NumberedFrame[Content], state: State) -> None:
        frame.change(state)
        del self._sent[id(frame)]
        if self._numbered:
            unanswered, only = self._numbering.chains[frame.cache].unanswered, frame.only
            if only >= 0:
                unanswered[only] -= 1
            else:
                unanswered[frame.segments] -= 1

    def _use(self, cache: int, segments: npt.NDArray[np.integer], sequences: Sequences) -> None:
        answered = self._numbering.chains[cache].answered
        answered[segments] = np.maximum(answered[segments], sequences + 1)
        for place in [place for place in self._told if place[0] == cache and place[1] in segments]:
            del self._told[place]  # said before this answer

    def _free(self, cache: int, segments: npt.NDArray[np.integer], sequences: Sequences) -> None:
        """Give numbers back: once the window has drained, a chain goes on with the lowest above all answered."""
        self._is_draining = True
        freed = self._freed.setdefault(cache, np.full(self._numbering.segments, SEQUENCE_MAX, np.int64))
        freed[segments] = np.minimum(freed[segments], sequences)

    def _end_turn(self, frame: NumberedFrame[Content], told: Mapping[int, int] | None) -> None:
        for segment, last in (told or {}).items():
            self._told[frame.cache, segment] = last
        self._settle()

    def _settle(self) -> None:
        """Go on once nothing is on its way."""
        if self._sent or not self._is_draining:
            return
        for cache, freed in self._freed.items():
            chains = self._numbering.chains[cache]
            changed = freed < SEQUENCE_MAX  # other chains may be in other windows
            lowest = np.maximum(np.minimum(chains.next, freed), chains.answered)
            chains.next[changed] = lowest[changed]
        for (cache, segment), last in self._told.items():
            chains = self._numbering.chains[cache]
            if last < chains.next[segment]:  # more would be a frame in doubt, written
                chains.next[segment] = last + 1
        self._freed.clear()
        self._told.clear()
        self.has_doubts |= any(frame.doubtful for frame in self._held)
        self._requeue()
        self._is_draining = False
        self._is_probing = True

    def _requeue(self) -> None:
        # Not in the order of refusals: on a new connection, frames in doubt are refused after those behind them.
        self._held.sort(key=lambda frame: frame.place)
        for frame in reversed(self._held):
            if frame.state is State.HELD:
                frame.change(State.QUEUED)
            self._queue.appendleft(frame)
        self._held.clear()


@dataclass(slots=True, kw_only=True)
class Refusals:
    """Of the refused blocks of a frame, by index. `unnumbered`: their numbers are free, because nothing was logged under them.

    Every block `again` is unnumbered; a failed one may be. `told` and `is_behind` are what `Window.refused_in_part` wants: of segments
    the last number that their primary knows; and whether it knows less than what was answered, so that it may be none any more.
    """

    again: list[int] = field(default_factory=list)
    failed: dict[int, EventLogError] = field(default_factory=dict)
    unnumbered: list[int] = field(default_factory=list)
    told: dict[int, int] = field(default_factory=dict)
    is_behind: bool = False


def judge(refusals: Mapping[int, EventLogError], *, sequences: Numbers, answered: Numbers, doubtful: bool) -> Refusals:
    """Return what became of refused blocks. `doubtful`: the frame was sent before, and that sending was never answered.

    `sequences` are the numbers of the frame's blocks, `answered` one above the highest answered so far in the chain of each.
    """
    verdict = Refusals()
    for block, error in sorted(refusals.items()):
        if isinstance(error, SequenceGap) and int(sequences[block]) <= error.last:
            # Numbers are dense, so this one was taken, by this very block; only its result is forgotten.
            verdict.failed[block] = OutcomeUnknown(outcome="unknown", why="it was written by an earlier try, its ids are forgotten")
        elif isinstance(error, OUT_OF_TURN):
            verdict.again.append(block)
            verdict.unnumbered.append(block)
            last = error.last if isinstance(error, SequenceGap) else -1  # an unknown producer has no last number
            if last + 1 < answered[block]:
                verdict.is_behind = True
            else:
                verdict.told[error.segment] = last
        elif isinstance(error, CURABLE) and error.outcome == "none":
            verdict.again.append(block)
            verdict.unnumbered.append(block)
        elif isinstance(error, LOGGED) or error.outcome == "unknown":
            verdict.failed[block] = error
        else:
            verdict.failed[block] = OutcomeUnknown(outcome="unknown", why=f"a second try failed: {error}") if doubtful else error
            verdict.unnumbered.append(block)
    return verdict
