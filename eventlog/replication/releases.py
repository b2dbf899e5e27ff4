"""Replicas that this node is to hold no more: each is deleted, when nothing else is under way with it."""

from eventlog.replication.columns import Columns
from eventlog.replication.installs import Installs
from eventlog.replication.terms import Term


class Releases:
    """Which replicas go. One thing at a time is done to a log: a deletion waits for the end of a cut, or of the begin of an install.

    Told of that end, the replica would take rows again, and the deletion would tear a hole into them.
    """

    def __init__(self, columns: Columns, installs: Installs) -> None:
        self._columns = columns
        self._installs = installs
        self._waiting: set[int] = set()
        self._begun: set[int] = set()

    def take(self, term: Term) -> bool:
        """Note whether a record names this node; return whether its replica is to be deleted now.

        A record of an epoch that is over says nothing of that: who has taken rows of a later one was named again, and may be in sync.
        """
        columns, segment = self._columns, term.segment
        if term.epoch < columns.epochs.item(segment):
            return False
        had = bool(columns.holds[segment]) or columns.ends.item(segment) > 0
        columns.holds[segment] = columns.own.node in term.owners or columns.own in term.in_sync
        if columns.holds[segment]:
            self._waiting.discard(segment)
            return False
        if not had or columns.leads[segment] or segment in self._begun:
            return False
        columns.matched[segment] = False  # what is still on its way to the disk is not acknowledged any more
        self._waiting.add(segment)
        return self.begin(segment)

    def begin(self, segment: int) -> bool:
        """Return whether a replica that waits for its deletion is to be deleted now."""
        columns = self._columns
        if segment not in self._waiting or columns.busy[segment]:
            return False
        self._waiting.discard(segment)
        self._begun.add(segment)
        self._installs.drop(segment)  # its end may be on the way to the disk: nobody is told that it is whole
        columns.busy[segment] = True
        return True

    def done(self, segment: int) -> None:
        """Note that log and state are gone."""
        self._begun.discard(segment)
