"""`eventlog pipeline`: a cache's events kept in files for longer than the nodes keep them, compared with them, and what they come to."""

import logging
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from eventlog.errors import CacheNotFound, Unavailable
from eventlog.integrations.pipeline_rows import Took, archive_row, audit_row, compact_row, hour_text, rebuild_row, rollup_row
from eventlog_cli.conventions import (
    EndingInOrder,
    answers_by_exit_code,
    common_options,
    load_archives,
    load_pipelines,
    load_rollups,
    open_client,
    settings,
)
from eventlog_cli.lazy import SynonymGroup
from eventlog_cli.mirror import tell_verification
from eventlog_cli.output import ProgressLine, note, print_row, print_text, stdout, table
from eventlog_cli.parameters import AT, ID, POSITIVE, SIZE, SPAN

if TYPE_CHECKING:
    from eventlog.blocking import Client
    from eventlog.client.mirrors import MirrorVerification
    from eventlog.integrations.archive.auditing import Audit
    from eventlog.integrations.archive.rounds import Written
    from eventlog.integrations.archive.table import Round
    from eventlog.integrations.rollup import RolledUp
    from eventlog.integrations.spark.loading import LoadFile

CACHE = click.argument("cache_name", metavar="CACHE")
CONF = click.option("--conf", multiple=True, metavar="NAME=VALUE", help="A setting of Spark's; may be given again.")
DIFFERENCES_SHOWN = 20
LOADED = ("parquet", "avro", "csv", "json")
ROUND_EVENTS = 5_000_000
VACUUM_MS_MIN = 24 * 3_600_000


@click.group("pipeline", cls=SynonymGroup, synonyms={"verify": "audit"})
@common_options
def command() -> None:
    """Keep the events of caches in files, compare the two, and count what happened."""


@command.command("archive")
@CACHE
@click.option("--to", "path", metavar="PATH", help="The folder of the table, or its address in an object store.  [default: as noted]")
@click.option("--once", is_flag=True, help="End at the end that the log has at the beginning.  [default]")
@click.option("--every", "every_ms", type=SPAN, help="Go on for ever, and look for more so often.")
@click.option("--round-events", type=POSITIVE, default=ROUND_EVENTS, help="At most so many in one commit.  [default: 5000000]")
@click.option(
    "--from",
    "--after",
    "after",
    type=AT,
    metavar="ID|TIME",
    help="A new table begins behind this id or time.  [default: with the first event kept]",
)
@click.option("--hold", type=SIZE, help="Retention keeps so much of what is not archived yet.  [default: nothing]")
@click.option(
    "--value-schema",
    metavar="DDL",
    default="",
    help="Add a column v of these fields of values, as in 'customer STRING, total DOUBLE'.  [default: as the table has it]",
)
@click.option(
    "--master", metavar="URL", help="Tasks of this Spark write: spark://HOST:PORT, sc://HOST:PORT, local[2].  [default: this process]"
)
@CONF
@common_options
def archive(
    cache_name: str, *, path: str | None, once: bool, every_ms: int | None, master: str | None, conf: Sequence[str], **options: Any
) -> None:
    """Write what happened in CACHE into a Delta table at PATH, going on where it ends.

    Killed anywhere, the next run goes on where the table ends. One archiver of a cache at a time: a second one is refused.

    With --value-schema a value that does not fit it stands in _corrupt. Later runs may add fields, in which older rows have null.

    With --master tasks of Spark fetch and write, and all its hosts reach nodes and PATH by the same addresses.
    """
    if once and every_ms is not None:
        raise click.UsageError("--once ends, and --every goes on: give one of them")
    archives = load_archives()
    with open_client() as client, _spark_at(master, conf) as spark:
        path = path or _noted(client, cache_name, "--to")
        if spark is not None:
            options["run"] = load_pipelines().archiving(spark, cache_name, servers=settings().addresses, to=path)
        while True:
            took = Took()
            try:
                with EndingInOrder(), _Bar("archiving") as bar:
                    told = _telling_rounds(bar, end=client.cache(cache_name).log_ends().last_id)
                    done = archives.archive(client, cache_name, path, told=told, **options)
                _tell(cache_name, path, done, took)
            except KeyboardInterrupt:
                note(f"ended; what is committed stays: eventlog pipeline archive {cache_name} --to {path}")
                raise
            except Unavailable as error:
                if every_ms is None:
                    raise
                note(f"tried again in {every_ms / 1000:g} s: {error}")
            if every_ms is None:
                return
            stdout().flush()
            with EndingInOrder():
                time.sleep(every_ms / 1000)


