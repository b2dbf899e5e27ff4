"""`eventlog load`: the rows of a file as writes."""

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from eventlog.errors import BadRow, EventLogError
from eventlog.ids import id_fields
from eventlog.limits import VALUE_BYTES_MAX
from eventlog_cli.conventions import EndingInOrder, common_options, open_client, settings
from eventlog_cli.loading.loader import CacheTarget, Loader, StageTarget, Summary
from eventlog_cli.loading.rows import FormatReader, Rejection, RowShape
from eventlog_cli.loading.source import FORMATS, OpenedInput, format_of, open_source, reader_of
from eventlog_cli.output import ProgressLine, note, note_interrupt, print_row, print_text
from eventlog_cli.parameters import COUNT, SEPARATOR, SIZE, Whole, format_seconds

if TYPE_CHECKING:
    from eventlog.client.values import CacheInfo

REJECTIONS_SHOWN_MAX = 20
ROWS_DEFAULT = 1_000


@click.command("load")
@click.argument("cache_name", metavar="CACHE")
@click.argument("path", metavar="FILE|-", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@click.option("--key", metavar="FIELD", help="Field that is the key.")
@click.option(
    "--key-separator", type=SEPARATOR, metavar="SEP", help=r"Lines of key, SEP and value instead of rows, as in : or \t; see above."
)
@click.option("--create", is_flag=True, help="Create the cache if there is none.")
@click.option("--op", "operation", metavar="FIELD", help="Field that says what a row does; it is not part of the value.")
@click.option(
    "--delete-value",
    "removal_words",
    multiple=True,
    metavar="D",
    help="Rows with this in --op, or lines with this value, remove their key; may be given again.",
)
@click.option("--format", "format_name", type=click.Choice(FORMATS), help="What the file is.  [default: told by content and name]")
@click.option(
    "--batch",
    type=Whole(1, 20_000),
    default=ROWS_DEFAULT,
    show_default=True,
    metavar="N",
    help="Rows read together. Batches of a file may be sent together.",
)
@click.option("--max-errors", type=COUNT, default=0, show_default=True, metavar="N", help="Rejected rows to go on after.")
@click.option(
    "--max-value",
    type=SIZE,
    default=VALUE_BYTES_MAX,
    metavar="SIZE",
    help="Largest value sent; the node has its own limit.  [default: 1MiB]",
)
@click.option("--txn", metavar="NAME", help="Write the whole file at its end or nothing, and by this name once; see above.")
@common_options
def command(cache_name: str, path: str, **options: Any) -> None:
    r"""Write every row of a file into CACHE, in its order: the row is the value.

    Reads jsonl, csv, parquet and avro, plain or packed with gzip, xz or zstd; - is stdin. A row that cannot be written is reported
    with its line, or its number in parquet and avro; what comes before it is written.

    Where CACHE validates JSON a row that its schema does not take is reported with the field.

    Where CACHE holds Avro each row is encoded with its schema. A row that does not fit is reported with the field; the key's field is
    left out where the schema has none of its name, and an empty field of csv is null where the schema takes that.

    With --key-separator each line is a key, the separator, and a value: JSON, or anything where CACHE holds bytes. The first separator
    of a line counts, \t, \0 and \xHH in it are as in C, and empty lines are passed over. --delete-value '' removes the key of a line
    without a value. This reads what consume --output-format prints.

    With --txn the rows are laid ready where nobody sees them, and written when all are there. A row too many that cannot be written, an
    interrupt or a kill leave nothing behind; by a name that has been published nothing is written again for 30 days.
    """
    if options["key_separator"] is not None:
        for name, option in (("key", "--key"), ("operation", "--op"), ("format_name", "--format")):
            if options[name] is not None:
                raise click.UsageError(f"--key-separator and {option} exclude each other: lines have a key and a value, no fields")
    elif options["key"] is None:
        raise click.UsageError("say where the key is: --key FIELD, or --key-separator SEP for lines of key and value")
    elif bool(options["operation"]) != bool(options["removal_words"]):
        raise click.UsageError("--op and --delete-value need each other")
    elif options["operation"] == options["key"]:
        raise click.UsageError("--op and --key name the same field")
    load(cache_name, path, **options)


@EndingInOrder()
def load(cache_name: str, path: str, *, create: bool = False, max_errors: int = 0, txn: str | None = None, **options: Any) -> None:
    """Write a file, or stdin for `-`, and say what was written. `options` are those of the command.

    Raises:
        BadRow: there was a row too many that cannot be written.
    """
    with open_source(path) as source:
        if options["key_separator"] is None:
            options["format_name"] = options["format_name"] or format_of(source)
        with open_client() as client:
            cache = client.create_cache(cache_name, if_exists="use") if create else client.cache(cache_name)
            reader = _reader(source, cache.info(), **options)
            target = CacheTarget(cache) if txn is None else StageTarget(cache, txn)
            stop = _load(source, reader, target, errors_max=max_errors)
    if stop is not None:
        raise BadRow(source=source.name, line=stop.line, why=stop.why)


def _reader(
    source: OpenedInput,
    info: "CacheInfo",
    *,
    key_separator: bytes | None,
    format_name: str = "",
    removal_words: Sequence[str] = (),
    batch: int = ROWS_DEFAULT,
    max_value: int = VALUE_BYTES_MAX,
    **options: Any,
) -> FormatReader:
    if key_separator is not None:
        from eventlog.client.formats import CacheFormat  # noqa: PLC0415 -- numpy, which --help must not wait for
        from eventlog_cli.loading.lines import KeyedLines  # noqa: PLC0415 -- likewise

        return KeyedLines(
            source.stream,
            CacheFormat(info),
            separator=key_separator,
            removal_words=frozenset(word.encode(errors="surrogateescape") for word in removal_words),
            value_bytes_max=max_value,
            rows=batch,
            check=_check_of(info),
        )
    shape = RowShape(
        key=options["key"],
        operation=options["operation"],
        removal_words=frozenset(removal_words),
        value_bytes_max=max_value,
        text_keys=info.key_format == "utf8",
        encode=_encoder(info, key=options["key"], is_text=format_name == "csv"),
        check=_check_of(info),
    )
    return reader_of(source, shape, format_name=format_name, rows=batch)


def _check_of(info: "CacheInfo") -> Callable[[bytes], str] | None:
    """Return what says of a value why the nodes would refuse it, None where they take any."""
    if not info.validate:
        return None
    from eventlog.client.formats import json_check  # noqa: PLC0415 -- numpy, which --help must not wait for

    return json_check(info)


def _encoder(info: "CacheInfo", *, key: str, is_text: bool) -> "Callable[[dict[str, Any]], bytes] | None":
    """Return what makes a value of a row, None where it is the row as JSON."""
    if info.format != "avro":
        return None
    from eventlog_cli.loading.avro import row_encoder  # noqa: PLC0415 -- fastavro is slow to load

    return row_encoder(info.schema, key=key, is_text=is_text)


def _load(source: OpenedInput, reader: FormatReader, target: CacheTarget | StageTarget, *, errors_max: int) -> Rejection | None:
    """Load and say what was loaded, however it ends; return the row that stopped it."""
    began = time.monotonic()
    with ProgressLine(f"load {source.name}") as progress:

        def show(rows: int) -> None:
            progress.update(rows, part=source.position() / source.size if source.size else None)

        told = 0

        def tell(rejection: Rejection) -> None:
            nonlocal told
            told += 1
            progress.clear()
            if told <= REJECTIONS_SHOWN_MAX:
                note(f"rejected: {source.name} line {rejection.line}: {rejection.why}")
            elif told == REJECTIONS_SHOWN_MAX + 1:
                note("rejected: more rows, which are counted only")

        loader = Loader(target, errors_max=errors_max, gathers=source.size is not None, on_rejection=tell, on_progress=show)
        if isinstance(target, StageTarget):
            return _load_whole(loader, reader, target, progress=progress, began=began)
        try:
            return loader.run(reader)
        except KeyboardInterrupt:
            progress.clear()
            note_interrupt(f"interrupted; rows up to line {loader.summary.last_line} are written, go on after it")
            raise
        except EventLogError:
            progress.clear()
            note(f"rows up to line {loader.summary.last_line} are written; of those after it some may be")
            raise
        finally:
            progress.clear()
            _tell(loader.summary, time.monotonic() - began)


def _load_whole(loader: Loader, reader: FormatReader, target: StageTarget, *, progress: ProgressLine, began: float) -> Rejection | None:
    """Lay a file ready and publish it; return the row because of which nothing of it is written."""
    is_publishing = False
    try:
        stop = loader.run(reader)
        is_publishing = stop is None
        is_repeated = is_publishing and target.publish()
    except (KeyboardInterrupt, EventLogError):
        progress.clear()
        if is_publishing:
            note("some of the file may be written: load it again, by the same name, and all of it is there once")
        else:
            note("nothing is written")
        raise
    progress.clear()
    if stop is not None:
        note("nothing is written")
    elif is_repeated:
        note("this was published before by the same name: nothing is written again")
        _tell(Summary(), time.monotonic() - began, repeated=True)
    else:
        _tell(loader.summary, time.monotonic() - began, repeated=False)
    return stop


def _tell(summary: Summary, seconds: float, *, repeated: bool | None = None) -> None:
    if settings().is_json:
        print_row(
            {
                **({} if repeated is None else {"repeated": repeated}),
                "loaded": summary.loaded,
                "events": summary.events,
                "rejected": summary.rejected,
                "last_line": summary.last_line,
                **id_fields(first_id=summary.first_id, last_id=summary.last_id),
                "seconds": round(seconds, 3),
            }
        )
        return
    ids = "" if summary.first_id is None else f", ids {summary.first_id} to {summary.last_id}"
    rate = f"{summary.loaded / max(seconds, 1e-3):,.0f} rows/s"
    rejected = f", {summary.rejected:,} rejected" if summary.rejected else ""
    print_text(f"loaded {summary.loaded:,} rows as {summary.events:,} events{rejected} in {format_seconds(seconds)} ({rate}){ids}")
