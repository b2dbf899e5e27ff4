"""Pipelines as functions, each of which returns what its command prints with `--json`.

Of `archive`, `rollup` and `load` events go through tasks of Spark, and the driver sees lists of files, what tasks have counted, or laid
ready. What `audit`, `compact` and `rebuild` do is done in this process; they take a session all the same, so that all are called alike.
"""

import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from subprocess import Popen
from traceback import walk_tb
from typing import Any, Final

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from eventlog.blocking import Client
from eventlog.errors import BadValue, InvalidArgument, TooLarge
from eventlog.integrations.archive.auditing import audit as audit_here
from eventlog.integrations.archive.merging import compact as compact_here
from eventlog.integrations.archive.place import ArchivePlace, place_of
from eventlog.integrations.archive.ranges import Range
from eventlog.integrations.archive.reading import Archive, noted, open_archive
from eventlog.integrations.archive.rebuilding import rebuild as rebuild_here
from eventlog.integrations.archive.rounds import Made, Run, write_range
from eventlog.integrations.archive.rounds import archive as archive_here
from eventlog.integrations.pipeline_rows import Took, archive_row, audit_row, compact_row, load_row, rebuild_row, rollup_row
from eventlog.integrations.rollup.rolling import Job, RollupPiece, count_piece
from eventlog.integrations.rollup.rolling import Run as Count
from eventlog.integrations.rollup.rolling import rollup as rollup_here
from eventlog.integrations.spark.columns import Layout
from eventlog.integrations.spark.loading import PIECE_BYTES, FilePiece, LoadFile, LoadShape, load_files, pieces_of, writes_of
from eventlog.integrations.spark.options import SinkOptions, SourceOptions
from eventlog.integrations.spark.session import client_of
from eventlog.integrations.spark.sink import lay_ready
from eventlog.integrations.spark.travelling import check_version, own_version
from eventlog.limits import STAGE_KEEP_MS_MAX

CONNECT: Final = "sc://"
_CALLED: Final = "An error occurred while calling"  # what PySpark called, before the line that says why
SPARK_ERRORS: Final = (PySparkException, Py4JError)
_MADE = "made STRING"
_COUNTED = "counted BINARY"
_LAID = "piece BIGINT, staged BINARY, events BIGINT, why STRING"
_PIECES_TOGETHER: Final = 64
_ZONE: Final = "spark.sql.session.timeZone"
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    _ZONE: "UTC",
}


def local(name: str, *, files: Path, settings: Mapping[str, str]) -> SparkSession:
    """Return a session of a Spark in this process, without a page of its own, on the loopback device.

    What it keeps for a while is in `files`; `settings` are Spark's. A session that this process has already is returned instead.
    """
    builder = SparkSession.builder.master("local[*]").appName(name)
    own = _LOCAL | {"spark.local.dir": str(files), "spark.sql.warehouse.dir": str(files / "warehouse")}
    for setting, value in (own | dict(settings)).items():
        builder = builder.config(setting, value)
    return _started(builder)


def session(master: str, *, name: str, settings: Mapping[str, str]) -> SparkSession:
    """Return a session of the Spark at a master, as `spark-submit --master` has it, or at `sc://HOST:PORT`, by Spark Connect.

    A session that this process has already is returned instead.
    """
    builder = SparkSession.builder.remote(master) if master.startswith(CONNECT) else SparkSession.builder.master(master).appName(name)
    own = _LOCAL if master.startswith("local") else {}
    for setting, value in (own | {_ZONE: "UTC"} | dict(settings)).items():
        builder = builder.config(setting, value)
    return _started(builder)


def _started(builder: Any) -> SparkSession:
    """Return the session of a builder. Who is interrupted meanwhile leaves no JVM behind.

    PySpark takes away the folder to which a JVM writes that it is there, when it is interrupted before; then the JVM stays for ever.
    """
    try:
        return builder.getOrCreate()
    except BaseException as error:
        for frame, _ in walk_tb(error.__traceback__):
            if isinstance(started := frame.f_locals.get("proc"), Popen):
                started.kill()
                started.wait()
        raise


