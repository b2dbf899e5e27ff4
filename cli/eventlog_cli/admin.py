"""`eventlog admin`: the cluster, its nodes and segments, retention, stored data, the metadata of a stopped cluster.

What changes the cluster stands in `admin_cluster.py`.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eventlog.errors import Unavailable
from eventlog.ids import id_fields
from eventlog_cli.admin_cluster import COMMANDS, verify_copies
from eventlog_cli.cache import RETAINED, as_row
from eventlog_cli.conventions import answers_by_exit_code, common_options, open_operator_client, settings
from eventlog_cli.lazy import SynonymGroup
from eventlog_cli.output import ProgressLine, print_row, print_text, rounds, show, show_error, table
from eventlog_cli.parameters import COUNT, DURATION, SIZE, format_duration, format_size

if TYPE_CHECKING:
    from eventlog.client.reports import KeptBack, Status

_ASK_EVERY_SECONDS = 0.25
_WATCH_EVERY_MS = 2_000
EXIT_NOT_OK = 1


@click.group("admin", cls=SynonymGroup, synonyms={"node": "nodes", "segment": "segments"})
@common_options
def command() -> None:
    """Look after nodes, segments and retention."""


for found_command in COMMANDS:
    command.add_command(found_command)


# ------------------------------------------------------------------ status


@command.command("status")
@click.option("--check", is_flag=True, help="Exit with 1 unless health is ok.")
@click.option("--wait", "wait_ms", type=DURATION, help="Wait until health is ok, at most this long.")
@click.option("--watch", is_flag=True, help="Say it again every two seconds, until Ctrl-C.")
@common_options
def status(*, check: bool, wait_ms: int | None, watch: bool) -> None:
    """Say how the cluster is; exit with 0 if the node answers."""
    if watch:
        if check or wait_ms is not None:
            raise click.UsageError("--watch goes on until Ctrl-C: it excludes --check and --wait")
        _watch()
        return
    if check or wait_ms is not None:
        answers_by_exit_code()
    found = _status() if wait_ms is None else _wait_until_ok(wait_ms)
    if settings().is_json:
        print_row(_status_row(found))
    else:
        print_text("\n".join(_status_lines(found)))
    if found.health != "ok" and (check or wait_ms is not None):
        click.get_current_context().exit(EXIT_NOT_OK)


def _watch() -> None:
    for _ in rounds(_WATCH_EVERY_MS, None):
        try:
            found = _status()
        except Unavailable as error:
            show_error(error)
        else:
            show(_status_row(found), _status_lines(found))


def _status() -> "Status":
    with open_operator_client() as client:
        return client.status()


def _wait_until_ok(wait_ms: int) -> "Status":
    """Ask until health is ok or time is up; a node that does not answer yet is waited for too."""
    deadline = time.monotonic() + wait_ms / 1_000
    while True:
        is_late = time.monotonic() >= deadline
        try:
            found = _status()
        except Unavailable:
            if is_late:
                raise
        else:
            if found.health == "ok" or is_late:
                return found
        time.sleep(_ASK_EVERY_SECONDS)


def _status_row(found: "Status") -> dict[str, Any]:
    return {
        "cluster": found.cluster,
        "health": found.health,
        "controller": found.controller,
        "metastore": found.metastore,
        "nodes": found.nodes,
        "nodes_live": found.nodes_live,
        "segments": found.segments,
        "without_primary": found.without_primary,
        "unwritable": found.unwritable,
        "unreadable": found.unreadable,
        "missing": list(found.missing),
        "under_replicated": found.under_replicated,
        **id_fields(low_watermark=found.low_watermark),
        "low_watermark_age_ms": found.low_watermark_age_ms,
        "held_by": found.held_by or None,
        "rebalance": found.rebalance,
        "advice": list(found.advice),
    }


def _counted(found: "Status") -> Iterator[str]:
    """Yield what is said of the segments; what cannot be written or read only where there is such."""
    yield f"{found.segments}"
    yield f"{found.without_primary} without primary"
    if found.unwritable:
        yield f"{found.unwritable} cannot be written"
    if found.unreadable:
        yield f"{found.unreadable} cannot be read"
    yield f"{found.under_replicated} under-replicated"


def _status_lines(found: "Status") -> list[str]:
    facts = (
        ("cluster", found.cluster),
        ("health", found.health),
        ("nodes", f"{found.nodes_live} live of {found.nodes}"),
        ("segments", ", ".join(_counted(found))),
        (
            "low watermark",
            f"{found.low_watermark}, {found.low_watermark_age_ms} ms old" + (f", held by {found.held_by}" if found.held_by else ""),
        ),
        ("controller", found.controller),
        ("metastore", found.metastore),
        ("rebalance", found.rebalance),
    )
    advice = found.advice or ("nothing to do",)
    return [*(f"{name:<14} {value}" for name, value in facts), *(f"next: {each}" for each in advice)]


# ------------------------------------------------------------------ segments


@command.command("segments")
@click.option("--cache", "cache_name", default="", help="Only events of this cache.")
@click.option("--under-replicated", is_flag=True, help="Only segments with fewer copies in sync and there than wanted.")
@click.option("--without-primary", is_flag=True, help="Only segments that nobody serves.")
@click.option("--unwritable", is_flag=True, help="Only segments that take no writes now.")
@click.option("--verify", is_flag=True, help="Print the checksum of every copy instead; exit with 1 on a difference, or if one is alone.")
@common_options
def segments(cache_name: str, *, under_replicated: bool, without_primary: bool, unwritable: bool, verify: bool) -> None:
    """List the segments."""
    if verify and not (under_replicated or without_primary or unwritable):
        verify_copies()
        return
    with open_operator_client() as client:
        found = client.segments(cache_name or None)
    if under_replicated:
        found = [segment for segment in found if segment.under_replicated]
    if without_primary:
        found = [segment for segment in found if not segment.primary]
    if unwritable:
        found = [segment for segment in found if segment.unwritable]
    if verify:
        verify_copies([segment.segment for segment in found])
        return
    if settings().is_json:
        for segment in found:
            print_row(
                {
                    "segment": segment.segment,
                    "primary": segment.primary or None,
                    "owners": list(segment.owners),
                    "in_sync": list(segment.in_sync),
                    "epoch": segment.epoch,
                    **id_fields(first_id=segment.first_id or None, last_id=segment.last_id or None, high_watermark=segment.high_watermark),
                    "events": segment.events,
                    "bytes": segment.bytes,
                    "under_replicated": segment.under_replicated,
                    "unwritable": segment.unwritable,
                    "unreadable": segment.unreadable,
                }
            )
        return
    rows = [
        (
            segment.segment,
            segment.primary or None,
            ",".join(segment.in_sync),
            segment.epoch,
            segment.first_id or None,
            segment.last_id or None,
            segment.events,
            segment.bytes,
        )
        for segment in found
    ]
    print_text(table(("segment", "primary", "in sync", "epoch", "first id", "last id", "events", "bytes"), rows))


# ------------------------------------------------------------------ retention


@command.group("retention", cls=SynonymGroup)
@common_options
def retention() -> None:
    """Show, set and run retention."""


@retention.command("show")
@click.argument("cache_name", metavar="CACHE")
@common_options
def retention_show(cache_name: str) -> None:
    """Say how long events of CACHE are kept, which are, and which listeners keep more."""
    with open_operator_client() as client:
        cache = client.cache(cache_name)
        info, ends = cache.info(), cache.log_ends()
        kept_back = client.run_retention(cache_name, dry_run=True).kept_back
    if settings().is_json:
        kept = {**id_fields(first_id=ends.first_id, last_id=ends.last_id), "kept": ends.events}
        names = ("cache", "retain_time", "retain_time_ms", "retain_bytes", "retain_events")
        print_row({name: as_row(info)[name] for name in names} | kept | _kept_back_row(kept_back))
        return
    limits = (
        ("time", None if info.retain_time_ms is None else format_duration(info.retain_time_ms)),
        ("bytes", None if info.retain_bytes is None else format_size(info.retain_bytes)),
        ("events", None if info.retain_events is None else f"{info.retain_events:,}"),
    )
    for name, value in limits:
        print_text(f"{name:<8} {value or 'no limit'}")
    print_text(f"{'kept':<8} {ends.events:,} events" + (f", from id {ends.first_id}" if ends.first_id else ""))
    _print_kept_back(cache_name, kept_back)


@retention.command("set")
@click.argument("cache_name", metavar="CACHE")
@click.option("--retain-time", "retain_time_ms", type=DURATION, help="Keep events this long; 0 for ever.")
@click.option("--retain-bytes", type=SIZE, help=f"Keep at least the newest events of this size; {RETAINED}")
@click.option("--retain-events", type=COUNT, help=f"Keep at least this many of the newest events; {RETAINED}")
@common_options
def retention_set(cache_name: str, **options: int | None) -> None:
    """Change how long events of CACHE are kept."""
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        raise click.UsageError("name at least one limit")
    with open_operator_client() as client:
        info = client.alter_cache(cache_name, **given)
    if settings().is_json:
        print_row(as_row(info))
    else:
        print_text(f"set; takes effect with the next run: eventlog admin retention run {cache_name}")


@retention.command("run")
@click.argument("cache_name", metavar="CACHE")
@click.option("--dry-run", is_flag=True, help="Only say what would go, and which listeners keep more.")
@common_options
def retention_run(cache_name: str, *, dry_run: bool) -> None:
    """Remove what CACHE need not keep, now."""
    with open_operator_client() as client:
        found = client.run_retention(cache_name, dry_run=dry_run)
    if settings().is_json:
        for row in found.rows:
            print_row({"cache": row.cache, "segment": row.segment, "removed": row.removed, **id_fields(first_id=row.first_id or None)})
        print_row({"cache": cache_name, "removed": found.removed} | _kept_back_row(found.kept_back))
        return
    segments_touched = sum(row.removed > 0 for row in found.rows)
    where = f" in {segments_touched} segments, up to id {found.cut_id}" if found.removed else ""
    print_text(f"{'would remove' if dry_run else 'removed'} {found.removed:,} events of {cache_name}{where}")
    _print_kept_back(cache_name, found.kept_back)


def _kept_back_row(kept_back: "Sequence[KeptBack]") -> dict[str, Any]:
    rows = [
        {
            "listener_id": one.listener or None,
            **id_fields(position=one.position_id),
            "hold_bytes": one.hold_bytes,
            "hold_ms": one.hold_ms,
            "held_percent": one.held_percent,
        }
        for one in kept_back
    ]
    return {"kept_back": rows}


def _print_kept_back(cache_name: str, kept_back: "Sequence[KeptBack]") -> None:
    for one in kept_back:
        name = f"listener {one.listener}" if one.listener else "a listener that is being registered"
        caps = format_size(one.hold_bytes) if one.hold_bytes else "", format_duration(one.hold_ms) if one.hold_ms else ""
        hold = " or ".join(filter(None, caps))
        used = f"{one.held_percent} % of its hold of {hold} is used"
        print_text(f"{name} of {cache_name} keeps what comes after id {one.position_id}; {used}")


CHECK_MS_MAX = 3_600_000  # reads everything there is


@command.command("check")
@click.option("--cache", "cache_name", default="", help="Only this cache.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Data directory of a stopped node, read as it lies there.")
@common_options
def check(cache_name: str, data: Path | None) -> None:
    """Read all events and entries that the node asked has stored, and verify checksums and the order of the log; exit with 1 on damage.

    Of a cluster, ask each node. With --data the entries are compared with the log, too.
    """
    if data is None:
        _check_node(cache_name)
    elif cache_name:
        raise click.UsageError("--cache is for running nodes; a directory is read whole")
    else:
        _check_directory(data)


def _check_node(cache_name: str) -> None:
    answers_by_exit_code()
    with open_operator_client() as client:
        report = client.check(cache_name or None, timeout_ms=max(CHECK_MS_MAX, settings().timeout_ms))
    if settings().is_json:
        print_row({"values": report.values, "events": report.events, "entries": report.entries, "problems": list(report.problems)})
    else:
        for problem in report.problems:
            print_text(f"damaged: {problem}")
        read = f"read {report.values:,} stored values with {report.events:,} events and {report.entries:,} entries"
        print_text(f"{read}: {'damaged' if report.problems else 'all sound'}")
    if report.problems:
        click.get_current_context().exit(EXIT_NOT_OK)


def _check_directory(data: Path) -> None:
    # not at the top: `--help` and completion need no node
    from eventlog.assemble import check_directory  # noqa: PLC0415

    answers_by_exit_code()
    report = check_directory(data)
    counts = {"values": report.checked.values, "events": report.checked.events, "entries": report.checked.entries}
    if settings().is_json:
        lost = [{"segment": end.segment, **id_fields(after=end.after, upto=end.upto)} for end in report.lost]
        print_row({**counts, "problems": list(report.problems), "lost": lost})
    else:
        for problem in report.problems:
            print_text(f"damaged: {problem}")
        for end in report.lost:
            print_text(f"lost: segment {end.segment}, ids after {end.after} up to {end.upto} and any above")
        read = f"read {counts['values']:,} stored values with {counts['events']:,} events and {counts['entries']:,} entries"
        print_text(f"{read}: {'damaged' if report.problems else 'all sound'}")
        if report.problems:
            print_text(_WAY_OUT)
    if report.problems:
        click.get_current_context().exit(EXIT_NOT_OK)


_WAY_OUT = (
    "Start the node: where other nodes hold the same segments it is filled again from them. What nobody else holds is given up with "
    "'eventlog serve --accept-data-loss' and then 'eventlog admin force-primary --all-lost NODE --accept-data-loss'."
)


@command.group("metastore", cls=SynonymGroup)
@common_options
def metastore() -> None:
    """Move the metadata of a stopped cluster, or make them again."""


@metastore.command("copy")
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

    with ProgressLine("moving", noun="records") as progress:
        moved = move_metadata(source, target, on_progress=lambda done, total: progress.update(done, part=done / total))
    if settings().is_json:
        print_row({"cluster": moved.cluster, "records": moved.records, "from": source, "to": target})
    else:
        print_text(f"{moved.records} records of cluster {moved.cluster} moved; start every node with --meta {target}")


@metastore.command("rebuild")
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
