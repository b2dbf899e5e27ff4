"""`eventlog put`, `get`, `remove`, `keys`, `entries`, `size`, `clear`: single entries and all of them."""

import sys
from itertools import islice
from typing import TYPE_CHECKING, Any

import click
import msgspec
import orjson

from eventlog.batch.json_lines import readable
from eventlog.errors import BadValue, TooLarge
from eventlog.ids import id_fields
from eventlog.limits import VALUE_BYTES_CAP
from eventlog_cli.conventions import common_options, open_client, open_small_client, settings
from eventlog_cli.output import note, print_row, print_text, stdin, stdout
from eventlog_cli.parameters import AT, HEADER, PARAM, POSITIVE, SEGMENTS, SEPARATOR, SPAN, VERSION, distinct
from eventlog_cli.render import json_of_cache

if TYPE_CHECKING:
    from eventlog.blocking import Cache
    from eventlog.client.small import SmallCache
    from eventlog.client.values import Removed, Stored

CACHE = click.argument("cache_name", metavar="CACHE")
KEY = click.argument("key")
EXIT_NONE = 1
_OF_ONE_KEY = {"lifespan_ms": "--lifespan", "if_version": "--if-version", "if_absent": "--if-absent", "headers": "--header"}


@click.command("put")
@CACHE
@click.argument("key", required=False)
@click.argument("value", required=False)
@click.option("--lifespan", "lifespan_ms", type=SPAN, help="Let the entry expire after this time; CACHE must keep state.")
@click.option("--if-version", type=VERSION, metavar="ID", help="Write only if the entry has this version.")
@click.option("--if-absent", is_flag=True, help="Write only if there is no entry.")
@click.option("--header", "headers", type=HEADER, multiple=True, metavar="NAME=TEXT", help="Header of the event; may be given again.")
@click.option("--key-separator", type=SEPARATOR, metavar="SEP", help=r"Write lines of stdin: key, SEP and value, as in : or \t.")
@common_options
def put(cache_name: str, key: str | None, value: str | None, *, key_separator: bytes | None, **options: Any) -> None:
    """Write VALUE, or stdin for -, under KEY: JSON, which becomes Avro where CACHE holds that, or anything where it holds bytes.

    With --key-separator KEY and VALUE are left out: each line of stdin is a key, the separator and a value, written as it comes. A line
    without the separator ends it, and is reported with its number. eventlog load does the same with files, and can go on after such lines.
    """
    if key_separator is not None:
        _refuse_beside_lines(key, value, **options)
        from eventlog_cli.load import load  # noqa: PLC0415 -- the whole client, which one key does not need

        load(cache_name, "-", key_separator=key_separator)
        return
    if key is None or value is None:
        raise click.UsageError(f"Missing argument {'KEY' if key is None else 'VALUE'!r}")
    if options["if_absent"] and options["if_version"] is not None:
        raise click.UsageError("--if-absent and --if-version exclude each other")
    headers = dict(options.pop("headers"))
    data = _stdin_value() if value == "-" else value.encode(errors="surrogateescape")
    # a lifespan is what the small client cannot write
    with open_small_client() if options["lifespan_ms"] is None else open_client(one_shot=True) as client:
        cache = client.cache(cache_name)
        content = data if cache.info().format == "bytes" else _json(key, data)
        _tell(cache.put(_key(cache, key), content, headers=headers, **options))


def _refuse_beside_lines(key: str | None, value: str | None, **options: Any) -> None:
    """Raise a usage error for what is said of one key, where there are many."""
    if key is not None or value is not None:
        raise click.UsageError("--key-separator takes keys and values from the lines of stdin: leave KEY and VALUE out")
    for name, option in _OF_ONE_KEY.items():
        if options[name]:
            raise click.UsageError(f"--key-separator and {option} exclude each other: that is for a single key")


@click.command("remove")
@CACHE
@KEY
@click.option("--if-version", type=VERSION, metavar="ID", help="Remove only if the entry has this version.")
@common_options
def remove(cache_name: str, key: str, **options: Any) -> None:
    """Remove KEY."""
    with open_small_client() as client:
        cache = client.cache(cache_name)
        _tell(cache.remove(_key(cache, key), **options))


@click.command("get")
@CACHE
@KEY
@click.option("--consistency", type=click.Choice(["primary", "linear", "any"]), default="primary", show_default=True, help="How fresh.")
@click.option("--at", type=AT, metavar="ID|TIME", help="As it was then: an id, an ISO 8601 time, or a duration for that long ago.")
@common_options
def get(cache_name: str, key: str, consistency: str, at: int | None) -> None:
    """Print the value of KEY, its bytes alone, Avro as JSON; exit with 1 when there is none."""
    with open_small_client() if at is None else open_client() as client:  # the past is read from the log, by the whole client
        cache = client.cache(cache_name)
        found = _key(cache, key)
        past = {} if at is None else {"at": at}
        entry = cache.get(found, consistency=consistency, **past)
        if entry is None:
            note(f"{key}: no entry")
            click.get_current_context().exit(EXIT_NONE)
        info = cache.info()
        if settings().is_json:
            value = orjson.Fragment(json_of_cache(info)(entry.value_bytes))
            print_row({"key": _shown(found), "value": value, **id_fields(version=entry.version or None)})
            return
    out = stdout()
    out.write(json_of_cache(info)(entry.value_bytes) if info.format == "avro" else entry.value_bytes)
    if sys.stdout.isatty():
        out.write(b"\n")


