"""`eventlog admin check`: reading all that is stored, of one running node or in the directory of a stopped one."""

from pathlib import Path

import click

from eventlog_cli.conventions import common_options, open_operator_client, settings
from eventlog_cli.output import id_fields, print_row, print_text

EXIT_NOT_OK = 1
CHECK_MS_MAX = 3_600_000  # reads everything there is


@click.command("check")
@click.option("--cache", "cache_name", default="", help="Only this cache.")
@click.option("--data", type=click.Path(file_okay=False, path_type=Path), help="Data directory of a stopped node, read as it lies there.")
@common_options
def command(cache_name: str, data: Path | None) -> None:
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
