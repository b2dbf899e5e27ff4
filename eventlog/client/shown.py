"""How the objects that a client hands out show themselves, and why they stay in the process that has the connections."""

from typing import ClassVar, NoReturn


class Shown:
    """Has its public name and what it is of as its `repr`, and says when it is pickled what to send instead."""

    _place: ClassVar[str] = "eventlog"

    def _described(self) -> str:
        """Return what stands behind the name."""
        return ""

    def __repr__(self) -> str:
        return f"<{self._place}.{type(self).__name__}{self._described()}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled: send its address or name, and connect in the other process")
