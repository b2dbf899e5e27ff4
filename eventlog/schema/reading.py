"""The JSON of a schema, read within bounds: a schema is anybody's text, and what goes through it later counts on these bounds."""

import json
from math import isfinite
from typing import Any, NoReturn

from eventlog.errors import InvalidArgument
from eventlog.limits import SCHEMA_DEPTH_MAX, SCHEMA_ITEMS_MAX


def read_schema_json(text: str, *, what: str) -> Any:
    """Return the JSON of a schema, which `what` names in errors.

    Raises:
        InvalidArgument: it is no JSON, nests deeper than `SCHEMA_DEPTH_MAX`, or has more than `SCHEMA_ITEMS_MAX` items.
    """
    try:
        found = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(why=f"{what} is JSON: {error}") from error
    level, count = [found], 0
    for _ in range(SCHEMA_DEPTH_MAX + 1):
        count += len(level)
        if count > SCHEMA_ITEMS_MAX:
            raise InvalidArgument(why=f"a schema has at most {SCHEMA_ITEMS_MAX} items")
        level = [inner for item in level if isinstance(item, dict | list) for inner in (item.values() if isinstance(item, dict) else item)]
        if not level:
            return found
    raise InvalidArgument(why=f"a schema nests at most {SCHEMA_DEPTH_MAX} levels deep")


def _finite(digits: str) -> float:
    number = float(digits)
    return number if isfinite(number) else _refuse(digits[:20])


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")
