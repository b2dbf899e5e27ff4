"""Terms that other nodes name and no record seen here does: their messages rest until the records themselves were read.

An epoch comes from a segment's record, never from a message. A new primary has often seen its record a moment before its backups have.
So what it sends is kept, the records are read from the store, and the message is taken again. All that is wanted meanwhile goes into
the next reading: there is one at a time. A claim that the store does not bear out was false, since an honest sender read its own
record there. Its sender is refused every further claim for a while, or it could have the store read without end.
"""

from dataclasses import dataclass

import numpy as np

from eventlog.arrays import Mask
from eventlog.errors import BadMessage
from eventlog.replication.columns import SegmentColumns
from eventlog.replication.commands import Commands, Keep, LookUp, Take
from eventlog.replication.messages import Message, Table
from eventlog.replication.terms import Replica


@dataclass(slots=True, eq=False)
class _Claim:
    """`rows` name terms; `reading` is the first one that was begun after they came."""

    rows: Table
    reading: int
    message: Message | None


class Claims:
    """Claims by sender, at most `claims_max` of each."""

    def __init__(self, columns: SegmentColumns) -> None:
        self._columns = columns
        self._claims: dict[Replica, list[_Claim]] = {}
        self._doubted_until: dict[Replica, int] = {}
        self._reading = 0  # the number of the last one that was begun
        self._is_reading = False

    def are_ahead(self, rows: Table) -> Mask:
        """Return which rows name a term that no record seen here names; there may be none for the epoch that the own log ends in."""
        columns, segments, epochs = self._columns, rows["segment"], rows["epoch"]
        known = columns.epochs[segments]
        ahead: Mask = (epochs > known) | ((epochs == known) & (columns.sources[segments] == 0))
        return ahead

    def rest(self, sender: Replica, rows: Table, *, message: Message | None = None, now_ms: int) -> Commands:
        """Have records read for rows that are ahead of them; the message is kept unless too many of its sender's are.

        Raises:
            BadMessage: a claim of this sender was found false a moment ago.
        """
        if now_ms < self._doubted_until.get(sender, now_ms):
            row = rows[self.are_ahead(rows)][0]
            why = f"node {sender.node} is not known to be primary of segment {row['segment']}, epoch {row['epoch']}"
            raise BadMessage(why=f"replication: {why}")
        claims = self._claims.setdefault(sender, [])
        if len(claims) >= self._columns.options.claims_max:
            return []
        claims.append(_Claim(rows, self._reading + 1, message))
        return [*([] if message is None else [Keep(message=message)]), *self._read_on()]

    def settle(self) -> Commands:
        """Have messages taken whose terms records have named meanwhile, in the order in which they came."""
        commands: Commands = []
        for sender in list(self._claims):
            commands += self._release(sender, [claim for claim in self._claims[sender] if not self.are_ahead(claim.rows).any()])
        return commands

    def looked_up(self, *, now_ms: int) -> Commands:
        """Judge what was claimed before the reading began that is done now; have the rest looked up."""
        self._is_reading = False
        commands = self.settle()
        for sender in list(self._claims):
            untrue = [claim for claim in self._claims[sender] if claim.reading <= self._reading]
            if untrue:
                self._doubted_until[sender] = now_ms + self._columns.options.doubt_ms
                commands += self._release(sender, untrue)
        return commands + self._read_on()

    def _release(self, sender: Replica, claims: list[_Claim]) -> Commands:
        left = [claim for claim in self._claims[sender] if claim not in claims]
        if left:
            self._claims[sender] = left
        else:
            del self._claims[sender]
        return [Take(message=claim.message) for claim in claims if claim.message is not None]

    def _read_on(self) -> Commands:
        if self._is_reading or not self._claims:
            return []
        rows = [claim.rows[self.are_ahead(claim.rows)] for claims in self._claims.values() for claim in claims]
        self._is_reading = True
        self._reading += 1
        return [LookUp(segments=tuple(np.unique(np.concatenate([found["segment"] for found in rows])).tolist()))]
