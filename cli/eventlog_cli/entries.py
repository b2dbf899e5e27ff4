"""`eventlog entries`: what a cache holds now, as lines."""

from itertools import islice
from typing import Any

import click
import orjson

from eventlog_cli.conventions import common_options, open_client
from eventlog_cli.output import stdout
from eventlog_cli.parameters import AT, PARAM, POSITIVE, SEGMENTS
from eventlog_cli.render import json_of_cache, readable

_AT_ONCE = 1_000


@click.command("entries")
@click.argument("cache_name", metavar="CACHE")
@click.option("--prefix", default="", help="Only keys that begin with this.")
@click.option("--where", metavar="SQL", help='Only entries that match this condition, as in "value.total > 2".')
@click.option("--filter", "filter", metavar="NAME[@VERSION]", help="Only what this filter, installed on the nodes, lets through.")
@click.option("--param", "params", type=PARAM, multiple=True, help="A parameter of --filter; again for more.")
@click.option("--select", metavar="FIELDS", help="These fields of the value alone, as in value.total,value.customer.name.")
@click.option("--segments", type=SEGMENTS, help="These segments alone, as in 0,3-7.")
@click.option("--max", "entries_max", type=POSITIVE, metavar="N", help="End after N entries.")
@click.option("--at", type=AT, metavar="ID|TIME", help="As they were then: an id, an ISO 8601 time, or a duration for that long ago.")
@common_options
def command(cache_name: str, *, prefix: str, entries_max: int | None, params: tuple[tuple[str, Any], ...], **options: Any) -> None:
    """Print the entries of CACHE as JSON, one a line: each once, as of a moment of its segment, keys ascending within one."""
    with open_client() as client:
        cache = client.cache(cache_name)
        info = cache.info()
        start = prefix if info.key_format == "utf8" else prefix.encode(errors="surrogateescape")
        rows = iter(cache.entries(start, limit=entries_max, params=dict(params) or None, **options))
        text_of, out = json_of_cache(info, is_selected=options["select"] is not None), stdout()
        while some := list(islice(rows, _AT_ONCE)):
            out.write(b"".join([_line(key, text_of(entry.value_bytes), entry.version) for key, entry in some]))
            out.flush()


def _line(key: str | bytes, value: bytes, version: int) -> bytes:
    name = orjson.dumps(key if isinstance(key, str) else readable(key))
    if not version:  # of the past, where retention has left no more than the value
        return b'{"key":%b,"value":%b,"version":null}\n' % (name, value)
    return b'{"key":%b,"value":%b,"version":%d,"version_str":"%d"}\n' % (name, value, version, version)
