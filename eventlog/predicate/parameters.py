"""The values of a predicate's placeholders: a JSON array for `?`, an object for `:name`."""

import base64
import binascii
from typing import Any

import msgspec

from eventlog.limits import FILTER_PARAMETERS_BYTES_MAX
from eventlog.predicate.dialect import closest, refusal


class Parameters:
    """Hands out values in the order of the text, and knows whether all were used."""

    def __init__(self, data: bytes, places: tuple[int, ...]) -> None:
        """Take JSON text, empty for none, and where the placeholders stand.

        Raises:
            BadPredicate: it is no array and no object, or not JSON.
        """
        if len(data) > FILTER_PARAMETERS_BYTES_MAX:
            raise refusal(1, f"parameters have at most {FILTER_PARAMETERS_BYTES_MAX} bytes, these {len(data)}")
        try:
            given: Any = msgspec.json.decode(data) if data else []
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise refusal(1, "its parameters are not JSON") from error
        if not isinstance(given, (list, dict)):
            raise refusal(1, "its parameters are neither a list nor an object of names and values")
        self._given: list[Any] | dict[str, Any] = given
        self._places = places
        self._used: set[str | int] = set()
        self._seen = 0

    def next_place(self) -> int:
        """Return where the next placeholder stands."""
        return self._places[self._seen] if self._seen < len(self._places) else 1

    def take(self, name: str | None) -> Any:
        """Return the value of the next placeholder, `?` or of a name: a scalar, bytes for `{"base64": ...}`, or a list of such.

        Raises:
            BadPredicate: there is none.
        """
        at = self.next_place()
        index = self._seen
        self._seen += 1
        if name is None:
            if isinstance(self._given, dict):
                raise refusal(at, "parameters were given by name; write :name instead of ?")
            if index >= len(self._given):
                raise refusal(at, f"parameter {index + 1} is missing, {len(self._given)} were given")
            self._used.add(index)
            return _value(self._given[index], at)
        if not isinstance(self._given, dict):
            raise refusal(
                at, f"parameter :{name} is missing" if not self._given else "parameters were given without names; write ? for each"
            )
        if name not in self._given:
            raise refusal(at, f"parameter :{name} is missing", closest(name, list(self._given)))
        self._used.add(name)
        return _value(self._given[name], at)

    def check_all_used(self) -> None:
        """Raise if a parameter has no placeholder: something was forgotten or misspelt."""
        unused = len(self._given) - len(self._used)
        if unused:
            names = sorted(set(self._given) - self._used, key=str) if isinstance(self._given, dict) else [f"number {len(self._used) + 1}"]
            raise refusal(1, f"parameter {str(names[0])[:60]} is not used by any placeholder")


def _value(given: Any, at: int) -> Any:
    if isinstance(given, list):
        return [_scalar(item, at) for item in given]
    return _scalar(given, at)


def _scalar(given: Any, at: int) -> Any:
    if isinstance(given, dict) and given.keys() == {"base64"} and isinstance(given["base64"], str):
        try:
            return base64.b64decode(given["base64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise refusal(at, "a parameter is not base64") from error
    if isinstance(given, (list, dict)):
        raise refusal(at, "a parameter is a scalar, or a list of scalars for IN")
    return given
