"""Commands that ask no node: `eventlog id`, `context` and `completion`.

A context is a name for a cluster, kept for the user of the command; one of them is in use.
"""

import os

import click
from click.shell_completion import get_completion_class

from eventlog.errors import InvalidArgument
from eventlog.ids import IdTimes, decode_id, id_before, id_fields
from eventlog.routing.addresses import parse_address
from eventlog_cli.conventions import SERVER_VARIABLE, Contexts, common_options, read_contexts, settings, write_contexts
from eventlog_cli.lazy import SynonymGroup
from eventlog_cli.output import note, print_row, print_text, table
from eventlog_cli.parameters import ID, MOMENT


@click.group("id", cls=SynonymGroup)
@common_options
def ids() -> None:
    """Take ids apart, and make them from times."""


@ids.command("decode")
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


@ids.command("at")
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


NAME = click.argument("name")


@click.group("context", cls=SynonymGroup, synonyms={"delete": "remove", "drop": "remove", "ls": "list", "set": "add"})
@common_options
def context() -> None:
    """Add, use, list and remove names for clusters.

    The context in use says which nodes are asked where neither --server nor EVENTLOG_SERVER does.
    """


@context.command("add")
@NAME
@common_options
def add(name: str) -> None:
    """Keep the nodes that --server names as NAME, and use it if it is the only context."""
    if not settings().servers:
        raise click.UsageError("name at least one node with --server HOST:PORT")
    if not name or name.strip() != name or name.startswith("-") or not name.isprintable():
        raise click.UsageError(f"{name!r} is no name for a context")
    try:
        for address in settings().addresses:
            parse_address(address)
    except InvalidArgument as error:
        raise click.BadParameter(str(error), param_hint="'--server'") from error
    kept = read_contexts()
    servers = dict(kept.servers) | {name: settings().addresses}
    write_contexts(Contexts(servers=servers, used=kept.used or name))
    _tell(name, f"context {name}: {', '.join(servers[name])}{'' if kept.used else ', in use'}")


@context.command("use")
@NAME
@common_options
def use(name: str) -> None:
    """Ask the nodes of NAME from now on."""
    kept = read_contexts()
    _demand(kept, name)
    write_contexts(Contexts(servers=kept.servers, used=name))
    _tell(name, f"using {name}: {', '.join(kept.servers[name])}")


@context.command("list")
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


@context.command("remove")
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


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
@common_options
def completion(shell: str) -> None:
    """Print the completion script of SHELL; one of the lines below goes into its start file."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells that the argument allows"
    root = click.get_current_context().find_root()
    script = kind(root.command, {}, "eventlog", "_EVENTLOG_COMPLETE")
    print_text(script.source_template % script.source_vars())