@contextmanager
def _spark_at(master: str | None, conf: Sequence[str]) -> Iterator[Any]:
    """Yield a session of the Spark at a master, None without one. Raises ClickException where Spark fails inside."""
    pairs = dict(setting.split("=", 1) for setting in conf if "=" in setting)
    if len(pairs) < len(set(conf)):
        raise click.BadParameter("give settings as NAME=VALUE, each once", param_hint="'--conf'")
    if master is None:
        if conf:
            raise click.UsageError("--conf is for a Spark: name it with --master")
        yield None
        return
    from eventlog_cli.java import java_lacks  # noqa: PLC0415 -- for Spark alone

    pipelines = load_pipelines()
    if not master.startswith(pipelines.CONNECT) and (lacking := java_lacks(os.environ)) is not None:
        raise click.ClickException(lacking)
    logging.getLogger().addFilter(_is_no_broken_call)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # of tasks; Spark itself takes any python3 of the path
    try:
        spark = pipelines.session(master, name="eventlog", settings=pairs)
        try:
            yield spark
        finally:
            spark.stop()
    except pipelines.SPARK_ERRORS as error:
        raise click.ClickException(pipelines.reason_of(error)) from error


def _is_no_broken_call(record: logging.LogRecord) -> bool:
    """Return whether a line is to be logged. What a call to the JVM was broken off by is raised as well, and said in a line."""
    return not str(record.msg).endswith("while sending command.")


def _noted(client: "Client", cache_name: str, option: str) -> str:
    """Return where the archive of a cache is, as it is noted with it. Raises UsageError where none is."""
    found = client.describe_cache(cache_name).archive
    if not found:
        raise click.UsageError(f"no archive is noted with {cache_name}: give {option} PATH")
    return found


