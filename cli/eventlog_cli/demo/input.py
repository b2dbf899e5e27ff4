"""What the demo loads: every clock change of every time zone, or the rows of a file."""

from collections.abc import Iterator
from dataclasses import dataclass

import orjson

from eventlog.errors import InvalidArgument
from eventlog_cli.demo.timezones import clock_changes
from eventlog_cli.loading.formats import format_of, reader_of
from eventlog_cli.loading.rows import Batch, Shape
from eventlog_cli.loading.source import open_source

BATCH_ROWS = 1_000
ROWS_MAX = 500_000  # the demo keeps all it wrote in memory, to compare
KEY_NAMES = ("key", "id", "path", "name", "k")


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Rows in batches, and what to call them."""

    cache: str
    title: str
    parts: list[Batch]

    @property
    def rows(self) -> int:
        """Return how many rows there are."""
        return sum(len(batch.keys) for batch in self.parts)

    def batches(self) -> Iterator[Batch]:
        """Yield the rows, as a reader does."""
        return iter(self.parts)


def time_zones() -> Input:
    """Return the clock changes in the order of time, keyed by zone."""
    changes = clock_changes()
    parts = [
        Batch(keys=[change.zone.encode() for change in part], values=[orjson.dumps(change.value) for change in part])
        for part in (changes[low : low + BATCH_ROWS] for low in range(0, len(changes), BATCH_ROWS))
    ]
    zones = len({change.zone for change in changes})
    return Input(cache="clock-changes", title=f"every clock change of {zones} time zones", parts=parts)


def rows_of_file(path: str, *, key: str | None) -> Input:
    """Return the first rows of a file, without those that cannot be written.

    Raises:
        InvalidArgument: the key's field is not named and cannot be guessed, or no row can be written.
        OSError: the file cannot be read.
    """
    field = key or _guess_key(path)
    batches: list[Batch] = []
    rows, refused, why = 0, 0, ""
    for batch in _batches(path, field):
        batches.append(batch.first(ROWS_MAX - rows))
        rows += len(batches[-1].keys)
        refused += len(batch.rejections)
        why = why or _first_refusal(batch)
        if rows >= ROWS_MAX:
            break
    if not rows:
        raise InvalidArgument(why=f"no row of {path} has a key in field {field!r}{why}; name another with --key")
    which = f"the first {rows:,} rows of {path}" if rows >= ROWS_MAX else path
    but = f", but {refused:,} refused rows{why}" if refused else ""
    return Input(cache="rows", title=f"{which}, keyed by {field!r}{but}", parts=[batch for batch in batches if batch.keys])


def _batches(path: str, key: str) -> Iterator[Batch]:
    with open_source(path) as source:
        yield from reader_of(source, Shape(key=key), format_name=format_of(source), rows=BATCH_ROWS).batches()


def _guess_key(path: str) -> str:
    """Return the usual name of a key that most rows of the first batch have."""
    found = {name: next(_batches(path, name), Batch()) for name in KEY_NAMES}
    best = max(KEY_NAMES, key=lambda name: len(found[name].keys))
    if not found[best].keys:
        why = _first_refusal(found[best])
        raise InvalidArgument(why=f"{path} has none of the fields {', '.join(KEY_NAMES)}{why}; name the field of the key with --key")
    return best


def _first_refusal(batch: Batch) -> str:
    return f" (line {batch.rejections[0].line}: {batch.rejections[0].why})" if batch.rejections else ""
