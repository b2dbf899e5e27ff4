"""A named filter: `cache.events(filter="weekday", params={"day": 0})`."""

from dataclasses import dataclass
from typing import Any

import numpy as np

DAY_MS = 86_400_000
EPOCH_MS = 1_577_836_800_000  # of ids: 1 January 2020


@dataclass(frozen=True)
class WeekdayParameters:
    """What a client gives; `day` 0 is Monday."""

    day: int


@dataclass(frozen=True)
class Weekday:
    """Built once for all who read with these parameters; asked of many events at once, from any thread."""

    day: int

    def mask(self, events: Any) -> Any:
        """Return one bool for each event; keys, ids and kinds are columns, values are decoded only if they are asked for."""
        days = ((events.ids >> 22) + EPOCH_MS) // DAY_MS
        return (days + 3) % 7 == np.int64(self.day)  # 1 January 1970 was a Thursday


class WeekdayFactory:
    """What the entry point names. A change of meaning is a new version, beside this one."""

    name, version, description, parameters = "weekday", 1, "events of one day of the week, UTC", WeekdayParameters

    def build(self, parameters: WeekdayParameters, context: Any) -> Weekday:
        """Return the filter for parameters whose types were checked."""
        del context  # the cache's format and schema, where a filter depends on them
        return Weekday(parameters.day)


weekday = WeekdayFactory()
