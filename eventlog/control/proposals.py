"""What a primary proposes for the in-sync sets of its segments, many in one commit, and what became of each.

Until it is certain what became of a proposal, its primary waits for the union of both sets. So every attempt has an outcome, `unknown`
is one of them, and `Proposals` keeps trying until each change has one that is certain.

The node adds changes and is told outcomes; it decides nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from eventlog.control.records import CommitPlan, ReplicaRecord, SegmentRecord, Versioned, encode, segment_key
from eventlog.control.rules import grow, shrink
from eventlog.errors import NotEnoughReplicas, NotPrimary

Kind = Literal["committed", "conflict", "unknown", "none"]


@dataclass(frozen=True, slots=True, kw_only=True)
class InSyncChange:
    """What the primary of `epoch` wants: the `gone` out of the set, and `joined`, which has caught up, in it.

    `revision` is that of the record that it was made from: on any other record it means something else.
    """

    segment: int
    epoch: int
    revision: int
    gone: tuple[ReplicaRecord, ...] = ()
    joined: ReplicaRecord | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a change, in the order in which they were proposed.

    committed   `record` is what was proposed            conflict   the record is another now: `record`, None if it is not there
    none        nothing was changed; propose it again    unknown    perhaps it was: read the record before anything else
    """

    change: InSyncChange
    kind: Kind
    record: Versioned[SegmentRecord] | None = None

    @property
    def found(self) -> Versioned[SegmentRecord] | None:
        """Return the record that decides the change, committed or not; None where the one that it was made from still stands."""
        return self.record if self.record is not None and self.record.revision != self.change.revision else None


class Proposals:
    """The changes that a node wants, until it is certain what became of each.

    A change of unknown outcome is tried again as it is: on one revision it cannot be carried out twice. Once the outcome of an attempt
    is unknown, a later attempt that changed nothing says nothing about it.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, InSyncChange] = {}
        self._unsure: dict[int, int] = {}  # segment -> revision of the change that an attempt left open

    def add(self, change: InSyncChange) -> None:
        """Want a change. Of two of a segment, that of the older record is void: nobody waits for it any more."""
        waiting = self._waiting.get(change.segment)
        if waiting is None or waiting.revision <= change.revision:
            self._waiting[change.segment] = change

    def take(self) -> list[InSyncChange]:
        """Return what is to be tried now, at most one change a segment."""
        taken = list(self._waiting.values())
        self._waiting.clear()
        return taken

    def settle(self, outcomes: Iterable[Outcome]) -> list[Outcome]:
        """Take the outcomes of what was tried; return those that are certain, and want the other changes again."""
        certain = []
        for outcome in outcomes:
            if self._is_open(outcome):
                self._unsure[outcome.change.segment] = outcome.change.revision
                self.add(outcome.change)
            else:
                self._unsure.pop(outcome.change.segment, None)
                certain.append(outcome)
        return certain

    def _is_open(self, outcome: Outcome) -> bool:
        """Return whether the change may have been carried out, or may yet be."""
        was_open = self._unsure.get(outcome.change.segment) == outcome.change.revision
        return outcome.kind == "unknown" or (outcome.kind == "none" and was_open)

    @property
    def is_unsure(self) -> bool:
        """Return whether an attempt has left a change open."""
        return bool(self._unsure)


def apply_change(record: SegmentRecord, change: InSyncChange, *, nonce: str) -> SegmentRecord:
    """Return the record as the change would have it.

    Raises:
        NotPrimary: the term is over, or the joining node is no owner.
        NotEnoughReplicas: the set would be too small.
    """
    joined = change.joined
    # An earlier incarnation of the joining node leaves by that: a set at its least size is as large afterwards.
    gone = [replica for replica in change.gone if joined is None or replica.node != joined.node]
    if gone:
        record = shrink(record, gone, epoch=change.epoch, nonce=nonce)
    if joined is not None:
        record = grow(record, joined, epoch=change.epoch, nonce=nonce)
    return record


@dataclass(frozen=True, slots=True, kw_only=True)
class ProposedCommit:
    """One commit of changes, with the records as they will be, and the changes that the records of now do not allow."""

    plan: CommitPlan | None
    proposed: Mapping[int, SegmentRecord]
    refused: tuple[Outcome, ...]


def plan_batch(found: Mapping[int, Versioned[SegmentRecord]], changes: Sequence[InSyncChange], *, nonce: str) -> ProposedCommit:
    """Return the commit of all `changes` that the records in `found` allow; at most one change a segment."""
    assert len({change.segment for change in changes}) == len(changes), "one proposal of a segment at a time"
    expect: dict[str, int] = {}
    puts: dict[str, bytes] = {}
    proposed: dict[int, SegmentRecord] = {}
    refused = []
    for change in changes:
        before = found.get(change.segment)
        if before is None or change.revision != before.revision:
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
    return ProposedCommit(plan=CommitPlan(expect=expect, puts=puts) if puts else None, proposed=proposed, refused=tuple(refused))