@click.command("keys")
@CACHE
@click.option("--prefix", default="", help="Only keys that begin with this.")
@click.option("--max", "keys_max", type=POSITIVE, metavar="N", help="End after N keys.")
@common_options
def keys(cache_name: str, prefix: str, keys_max: int | None) -> None:
    """Print the keys of CACHE, segment by segment."""
    is_json = settings().is_json
    with open_small_client() as client:
        cache = client.cache(cache_name)
        out = stdout()
        for key in cache.keys(prefix=_key(cache, prefix), limit=keys_max):
            if is_json:
                print_row({"key": _shown(key)})
            else:
                out.write((key.encode() if isinstance(key, str) else key) + b"\n")


@click.command("size")
@CACHE
@common_options
def size(cache_name: str) -> None:
    """Print how many entries CACHE has."""
    with open_client() as client:
        found = client.cache(cache_name).size()
    if settings().is_json:
        print_row({"size": found})
    else:
        print_text(str(found))


@click.command("clear")
@CACHE
@click.option("--yes", is_flag=True, help="Do it.")
@common_options
def clear(cache_name: str, *, yes: bool) -> None:
    """Remove every entry of CACHE, each with an event; what was done when interrupted stays done."""
    if not yes:
        raise click.UsageError(f"this removes every entry of {cache_name}; say --yes to do it")
    with open_client() as client:
        removed = client.cache(cache_name).clear()
    if settings().is_json:
        print_row({"removed": removed})
    else:
        print_text(f"removed {removed}")


def _key(cache: "Cache | SmallCache", text: str) -> str | bytes:
    """Return a key as the cache takes it; bytes of the command line that are no UTF-8 pass through."""
    return text if cache.info().key_format == "utf8" else text.encode(errors="surrogateescape")


def _shown(key: str | bytes) -> Any:
    """Return a key as it stands in JSON."""
    return key if isinstance(key, str) else readable(key)


def _stdin_value() -> bytes:
    """Return all of stdin, unless that is more than any node takes.

    Raises:
        TooLarge: it is.
    """
    data = stdin().read(VALUE_BYTES_CAP + 1)
    if len(data) > VALUE_BYTES_CAP:
        raise TooLarge(what="what stdin gives", size=len(data), limit=VALUE_BYTES_CAP)
    return data


def _json(key: str, data: bytes) -> msgspec.Raw:
    """Return JSON that is ready, without the blanks around it.

    Raises:
        BadValue: it is none.
    """
    try:
        data.decode()
        msgspec.json.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadValue(key=key, why=f"not JSON ({error}); text needs quotes of its own, as in '\"text\"'") from error
    return msgspec.Raw(data.strip(b" \t\r\n"))


def _tell(stored: "Stored | Removed") -> None:
    if settings().is_json:
        print_row({**id_fields(id=stored.id), **({} if stored.kind is None else {"kind": stored.kind})})
    else:
        print_text("nothing to remove" if stored.id is None else f"{stored.kind} {stored.id}")


_AT_ONCE = 1_000


@click.command("entries")
@click.argument("cache_name", metavar="CACHE")
@click.option("--prefix", default="", help="Only keys that begin with this.")
@click.option("--where", metavar="SQL", help='Only entries that match this condition, as in "value.total > 2".')
@click.option("--filter", "filter", metavar="NAME[@VERSION]", help="Only what this filter, installed on the nodes, lets through.")
@click.option("--param", "params", type=PARAM, multiple=True, callback=distinct, help="A parameter of --filter; again for more.")
@click.option("--select", metavar="FIELDS", help="These fields of the value alone, as in value.total,value.customer.name.")
@click.option("--segments", type=SEGMENTS, help="These segments alone, as in 0,3-7.")
@click.option("--max", "entries_max", type=POSITIVE, metavar="N", help="End after N entries.")
@click.option("--at", type=AT, metavar="ID|TIME", help="As they were then: an id, an ISO 8601 time, or a duration for that long ago.")
@common_options
def entries(cache_name: str, *, prefix: str, entries_max: int | None, params: tuple[tuple[str, Any], ...], **options: Any) -> None:
    """Print the entries of CACHE as JSON, one a line: each once, as of a moment of its segment, keys ascending within one."""
    with open_client() as client:
        cache = client.cache(cache_name)
        info = cache.info()
        start = prefix if info.key_format == "utf8" else prefix.encode(errors="surrogateescape")
        rows = iter(cache.entries(start, limit=entries_max, params=dict(params) or None, **options))
        text_of, out = json_of_cache(info, is_selected=options["select"] is not None), stdout()
        while some := list(islice(rows, _AT_ONCE)):
            out.write(b"".join([_entry_line(key, text_of(entry.value_bytes), entry.version) for key, entry in some]))
            out.flush()


def _entry_line(key: str | bytes, value: bytes, version: int) -> bytes:
    name = orjson.dumps(key if isinstance(key, str) else readable(key))
    if not version:  # of the past, where retention has left no more than the value
        return b'{"key":%b,"value":%b,"version":null}\n' % (name, value)
    return b'{"key":%b,"value":%b,"version":%d,"version_str":"%d"}\n' % (name, value, version, version)
