"""What a primary proposes for the in-sync sets of its segments, many in one commit, and what became of each.

Until the outcome of a proposal is known, its primary waits for the union of both sets: so every proposal gets an outcome, and
`unknown` is one of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from eventlog.control.records import CommitPlan, Replica, SegmentRecord, Versioned, encode, segment_key
from eventlog.control.rules import grow, shrink
from eventlog.errors import NotEnoughReplicas, NotPrimary

Kind = Literal["committed", "conflict", "unknown", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InSyncChange:
    """What the primary of `epoch` wants: the `gone` out of the set, and `joined`, which has caught up, in it.

    `revision` is that of the record that it was made from; 0 where any will do.
    """

    segment: int
    epoch: int
    revision: int = 0
    gone: tuple[Replica, ...] = ()
    joined: Replica | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a change, in the order in which they were proposed.

    committed   `record` is what was proposed            conflict   the record is another now: `record`, None if it is not there
    none        nothing was changed; propose it again    unknown    perhaps it was: read the record before anything else
    """

    change: InSyncChange
    kind: Kind
    record: Versioned[SegmentRecord] | None = None


def apply_change(record: SegmentRecord, change: InSyncChange, *, nonce: str) -> SegmentRecord:
    """Return the record as the change would have it.

    Raises:
        NotPrimary: the term is over, or who joined is no owner.
        NotEnoughReplicas: the set would be too small.
    """
    joined = change.joined
    # An earlier incarnation of who joins leaves by that: a set at its least size is as large afterwards.
    gone = [replica for replica in change.gone if joined is None or replica.node != joined.node]
    if gone:
        record = shrink(record, gone, epoch=change.epoch, nonce=nonce)
    if joined is not None:
        record = grow(record, joined, epoch=change.epoch, nonce=nonce)
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """One commit of changes, with the records as they will be, and the changes that the records of now do not allow."""

    plan: CommitPlan | None
    proposed: Mapping[int, SegmentRecord]
    refused: tuple[Outcome, ...]


def plan_batch(found: Mapping[int, Versioned[SegmentRecord]], changes: Sequence[InSyncChange], *, nonce: str) -> Batch:
    """Return the commit of all `changes` that the records in `found` allow; at most one change a segment."""
    assert len({change.segment for change in changes}) == len(changes), "one proposal of a segment at a time"
    expect: dict[str, int] = {}
    puts: dict[str, bytes] = {}
    proposed: dict[int, SegmentRecord] = {}
    refused = []
    for change in changes:
        before = found.get(change.segment)
        if before is None or change.revision not in (0, before.revision):
            refused.append(Outcome(change=change, kind="conflict", record=before))
            continue
        try:
            record = apply_change(before.record, change, nonce=nonce)
        except (NotPrimary, NotEnoughReplicas):
            refused.append(Outcome(change=change, kind="conflict", record=before))
            continue
        key = segment_key(change.segment)
        expect[key], puts[key] = before.revision, encode(record)
        proposed[change.segment] = record
    return Batch(plan=CommitPlan(expect=expect, puts=puts) if puts else None, proposed=proposed, refused=tuple(refused))
