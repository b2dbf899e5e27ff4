"""`eventlog admin metastore`: the records of a stopped cluster, moved to another store."""

import click

from eventlog_cli.conventions import common_options, settings
from eventlog_cli.output import print_row, print_text
from eventlog_cli.progress import Progress


@click.group("metastore")
@common_options
def command() -> None:
    """Move the metadata of a stopped cluster."""


@command.command("copy")
@click.option("--from", "source", required=True, metavar="LOCATION", help="Where it is: sqlite:PATH or etcd://HOST:PORT,...")
@click.option(
    "--to", "target", required=True, metavar="LOCATION", help="Where it goes: an empty store, sqlite:PATH or etcd://HOST:PORT,..."
)
@common_options
def copy(*, source: str, target: str) -> None:
    """Move members, segments and caches to another store.

    All nodes are stopped first and started with `--meta LOCATION` of the new store afterwards; the old one is marked and refused.
    A move that broke off is finished by the same command.
    """
    # not at the top: `--help` and completion need no node
    from eventlog.assemble import move_metadata  # noqa: PLC0415

    with Progress("moving", noun="records") as progress:
        moved = move_metadata(source, target, on_progress=lambda done, total: progress.update(done, part=done / total))
    if settings().is_json:
        print_row({"cluster": moved.cluster, "records": moved.records, "from": source, "to": target})
    else:
        print_text(f"{moved.records} records of cluster {moved.cluster} moved; start every node with --meta {target}")
