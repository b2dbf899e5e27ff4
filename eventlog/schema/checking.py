"""The values of one write against a schema: in pieces, since a schema and a value may ask for much work, and others wait meanwhile."""

from collections.abc import Iterator
from typing import Protocol

from eventlog.errors import BadValue
from eventlog.schema.meter import Meter, OutOfSteps, steps_of
from eventlog.schema.strict_json import Misfit


class ValueCheck(Protocol):
    """One schema, as values are checked by it."""

    def check(self, value: bytes, meter: Meter) -> None:
        """Raises Misfit, OutOfSteps; RecursionError where a value nests deeper than there is room for here."""
        ...


class ValuesCheck:
    """Looks at values under their keys, one after the other, up to the first that the schema does not take: `refusal` is then set."""

    def __init__(self, rows: Iterator[tuple[bytes, bytes]], check: ValueCheck) -> None:
        self._rows = rows
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