def reason_of(error: BaseException) -> str:
    """Return the line of one of `SPARK_ERRORS` that says what went wrong: an error of eventlog's in a task, else the first."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("eventlog.errors.")]
    theirs = [line.removeprefix(": ") for line in lines if not line.startswith(_CALLED)]
    return f"Spark: {(ours or theirs or lines or [type(error).__name__])[0]}"


def archive(
    spark: SparkSession,
    cache: str,
    *,
    servers: str,
    to: str | Path,
    once: bool = True,
    client: dict[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Archive a cache up to the end that its log has now; tasks fetch and write, each some segments of a round.

    `servers` are addresses with commas between them, `to` a folder or an object store that the driver and all executors reach by the same
    path or address, `client` and `options` those of `eventlog.connect` and of `eventlog.integrations.archive.archive`, whose errors this
    has. It runs `once`, as the command does with this option; whoever wants it every few minutes calls it again.
    """
    if once is not True:
        raise InvalidArgument(why=f"once is {once!r}: this ends at the log's end; call it again, or use eventlog pipeline archive --every")
    source = _source(servers, cache, client)
    run = archiving(spark, cache, servers=source.servers, to=to, client=client)
    took, done = Took(), archive_here(client_of(source), cache, to, run=run, **options)
    return archive_row(cache, done, took)


def archiving(spark: SparkSession, cache: str, *, servers: Sequence[str], to: str | Path, client: dict[str, Any] | None = None) -> Run:
    """Return what has tasks of Spark write the ranges of a round; arguments as of `archive`."""
    source, place = SourceOptions(servers=tuple(servers), cache=cache, client=client or {}), place_of(to)

    def run(ranges: Sequence[Range], values: str) -> Iterable[Made]:
        tasks = spark.range(0, len(ranges), 1, len(ranges)).mapInArrow(_tasks(ranges, source, place, values), _MADE)
        return [Made.of_plain(json.loads(row.made)) for row in tasks.collect()]

    return run


