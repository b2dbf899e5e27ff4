"""`eventlog consume --group`: a member of a group that commits what it has printed."""

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from eventlog.errors import StaleMember, Unavailable
from eventlog.ids import id_before
from eventlog_cli.beginning import say_beginning
from eventlog_cli.conventions import open_client
from eventlog_cli.output import note_interrupt
from eventlog_cli.printing import Printer
from eventlog_cli.render import Render

if TYPE_CHECKING:
    from eventlog.client.reading.batches import EventBatch
    from eventlog.events import Event

_NOT_IN_GROUPS = ("segments", "position_file", "poll_interval_ms", "continuous")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRead:
    """What is asked for. `from_id` and `from_time` say where a new group begins; an existing one goes on where it is."""

    group: str
    from_id: int | str | None
    from_time: int | None
    events_max: int | None

    @property
    def start(self) -> int | str | None:
        """Where a new group begins."""
        if self.from_time is not None:
            return id_before(self.from_time)
        return None if self.from_id == "committed" else self.from_id


def refuse_beside_group(**options: Any) -> None:
    """Raise a usage error for options that make no sense beside --group."""
    for name in _NOT_IN_GROUPS:
        if options.get(name):
            raise click.UsageError(f"--group and --{name.removesuffix('_ms').replace('_', '-')} exclude each other: the group has its own")


def consume_group(cache_name: str, chosen: GroupRead, render: Render, **reading: Any) -> None:
    """Print what falls to this member, to the log's end of now or on and on; each batch is committed once it is written out.

    One that goes on and on does so also where a commit fails for now: the next one makes up for it, within a second where that is possible.
    """
    follow, until_id = reading.pop("follow"), reading.pop("until_id")
    goes_on = follow and chosen.events_max is None
    options = {name: value for name, value in reading.items() if name not in _NOT_IN_GROUPS and value is not None}
    with open_client() as client:
        cache = client.cache(cache_name)
        say_beginning(cache, chosen.start, is_time=chosen.from_time is not None)
        if not follow:
            last_id = cache.log_ends().last_id
            until_id = last_id if until_id is None else min(until_id, last_id)
        with cache.consumer(chosen.group, from_id=chosen.start, auto_commit=goes_on, **options) as consumer:

            def printed(batch: "EventBatch", events: "list[Event]") -> None:
                if len(events) == len(batch):
                    with suppress(*((Unavailable, StaleMember) if goes_on else ())):
                        consumer.commit()
                    return
                for event in {event.segment: event for event in events}.values():
                    consumer.commit(event)

            printer = Printer(render, file=None, events_max=chosen.events_max, printed=printed)
            try:
                printer.run(consumer.batches(chosen.events_max or 0, until_id=until_id))
            except KeyboardInterrupt:
                note_interrupt(f"interrupted; resume with: --group {chosen.group}")
                raise
            if chosen.events_max is None:
                consumer.commit()
