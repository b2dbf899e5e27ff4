"""Replicas that this node is to hold no more: each is deleted, when nothing else is under way with it.

What says so may be old: the node may have been named again since, and have acknowledged rows. So a whole replica answers nobody any
more, from then on; only then its record is read anew, and it is deleted if that does not name this node either. Who names it after
that asks it anew, and finds nothing.
"""

from eventlog.replication.columns import Columns
from eventlog.replication.commands import Command, Recheck, Release
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
        """Note whether a record names this node; return whether its replica is to be given up now, by `begin`.

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
        return self.is_due(segment)

    def is_due(self, segment: int) -> bool:
        """Return whether a replica is to be given up, and nothing else is under way with it."""
        return segment in self._waiting and not self._columns.busy[segment]

    def begin(self, segments: list[int]) -> list[Command]:
        """Give up replicas that are due: they answer nobody, and those that are whole go when their records were read anew."""
        columns = self._columns
        torn = [segment for segment in segments if self._installs.is_partial(segment)]
        whole = [segment for segment in segments if segment not in torn]
        for segment in segments:
            self._waiting.discard(segment)
            self._begun.add(segment)
            self._installs.drop(segment)  # its end may be on the way to the disk: nobody is told that it is whole
            columns.busy[segment] = True
            columns.matched[segment] = False
        commands: list[Command] = [Recheck(segments=tuple(whole))] if whole else []
        return [*commands, Release(segments=tuple(torn))] if torn else commands

    def kept(self, segments: list[int]) -> list[int]:
        """Return those of the replicas given up whose records name this node after all; they go on as they were."""
        found = [segment for segment in segments if self._columns.holds[segment]]
        for segment in found:
            self._begun.discard(segment)
            self._columns.busy[segment] = False
        return found

    def done(self, segment: int) -> None:
        """Note that log and state are gone."""
        self._begun.discard(segment)