def rollup(
    spark: SparkSession,
    source: str | Path,
    *,
    to: str | Path,
    servers: str = "",
    client: dict[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Roll a cache up, or an archive, which is a path with a `/`; tasks count, each some segments or windows of a round.

    `servers` and `client` are as for `archive`: an archive needs them only to put rows `into` a cache. All executors reach an archive by
    the same path or address. `options` and errors are those of `eventlog.integrations.rollup.rollup`.
    """
    where = SourceOptions(servers=tuple(part.strip() for part in servers.split(",") if part.strip()), cache="", client=client or {})
    run = rolling(spark, source, servers=where.servers, client=client)
    took, done = Took(), rollup_here(client_of(where) if where.servers else None, source, to, run=run, **options)
    return rollup_row(done, took)


def rolling(spark: SparkSession, source: str | Path, *, servers: Sequence[str] = (), client: dict[str, Any] | None = None) -> Count:
    """Return what has tasks of Spark count the pieces of a round; arguments as of `rollup`."""
    is_cache = not isinstance(source, Path) and "/" not in source
    where = SourceOptions(servers=tuple(servers), cache="", client=client or {}) if is_cache else None

    def run(job: Job, pieces: Sequence[RollupPiece]) -> Iterable[pa.Table]:
        tasks = spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(_counting(job, pieces, where), _COUNTED)
        for row in tasks.collect():
            with pa.ipc.open_stream(row.counted) as stream:
                yield stream.read_all()

    return run


def load(
    spark: SparkSession,
    files: Sequence[str | Path],
    *,
    into: str,
    servers: str,
    key: str,
    op: str = "",
    delete_values: Sequence[str] = (),
    txn: str = "",
    rate: int = 0,
    format: str = "",
    piece_bytes: int = PIECE_BYTES,
    client: dict[str, Any] | None = None,
    told: Callable[[LoadFile, int, float], None] = lambda _file, _rows, _part: None,
) -> dict[str, Any]:
    """Write the rows of files into a cache, file by file, each of them as a whole or not at all, and its rows in their order.

    A row is the value, without the field `op`, which removes the key where it is one of `delete_values`; `key` is the field of its key.
    `files` are paths, patterns, folders and Delta tables, or addresses in an object store, that the driver and all executors reach, of
    Parquet, CSV with names of fields, lines of JSON, or Avro; tasks read them, `piece_bytes` each of Parquet and of JSON that is not
    packed, and the others whole. By a name `txn` each file is written once for 30 days, however often it is loaded, so a second run writes
    what is missing. With a `rate` files are read one after the other, no more rows a second than that. `told` hears of each file, how
    many rows of it were written now, and which part of all files is done.

    Raises:
        InvalidArgument: there is no such file, it cannot be read, or a row does not fit; nothing of that file is written.
        StageExpired: a file took longer than a day.
    """
    took = Took()
    if bool(op) != bool(delete_values):
        raise InvalidArgument(why="op and delete_values need each other")
    if piece_bytes < 1:
        raise InvalidArgument(why="piece_bytes is at least 1")
    sink = SinkOptions(
        servers=tuple(part.strip() for part in servers.split(",")),
        cache=into,
        keep_ms=STAGE_KEEP_MS_MAX,
        rate=rate,
        tasks=1 if rate else 0,
        client=client or {},
    )
    shape = LoadShape(key=key, operation=op, removals=tuple(delete_values))
    cache, name, chosen = client_of(sink).cache(into), txn or str(uuid.uuid4()), load_files(files, form=format)
    rows = written = done = 0
    for together in _loaded_together(chosen, piece_bytes=piece_bytes, one_by_one=bool(rate)):
        tasks = spark.range(0, len(together), 1, len(together)).mapInArrow(_laying(together, shape, sink), _LAID)
        laid = sorted(tasks.collect(), key=lambda row: int(row.piece))
        for file, of_file in groupby(laid, key=lambda row: together[row.piece].source):
            parts = list(of_file)
            refused = next((part.why for part in parts if part.why), "")
            if refused:
                raise InvalidArgument(why=refused)
            is_new = not cache.publish(file.transaction(name), 0, [bytes(part.staged) for part in parts])
            some = sum(part.events for part in parts) if is_new else 0
            rows, written, done = rows + some, written + is_new, done + 1
            told(file, some, done / len(chosen))
    return load_row(into, took, rows=rows, files=written, files_before=len(chosen) - written)


def audit(
    _spark: SparkSession,
    cache: str,
    *,
    servers: str,
    archive: str | Path | None = None,
    mirror: str | None = None,
    until: int | None = None,
    client: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Verify an archive, by default the noted one, and compare it with what the nodes keep, and that with the topic of a `mirror`.

    `servers` and `client` are as for `archive`; up to the id `until` where one is given. Whether something differs, the result says.
    Errors are those of `eventlog.integrations.archive.audit`.

    Raises:
        InvalidArgument: no archive is noted with the cache, or the mirror is another cache's.
    """
    took, connected = Took(), client_of(_source(servers, cache, client))
    if mirror is not None and (mirrored := connected.mirrors.describe(mirror).cache) != cache:
        raise InvalidArgument(why=f"{mirror} is a mirror of {mirrored}")
    found = audit_here(connected, cache, _opened(connected, cache, archive), until=until)
    in_topic = None
    if mirror is not None and found.after < found.upto:
        in_topic = connected.mirrors.verify(mirror, from_id=found.after, until_id=found.upto)
    return audit_row(cache, found, in_topic, took)


def compact(_spark: SparkSession, path: str | Path, **options: Any) -> dict[str, Any]:
    """Merge the small files of an archive; `options` and errors are those of `eventlog.integrations.archive.compact`."""
    took, done = Took(), compact_here(path, **options)
    return compact_row(path, done, took)


def rebuild(
    _spark: SparkSession,
    cache: str,
    *,
    servers: str,
    archive: str | Path | None = None,
    into: str | None = None,
    to: str | Path | None = None,
    client: dict[str, Any] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Make a cache `into`, or a Delta table at `to`, with the entries that a cache had, from an archive, by default the noted one.

    `servers` and `client` are as for `archive`, `options` and errors those of `eventlog.integrations.archive.rebuild`.

    Raises:
        InvalidArgument: no archive is noted with the cache.
    """
    took, connected = Took(), client_of(_source(servers, cache, client))
    done = rebuild_here(_opened(connected, cache, archive), connected, cache, into=into, to=to, **options)
    return rebuild_row(cache, done, took, into=into, to=to)


def _source(servers: str, cache: str, client: dict[str, Any] | None) -> SourceOptions:
    """Return where a cache is; `servers` are addresses with commas between them."""
    return SourceOptions(servers=tuple(part.strip() for part in servers.split(",")), cache=cache, client=client or {})


def _opened(client: Client, cache: str, archive: str | Path | None) -> Archive:
    found = noted(client, cache) if archive is None else open_archive(archive)
    if found is None:
        raise InvalidArgument(why=f"no archive is noted with cache {cache!r}: say which one, as archive")
    return found


def _loaded_together(files: Sequence[LoadFile], *, piece_bytes: int, one_by_one: bool) -> Iterator[list[FilePiece]]:
    """Yield the pieces of files whose rows are laid ready at the same time, before those of the next are looked for."""
    together: list[FilePiece] = []
    for file in files:
        together += pieces_of(file) if one_by_one else pieces_of(file, nbytes=piece_bytes)
        if one_by_one or len(together) >= _PIECES_TOGETHER:
            yield together
            together = []
    if together:
        yield together


def _laying(pieces: Sequence[FilePiece], shape: LoadShape, sink: SinkOptions) -> Any:
    """Return what a task does: it lays the rows of pieces ready whose numbers it gets, or says why some of them do not fit.

    That is an answer, not an error, as a task that is done again would find the same.
    """

    def act(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                staged, events, why = b"", 0, ""
                try:
                    stage = lay_ready(sink, Layout(removes="removes"), writes_of(pieces[number], shape), partition=0)
                    staged, events = stage.staged(), stage.events
                except (InvalidArgument, BadValue, TooLarge) as error:
                    why = f"{pieces[number].source.path}: {error}"
                yield pa.RecordBatch.from_pydict({"piece": [number], "staged": [staged], "events": [events], "why": [why]})

    return act


def _counting(job: Job, pieces: Sequence[RollupPiece], source: SourceOptions | None) -> Any:
    """Return what a task does: it counts the pieces whose numbers it gets. `source` is where the cache is, None for an archive."""
    made_by = own_version()  # of an archive there are no options that say so

    def act(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        check_version(made_by)
        cache = None if source is None else client_of(source).cache(job.cache)
        for batch in batches:
            for number in batch.column(0).to_pylist():
                counted = count_piece(job, pieces[number], cache)
                sink = pa.BufferOutputStream()
                with pa.ipc.new_stream(sink, counted.schema) as stream:
                    stream.write_table(counted)
                yield pa.RecordBatch.from_arrays([pa.array([sink.getvalue().to_pybytes()], pa.binary())], names=["counted"])

    return act


def _tasks(ranges: Sequence[Range], source: SourceOptions, place: ArchivePlace, values: str) -> Any:
    """Return what a task does: it writes the ranges whose numbers it gets, with columns of values if there are to be any."""

    def act(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        cache = client_of(source).cache(source.cache)
        for batch in batches:
            made = [json.dumps(write_range(cache, ranges[number], place, values=values).plain()) for number in batch.column(0).to_pylist()]
            yield pa.RecordBatch.from_arrays([pa.array(made)], names=["made"])

    return act