class _Bar:
    """How far a pipeline is: on a terminal a bar, or a count where nobody knows the whole, and lines of what is done. None with --json."""

    def __init__(self, doing: str) -> None:
        self._doing = doing
        self._what = ""
        self._line = ProgressLine(doing)

    def show(self, what: str, done: int, *, part: float | None = None) -> None:
        """Show that so many of something are done, which is this `part` of the whole."""
        if settings().is_json:
            return
        if what != self._what:
            self._line.clear()
            self._what, self._line = what, ProgressLine(self._doing, noun=what)
        self._line.update(done, part=part)

    def tell(self, what: str, done: int, whole: int) -> None:
        """Show that so many of so many are done."""
        self.show(what, done, part=done / whole if whole else None)

    def note(self, text: str) -> None:
        """Say on a line of its own what is done."""
        if not settings().is_json:
            self._line.clear()
            note(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._line.clear()


def _telling_rounds(bar: _Bar, *, end: int) -> "Callable[[Round], None]":
    """Return what tells of an archive's rounds: a line each, and how far they are of the ids up to `end`."""
    begin: int | None = None
    events = 0

    def tell(done: "Round") -> None:
        nonlocal begin, events
        bar.note(f"{done.events} events up to id {done.upto}")
        begin = done.after if begin is None else begin
        events += done.events
        bar.show("events", events, part=(done.upto - begin) / max(end - begin, 1))

    bar.show("events", 0, part=0.0)
    return tell


def _tell(cache: str, path: str, done: "Written", took: Took) -> None:
    if settings().is_json:
        print_row(archive_row(cache, done, took))
    elif done.events:
        print_text(f"{done.events} events of {cache} in {done.rounds} rounds, {done.files} files, {done.bytes} bytes, {took.seconds:.1f} s")
        print_text(f"{path} has everything up to id {done.upto}")
    else:
        print_text(f"nothing new: {path} has everything up to id {done.upto}")


@command.command("audit")
@CACHE
@click.option("--archive", "path", metavar="PATH", help="The folder of the table, or its address in an object store.  [default: as noted]")
@click.option("--mirror", metavar="NAME", help="Compare the log with the Kafka topic of this mirror of CACHE as well, over the same ids.")
@click.option(
    "--until", type=AT, metavar="ID|TIME", help="An id, or a time: ISO 8601, or a duration for that long ago.  [default: the archive's end]"
)
@common_options
def audit(cache_name: str, *, path: str | None, mirror: str | None, until: int | None) -> None:
    """Prove that an archive is as it was written, and has what the nodes have, hour by hour. Exits with 1 where it has not."""
    answers_by_exit_code()
    archives, took = load_archives(), Took()
    with open_client() as client, _Bar("auditing") as bar:
        path = path or _noted(client, cache_name, "--archive")
        if mirror is not None and (mirrored := client.mirrors.describe(mirror).cache) != cache_name:
            raise click.BadParameter(f"{mirror} is a mirror of {mirrored}", param_hint="'--mirror'")
        found = archives.audit(client, cache_name, archives.open(path), until=until, told=bar.tell)
        in_topic = None
        if mirror is not None and found.after < found.upto:
            in_topic = client.mirrors.verify(mirror, from_id=found.after, until_id=found.upto)
    _tell_audit(cache_name, path, found, in_topic, took=took)
    if found.differing or (in_topic is not None and not in_topic.is_alike):
        click.get_current_context().exit(1)


def _tell_audit(cache: str, path: str, found: "Audit", in_topic: "MirrorVerification | None", *, took: Took) -> None:
    verified, first = found.verified, found.first
    if settings().is_json:
        print_row(audit_row(cache, found, in_topic, took))
        return
    proved = verified.events - verified.undigested
    print_text(f"{path}: {proved} events in {verified.files} files are as they were written, up to id {verified.upto}")
    if verified.undigested:
        print_text(f"of {verified.undigested} more the table has forgotten the digests: they can be read, and none is missing between them")
    print_text(
        f"ids {found.after} to {found.upto}, which the nodes keep: of {found.events} events "
        f"{found.differing or 'no'} hours of segments differ"
    )
    if first is not None:
        what = f"in {', '.join(first.columns)}" if first.columns else f"and is in the {'log' if first.in_log else 'archive'} alone"
        print_text(f"the first that differs is event {first.id} of segment {first.segment}, {what}")
        rows = [(hour_text(one.hour_ms), one.segment, one.in_log, one.in_archive) for one in found.differences[:DIFFERENCES_SHOWN]]
        print_text(table(["hour", "segment", "in log", "in archive"], rows))
    if in_topic is not None:
        tell_verification(in_topic)


@command.command("compact")
@click.argument("path", metavar="PATH")
@click.option("--older-than", "older_than_ms", type=SPAN, default="1h", help="Leave files of newer events alone.  [default: 1h]")
@click.option("--target", "target_bytes", type=SIZE, default="256MiB", help="Make files of about this size.  [default: 256MiB]")
@click.option("--vacuum", "vacuum_ms", type=SPAN, help="Remove files that no commit names for so long, 24h to 90d.  [default: remove none]")
@common_options
def compact(path: str, *, older_than_ms: int, target_bytes: int, vacuum_ms: int | None) -> None:
    """Merge the small files of an archive. Who reads it meanwhile is not disturbed."""
    if vacuum_ms is not None and vacuum_ms < VACUUM_MS_MIN:
        raise click.BadParameter(
            "give 24h or more: a round that is being written has files that no commit names yet", param_hint="'--vacuum'"
        )
    took = Took()
    vacuum_hours = None if vacuum_ms is None else -(-vacuum_ms // 3_600_000)
    options = {"older_than_ms": older_than_ms, "target_bytes": target_bytes, "vacuum_hours": vacuum_hours}
    with _Bar("merging") as bar:
        done = load_archives().compact(path, told=bar.tell, **options)
    if settings().is_json:
        print_row(compact_row(path, done, took))
        return
    print_text(
        f"{done.files_before} files of {done.events} events became {done.files_after}; {done.bytes_before} bytes became {done.bytes_after}"
    )
    if vacuum_ms is not None:
        print_text(f"{done.vacuumed} files that no commit names are removed")


@command.command("rebuild")
@CACHE
@click.option("--archive", "path", metavar="PATH", help="The folder of the table, or its address in an object store.  [default: as noted]")
@click.option("--into", metavar="CACHE", help="The cache to make; one that is there has nothing, or what an earlier try wrote.")
@click.option("--to", metavar="PATH", help="The folder of a Delta table to make instead, or its address in an object store.")
@click.option(
    "--as-of", "as_of", type=AT, metavar="ID|TIME", help="An id, or a time: ISO 8601, or a duration for that long ago.  [default: now]"
)
@click.option(
    "--verify", is_flag=True, help="Compare it with CACHE, in the entries that have not changed since. Exits with 1 where it differs."
)
@common_options
def rebuild(cache_name: str, *, path: str | None, into: str | None, to: str | None, as_of: int | None, verify: bool) -> None:
    """Make a cache or a table with the entries that CACHE had at an id or a time, from its archive and what the nodes keep behind it."""
    if (into is None) == (to is None):
        raise click.UsageError("give --into CACHE or --to PATH, one of them")
    if verify:
        answers_by_exit_code()
    archives, took = load_archives(), Took()
    with open_client() as client, _Bar("rebuilding") as bar:
        path = path or _noted(client, cache_name, "--archive")
        options = {"into": into, "to": to, "as_of": as_of, "verify": verify}
        done = archives.rebuild(archives.open(path), client, cache_name, told=bar.tell, **options)
    if settings().is_json:
        print_row(rebuild_row(cache_name, done, took, into=into, to=to))
    else:
        print_text(f"{into or to} has the {done.entries} entries that {cache_name} had at id {done.as_of}, from {done.events} events")
        if verify:
            print_text(f"{done.compared} entries have not changed since; of them {done.differences or 'none'} differ")
    if not done.is_whole:
        note(f"note: the archive begins behind id {done.after}, and the cache before: entries written before, and not since, are not in it")
    if done.differences:
        click.get_current_context().exit(1)


@command.command("rollup")
@click.argument("source", metavar="CACHE|PATH")
@click.option("--window", "window_ms", required=True, type=SPAN, help="How long a window is; windows are counted from 1970 on, in UTC.")
@click.option(
    "--by", multiple=True, metavar="EXPR,...", help="One row for each value of these, as value.shop or LOWER(key) AS name.  [default: one]"
)
@click.option(
    "--measures",
    multiple=True,
    default=("count",),
    metavar="MEASURE,...",
    help="What is counted: count, bytes, keys, keys~, first, last, sum(EXPR), min(EXPR), max(EXPR).  [default: count]",
)
@click.option("--to", "path", required=True, metavar="PATH", help="The folder of the table, or its address in an object store.")
@click.option("--into", metavar="CACHE", help="Make each row an entry of this cache as well.")
@click.option("--round-events", type=POSITIVE, default=ROUND_EVENTS, help="At most so many in one commit.  [default: 5000000]")
@click.option("--after", type=ID, help="A new table begins with the first window behind this id.  [default: the first that is whole]")
@click.option(
    "--master", metavar="URL", help="Tasks of this Spark count: spark://HOST:PORT, sc://HOST:PORT, local[2].  [default: this process]"
)
@CONF
@common_options
def rollup(source: str, *, path: str, into: str | None, master: str | None, conf: Sequence[str], **options: Any) -> None:
    """Write what the events of each window come to into a Delta table at PATH, going on where it ends.

    Of a cache, or of an archive, which is a path with a /. A window is counted once nothing can come into it any more, and only then.
    Killed anywhere, the next run goes on where the table ends.

    With --master tasks of Spark count, and come to the same table; all its hosts reach the nodes, or the archive, by the same addresses.
    """
    rollups, took = load_rollups(), Took()
    with EndingInOrder(), ExitStack() as stack:
        bar = stack.enter_context(_Bar("rolling up"))
        client = stack.enter_context(open_client()) if into is not None or "/" not in source else None
        if (spark := stack.enter_context(_spark_at(master, conf))) is not None:
            options["run"] = load_pipelines().rolling(spark, source, servers=settings().addresses)
        try:
            done = rollups.rollup(client, source, path, into=into, told=_telling_windows(bar), **options)
        except CacheNotFound:
            if "/" not in source and Path(source).is_dir():
                note(f"{source} is a folder here: an archive is named by a path with a /, as ./{source}")
            raise
    _tell_rollup(path, into, done, took)


def _telling_windows(bar: _Bar) -> "Callable[[RolledUp], None]":
    def tell(done: "RolledUp") -> None:
        bar.note(f"{done.windows} windows, {done.rows} rows up to id {done.upto}")
        bar.show("events", done.events)

    return tell


def _tell_rollup(path: str, into: str | None, done: "RolledUp", took: Took) -> None:
    if settings().is_json:
        print_row(rollup_row(done, took))
        return
    if done.rounds:
        print_text(f"{done.events} events of {done.cache} came to {done.rows} rows in {done.windows} windows")
    else:
        print_text("nothing new: no window with events has been closed since")
    print_text(f"{path} has every window up to id {done.upto}")
    if into is not None:
        print_text(f"{done.entries} rows were put into {into}")


@command.command("load")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--into", required=True, metavar="CACHE", help="The cache to write; it is created before.")
@click.option("--key", required=True, metavar="FIELD", help="Field that is the key.")
@click.option("--op", metavar="FIELD", default="", help="Field that says what a row does; it is not part of the value.")
@click.option(
    "--delete-value", "delete_values", multiple=True, metavar="D", help="Rows with this in --op remove their key; may be given again."
)
@click.option("--txn", metavar="NAME", default="", help="By this name write each file once.  [default: write all of them]")
@click.option("--rate", type=POSITIVE, help="At most so many rows a second.  [default: as fast as it goes]")
@click.option("--format", "format", type=click.Choice(LOADED), default=None, help="What the files are.  [default: told by their names]")
@click.option(
    "--master", metavar="URL", default="local[*]", help="Which Spark: spark://HOST:PORT, sc://HOST:PORT.  [default: local[*], here]"
)
@CONF
@common_options
def load(files: Sequence[str], *, master: str, conf: Sequence[str], **options: Any) -> None:
    """Write the rows of files into a cache, by tasks of Spark: the row is the value.

    FILE is a file, a pattern, a folder or a Delta table, here or in an object store, of Parquet, Avro, CSV with names of fields, or lines
    of JSON, the last two plain or packed. All hosts of Spark reach it by the same path. Each file is written as a whole at its end or not
    at all, one after the other, its rows in their order. With --txn a run that was ended is run again, and writes the files that are
    missing, for 30 days.

    Needs PySpark; eventlog load needs none, and reads standard input as well.
    """
    options |= {"format": options["format"] or "", "rate": options["rate"] or 0}
    with EndingInOrder(), _spark_at(master, conf) as spark, _Bar("loading") as bar:
        done = load_pipelines().load(spark, files, servers=",".join(settings().addresses), told=_telling_files(bar), **options)
    if settings().is_json:
        print_row(done)
        return
    before = f"; {done['files_before']} had been written before" if done["files_before"] else ""
    print_text(f"{done['rows']} rows of {done['files']} files are written into {done['cache']}{before}")


def _telling_files(bar: _Bar) -> "Callable[[LoadFile, int, float], None]":
    """Return what tells of the files of a load: a line each, and which part of all of them is done."""
    loaded = 0

    def tell(file: "LoadFile", rows: int, part: float) -> None:
        nonlocal loaded
        loaded += rows
        bar.note(f"{file.path}: {rows} rows")
        bar.show("rows", loaded, part=part)

    bar.show("rows", 0, part=0.0)
    return tell
