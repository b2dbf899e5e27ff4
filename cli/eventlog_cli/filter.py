"""`eventlog filter`: the named filters that operators have installed on the nodes."""

import click

from eventlog_cli.conventions import common_options, open_client, settings
from eventlog_cli.lazy import SynonymGroup
from eventlog_cli.output import print_row, print_text, table


@click.group("filter", cls=SynonymGroup, synonyms={"ls": "list"})
@common_options
def command() -> None:
    """Look at the named filters on the nodes."""


@command.command("list")
@common_options
def list_() -> None:
    """List the named filters, one line a node that has it."""
    with open_client() as client:
        found = client.list_filters()
    if settings().is_json:
        for one in found:
            print_row({"filter": one.name, "version": one.version, "node": one.node, "parameters": one.parameters, "summary": one.summary})
        return
    rows = [
        (one.name, one.version, one.node, ", ".join(f"{name}: {kind}" for name, kind in one.parameters.items()), one.summary)
        for one in found
    ]
    print_text(table(("filter", "version", "node", "parameters", "what it does"), rows))
