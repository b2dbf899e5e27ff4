"""`eventlog demo`: the command, its last page, and what stays behind."""

import os
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from eventlog.errors import EventLogError
from eventlog_cli.conventions import EndingInOrder, answers_by_exit_code, common_options, load_pipelines, settings
from eventlog_cli.demo.checks import PROBLEMS_SHOWN, Check
from eventlog_cli.demo.cluster import Cluster, commands_to_try, program_words
from eventlog_cli.demo.input import rows_of_file, time_zones
from eventlog_cli.output import print_row, print_text, table
from eventlog_cli.parameters import Whole

EXIT_BROKEN = 1


@click.command("demo")
@click.option("--input", "path", type=click.Path(exists=True, dir_okay=False), help="Load this file instead of the clock changes.")
@click.option("--key", metavar="FIELD", help="With --input: the field that is the key.  [default: guessed]")
@click.option("--spark", "on_spark", is_flag=True, help="Archive on Spark, let the nodes forget, and read over both instead.")
@click.option("--nodes", type=Whole(1, 9), default=3, show_default=True, help="How many nodes to begin with.")
@click.option("--keep", is_flag=True, help="Leave the nodes running.")
@click.option("--data", "directory", type=click.Path(file_okay=False), help="Where to put its files.  [default: a new temporary directory]")
@click.option("--listen", metavar="HOST:PORT", help="Address of the first node.  [default: 127.0.0.1:7400, or a free port]")
@common_options
@EndingInOrder()
def command(
    path: str | None, key: str | None, *, on_spark: bool, nodes: int, keep: bool, directory: str | None, listen: str | None
) -> None:
    """Start nodes, load real input, read it, kill the busiest node while writing, grow, shrink, and check every promise.

    The input is every clock change of every time zone, unless a file is given: jsonl, csv, parquet or avro, plain or packed.
    """
    # not at the top: brings the client, which `--help` need not wait for
    from eventlog_cli.demo.spark import SparkStory  # noqa: PLC0415
    from eventlog_cli.demo.story import Story  # noqa: PLC0415

    answers_by_exit_code()
    if key is not None and path is None:
        raise click.UsageError("--key is about the rows of --input")
    pipelines = _spark() if on_spark else None
    given = time_zones() if path is None else rows_of_file(path, key=key)
    home = Path(directory or tempfile.mkdtemp(prefix="eventlog-demo-")).absolute()  # the scripts in it work from everywhere
    home.mkdir(parents=True, exist_ok=True)
    if any(home.iterdir()):
        raise click.UsageError(f"{home} is not empty; the demo begins with an empty directory, which can be removed with all that is in it")
    cluster = Cluster(home, count=nodes, listen=listen)
    story = Story(cluster, given) if pipelines is None else SparkStory(cluster, given, pipelines)
    stays = False
    try:
        story.run()
        stays = keep
        start, stop = cluster.write_scripts(program_words(sys.argv[0]))
    except EventLogError as error:
        raise click.ClickException(f"the demo did not come to its end: {error}; its files are left in {home}") from error
    finally:
        if not stays:
            cluster.stop()
    _print_checks(story.checks)
    commands = commands_to_try(story.known(), cluster.nodes[0], start=None if stays else start)
    _print_what_next(commands, cluster, stop=stop, is_running=stays)
    if not all(check.is_kept for check in story.checks):
        click.get_current_context().exit(EXIT_BROKEN)


def _spark() -> Any:
    """Return the module of pipelines. Raises ClickException, a line, where Spark's packages or its Java are missing."""
    from eventlog_cli.java import java_lacks  # noqa: PLC0415 -- as above

    pipelines = load_pipelines()
    if (lacking := java_lacks(os.environ)) is not None:
        raise click.ClickException(lacking)
    return pipelines


def _print_checks(checks: list[Check]) -> None:
    if settings().is_json:
        for check in checks:
            print_row({"promise": check.promise, "checked": check.checked, "kept": check.is_kept, "problems": list(check.problems)})
        return
    print_text("")
    print_text(
        table(
            ("promise", "checked", ""), [(check.promise, f"{check.checked:,}", "kept" if check.is_kept else "BROKEN") for check in checks]
        )
    )
    for check in checks:
        for problem in check.problems[:PROBLEMS_SHOWN]:
            print_text(f"  BROKEN  {check.promise}: {problem}")
        if len(check.problems) > PROBLEMS_SHOWN:
            print_text(f"  BROKEN  {check.promise}: and {len(check.problems) - PROBLEMS_SHOWN:,} more")


def _print_what_next(commands: list[str], cluster: Cluster, *, stop: Path, is_running: bool) -> None:
    if settings().is_json:
        pids = [node.pid for node in cluster.running]
        print_row({"commands": commands, "running": is_running, "pids": pids, "directory": str(cluster.directory)})
        return
    print_text("")
    print_text("Try:" if is_running else "The nodes were stopped. Try (the first command starts them again on the same data):")
    for line in commands:
        print_text(f"  {line}")
    print_text("")
    if is_running:
        print_text(f"The nodes go on: {', '.join(f'{node.name} on {node.address}' for node in cluster.running)}")
    print_text(f"Stop them:  {shlex.join(['sh', str(stop)])}")
    print_text(f"Their files:  {cluster.directory}  (remove them with: {shlex.join(['rm', '-r', str(cluster.directory)])})")
