"""Which events of a work group are with which member, and until when, if they are to be settled in time."""

from collections import OrderedDict
from collections.abc import Callable, Collection

Where = tuple[int, int]
"""An event's id and segment."""


class Leases:
    """What the members have. `timeout_ms` 0: as long as their sessions live. Times are milliseconds of any one clock."""

    def __init__(self, *, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self._of: dict[str, dict[int, int]] = {}  # member -> id -> segment
        self._due: OrderedDict[int, tuple[int, int]] = OrderedDict()  # id -> (when, segment); the next one first

    def begin(self, member: str, where: Where, now_ms: int) -> None:
        """Note that a member has an event from now on."""
        id_, segment = where
        self._of.setdefault(member, {})[id_] = segment
        if self._timeout_ms:
            self._due[id_] = now_ms + self._timeout_ms, segment
            self._due.move_to_end(id_)

    def end(self, member: str, id_: int) -> None:
        """Note that it has it no more."""
        self._of.get(member, {}).pop(id_, None)
        self._due.pop(id_, None)

    def beside(self, member: str, holding: Collection[int]) -> list[Where]:
        """Return what a member was given beside what it holds: the answer got lost."""
        return [(id_, segment) for id_, segment in self._of.get(member, {}).items() if id_ not in holding]

    def overdue(self, now_ms: int) -> list[Where]:
        """Return what is to be taken back by now."""
        found = []
        for id_, (due_ms, segment) in self._due.items():
            if due_ms > now_ms:
                break
            found.append((id_, segment))
        return found

    @property
    def next_ms(self) -> int | None:
        """When the next event is to be taken back, None for never."""
        return next((due_ms for due_ms, _ in self._due.values()), None)

    def forget(self, is_gone: Callable[[str], bool]) -> None:
        """Forget members."""
        for member in [member for member in self._of if is_gone(member)]:
            for id_ in self._of.pop(member):
                self._due.pop(id_, None)
