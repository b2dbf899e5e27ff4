"""`eventlog admin metastore`: the records of a stopped cluster, moved to another store or made again where they are lost."""

from pathlib import Path

import click

from eventlog_cli.conventions import common_options, settings
from eventlog_cli.lazy import SynonymGroup
from eventlog_cli.output import print_row, print_text
from eventlog_cli.progress import Progress


@click.group("metastore", cls=SynonymGroup)
@common_options
def command() -> None:
    """Move the metadata of a stopped cluster, or make them again."""


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


@command.command("rebuild")
@click.option(
    "--data",
    "directories",
    required=True,
    multiple=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Data directory of a node; give all that are left.",
)
@click.option(
    "--to", "target", required=True, metavar="LOCATION", help="Where it goes: an empty store, sqlite:PATH or etcd://HOST:PORT,..."
)
@common_options
def rebuild(*, directories: tuple[Path, ...], target: str) -> None:
    """Make lost metadata again from what the nodes keep.

    All nodes are stopped. Of a segment the record of the highest epoch is taken; where the nodes' copies differ, what was taken is
    printed. The copies may lack the last second before the stop.
    """
    from eventlog.assemble import rebuild_metadata  # noqa: PLC0415 -- as above

    rebuilt = rebuild_metadata(directories, target)
    for choice in rebuilt.choices:
        row = {
            "segment": choice.segment,
            "from": choice.taken_from,
            "epoch": choice.epoch,
            "owners": choice.owners,
            "in_sync": choice.in_sync,
        }
        if settings().is_json:
            print_row(row)
        else:
            owners, in_sync = (", ".join(map(str, numbers)) for numbers in (choice.owners, choice.in_sync))
            print_text(f"segment {choice.segment}: epoch {choice.epoch} of {choice.taken_from}, owners {owners}, in sync {in_sync}")
    count = len(rebuilt.records) + 1
    if settings().is_json:
        print_row({"cluster": rebuilt.identity.cluster, "records": count, "to": target})
    else:
        print_text(f"{count} records of cluster {rebuilt.identity.cluster} made again; start every node with --meta {target}")
