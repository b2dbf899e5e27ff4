"""`eventlog context`: names for clusters, kept for whoever runs the command, one of them in use."""

import os

import click

from eventlog_cli.contexts import Contexts, read_contexts, write_contexts
from eventlog_cli.conventions import SERVER_VARIABLE, common_options, settings
from eventlog_cli.lazy import SynonymGroup
from eventlog_cli.output import note, print_row, print_text, table

NAME = click.argument("name")


@click.group("context", cls=SynonymGroup, synonyms={"delete": "remove", "drop": "remove", "ls": "list", "set": "add"})
@common_options
def command() -> None:
    """Add, use, list and remove names for clusters.

    The context in use says which nodes are asked where neither --server nor EVENTLOG_SERVER does.
    """


@command.command("add")
@NAME
@common_options
def add(name: str) -> None:
    """Keep the nodes that --server names as NAME, and use it if it is the only context."""
    if not settings().servers:
        raise click.UsageError("name at least one node with --server HOST:PORT")
    if not name or name.strip() != name or name.startswith("-"):
        raise click.UsageError(f"{name!r} is no name for a context")
    kept = read_contexts()
    servers = dict(kept.servers) | {name: settings().addresses}
    write_contexts(Contexts(servers=servers, used=kept.used or name))
    _tell(name, f"context {name}: {', '.join(servers[name])}{'' if kept.used else ', in use'}")


@command.command("use")
@NAME
@common_options
def use(name: str) -> None:
    """Ask the nodes of NAME from now on."""
    kept = read_contexts()
    _demand(kept, name)
    write_contexts(Contexts(servers=kept.servers, used=name))
    _tell(name, f"using {name}: {', '.join(kept.servers[name])}")


@command.command("list")
@common_options
def list_contexts() -> None:
    """Print all contexts; a star marks the one in use."""
    kept = read_contexts()
    if settings().is_json:
        for name, servers in kept.servers.items():
            print_row({"context": name, "servers": list(servers), "used": name == kept.used})
        return
    rows = [("*" if name == kept.used else "", name, ", ".join(servers)) for name, servers in kept.servers.items()]
    print_text(table(("used", "context", "nodes"), rows))


@command.command("remove")
@NAME
@common_options
def remove(name: str) -> None:
    """Forget NAME."""
    kept = read_contexts()
    _demand(kept, name)
    servers = {other: found for other, found in kept.servers.items() if other != name}
    write_contexts(Contexts(servers=servers, used="" if kept.used == name else kept.used))
    _tell(name, f"removed {name}")


def _demand(kept: Contexts, name: str) -> None:
    if name not in kept.servers:
        known = (
            f"there are {', '.join(kept.servers)}" if kept.servers else "there is none yet: eventlog context add NAME --server HOST:PORT"
        )
        raise click.UsageError(f"there is no context {name!r}; {known}")


def _tell(name: str, text: str) -> None:
    if settings().is_json:
        kept = read_contexts()
        print_row({"context": name, "servers": list(kept.servers.get(name, ())), "used": kept.used == name})
        return
    print_text(text)
    if os.environ.get(SERVER_VARIABLE):
        note(f"note: {SERVER_VARIABLE} is set in the environment and goes before the context in use")
