"""Write path, before step 4: the values of a frame against the schema of their cache, where it validates them.

They are looked at before the frame waits for a group: a schema and a value may ask for much work, and a group would have all its caches
wait. So a frame may be checked in pieces, and elsewhere than on the loop.
"""

from collections.abc import Iterator
from typing import Protocol

from eventlog.batch.check import BadBlocks, BlockLimits, check_blocks
from eventlog.batch.marks import HEADERS
from eventlog.batch.one import find_one
from eventlog.errors import BadValue
from eventlog.events import Kind
from eventlog.schema.meter import Meter, OutOfSteps, steps_of
from eventlog.schema.strict_json import Misfit
from eventlog.write.groups import Pending, join_frames


class ValueCheck(Protocol):
    """One schema, as values are checked by it."""

    def check(self, value: bytes, meter: Meter) -> None:
        """Raises Misfit, OutOfSteps; RecursionError where a value nests deeper than there is room for here."""
        ...


class FrameCheck:
    """Looks at the values of a frame, one after the other, up to the first that the schema does not take: `refusal` is then set."""

    def __init__(self, pending: Pending, check: ValueCheck, limits: BlockLimits) -> None:
        self._rows = _rows(pending, limits)
        self._check = check
        self._row: tuple[bytes, bytes] | None = None
        self.refusal: BadValue | None = None

    def look(self, steps: int, *, ends_values: bool) -> bool:
        """Go on for about so many steps; return whether all is said.

        With `ends_values` the last value gets all the steps that it may take. Without, it is looked at again where too few are left for it,
        or too little room for its depth.
        """
        for key, value in self._left():
            meter = Meter(given := steps_of(value) if ends_values else min(steps_of(value), steps))
            try:
                why = why_refused(self._check, value, meter) if ends_values else _why_unfit(self._check, value, meter)
            except (OutOfSteps, RecursionError):
                self._row = key, value
                return False
            if why:
                self.refusal = BadValue(key=key.decode(errors="backslashreplace"), why=why)
                return True
            steps -= given - meter.left
            if steps <= 0:
                return False
        return True

    def _left(self) -> Iterator[tuple[bytes, bytes]]:
        if self._row is not None:
            row, self._row = self._row, None
            yield row
        yield from self._rows


def why_refused(check: ValueCheck, value: bytes, meter: Meter) -> str:
    """Return why a value is not taken, with the steps of the meter, which are all that it may take; nothing if it is taken."""
    try:
        return _why_unfit(check, value, meter)
    except OutOfSteps:
        return f"its check by the schema takes more than {steps_of(value):,} steps"
    except RecursionError:
        return "it is nested too deep to be checked by the schema"


def _why_unfit(check: ValueCheck, value: bytes, meter: Meter) -> str:
    try:
        check.check(value, meter)
    except Misfit as misfit:
        return misfit.sentence
    return ""


def _rows(pending: Pending, limits: BlockLimits) -> Iterator[tuple[bytes, bytes]]:
    """Yield key and value of every put of a frame, none of one that is no frame: the writer has the words for that."""
    data = pending.blocks
    if pending.table.only >= 0 and (one := find_one(data, len(data), columns=HEADERS)) is not None:
        if one.kind == Kind.CREATED:
            yield bytes(data[one.key_at : one.key_end]), bytes(data[one.value_at : one.value_end])
        return
    frame = join_frames([pending], now=0).submitted
    try:
        blocks = check_blocks(frame.data, lengths=frame.lengths, counts=frame.counts, bounds=limits)
    except BadBlocks:
        return
    puts = (blocks.kinds == Kind.CREATED).nonzero()[0]
    places = (at[puts].tolist() for at in (blocks.key_at, blocks.key_end, blocks.value_at, blocks.value_end))
    for key_at, key_end, value_at, value_end in zip(*places, strict=True):
        yield bytes(data[key_at:key_end]), bytes(data[value_at:value_end])
