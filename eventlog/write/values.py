"""Write path, before step 4: the values of a frame against the schema of their cache, where it validates them.

They are looked at before the frame waits for a group: a schema and a value may ask for much work, and a group would have all its caches
wait. So a frame may be checked in pieces, and elsewhere than on the loop.
"""

from collections.abc import Iterator
from typing import Protocol

from eventlog.batch.check import BadBlocks, BlockLimits, check_blocks, slices
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

    def look(self, steps: int) -> bool:
        """Go on for about so many steps; return whether all is said. A value that needs more than are left is looked at again."""
        for key, value in self._left():
            most = steps_of(value)
            meter = Meter(min(most, steps))
            try:
                self._check.check(value, meter)
            except Misfit as misfit:
                self.refusal = _refused(key, misfit.sentence)
                return True
            except (OutOfSteps, RecursionError):
                self._row = key, value
                return False
            steps -= min(most, steps) - meter.left
            if steps <= 0:
                return False
        return True

    def look_at_all(self) -> None:
        """Go on up to the end, with as many steps as each value may take."""
        for key, value in self._left():
            try:
                self._check.check(value, Meter(steps_of(value)))
            except Misfit as misfit:
                self.refusal = _refused(key, misfit.sentence)
            except OutOfSteps:
                self.refusal = _refused(key, f"its check by the schema takes more than {steps_of(value):,} steps")
            except RecursionError:
                self.refusal = _refused(key, "it is nested too deep to be checked by the schema")
            if self.refusal is not None:
                return

    def _left(self) -> Iterator[tuple[bytes, bytes]]:
        if self._row is not None:
            row, self._row = self._row, None
            yield row
        yield from self._rows


def _refused(key: bytes, why: str) -> BadValue:
    return BadValue(key=key.decode(errors="backslashreplace"), why=why)


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
    keys = slices(data, blocks.key_at[puts], blocks.key_end[puts])
    values = slices(data, blocks.value_at[puts], blocks.value_end[puts])
    yield from zip(map(bytes, keys), map(bytes, values), strict=True)
