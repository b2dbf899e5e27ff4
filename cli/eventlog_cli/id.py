"""`eventlog id`: what an id says, and the ids of a moment. Both need no node."""

import click

from eventlog.ids import decode_id, id_before
from eventlog_cli.conventions import common_options, settings
from eventlog_cli.lazy import SynonymGroup
from eventlog_cli.output import id_fields, print_row, print_text
from eventlog_cli.parameters import ID, MOMENT
from eventlog_cli.quantities import IdTimes


@click.group("id", cls=SynonymGroup)
@common_options
def command() -> None:
    """Take ids apart, and make them from times."""


@command.command("decode")
@click.argument("event_id", metavar="ID", type=ID)
@common_options
def decode(event_id: int) -> None:
    """Print the time, sequence and node in an ID."""
    _, sequence, node = decode_id(event_id)
    time = IdTimes().text(event_id)
    if settings().is_json:
        print_row({**id_fields(id=event_id), "time": time, "sequence": sequence, "node": node})
    else:
        print_text(f"time {time}  sequence {sequence}  node {node}")


@command.command("at")
@click.argument("time_ms", metavar="TIME", type=MOMENT)
@common_options
def at(time_ms: int) -> None:
    """Print the last id possible before TIME: ISO 8601, or a duration for that long ago.

    Given to `consume --from-id`, it begins with the first event of that moment.
    """
    event_id = id_before(time_ms)
    if settings().is_json:
        print_row(id_fields(id=event_id))
    else:
        print_text(str(event_id))
