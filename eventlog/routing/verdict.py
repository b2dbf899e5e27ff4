"""What the answer to a frame means for its blocks: written, to be sent again, or failed, and which numbers are still free."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eventlog.errors import EventLogError, KeyExists, NoState, OutcomeUnknown, ProducerUnknown, SequenceGap, VersionMismatch
from eventlog.routing.retry import CURABLE

Numbers = npt.NDArray[np.int64]

# Refusals that the primary logs as a block without effect, so that they use up a number.
LOGGED = (KeyExists, NoState, VersionMismatch)
OUT_OF_TURN = (ProducerUnknown, SequenceGap)


@dataclass(slots=True, kw_only=True)
class Verdict:
    """Of the refused blocks of a frame, by index. `unnumbered`: their numbers are free, because nothing was logged under them.

    Every block `again` is unnumbered; a failed one may be. `told` and `is_behind` are what `Window.refused_in_part` wants: of segments
    the last number that their primary knows; and whether it knows less than what was answered, so that it may be none any more.
    """

    again: list[int] = field(default_factory=list)
    failed: dict[int, EventLogError] = field(default_factory=dict)
    unnumbered: list[int] = field(default_factory=list)
    told: dict[int, int] = field(default_factory=dict)
    is_behind: bool = False


def judge(refusals: Mapping[int, EventLogError], *, sequences: Numbers, answered: Numbers, doubtful: bool) -> Verdict:
    """Return what became of refused blocks. `doubtful`: the frame was sent before, and that sending was never answered.

    `sequences` are the numbers of the frame's blocks, `answered` one above the highest answered so far in the chain of each.
    """
    verdict = Verdict()
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
