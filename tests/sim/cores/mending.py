"""Reading a process's log: what is damaged on its disk is asked of whoever else has it, and written again."""

from collections.abc import Callable, Sequence
from typing import Final

from tests.sim.cores.history import Value
from tests.sim.cores.packets import Mended, Wanted
from tests.sim.cores.state import State

_AGAIN_US: Final = 100_000


class Mending:
    """`ask` reaches all that are connected."""

    def __init__(self, state: State, *, ask: Callable[[Wanted], None]) -> None:
        self._state = state
        self._ask = ask
        self._missing: dict[tuple[int, int], None] = {}

    def read(self, segment: int, values: Sequence[Value]) -> Sequence[Value] | None:
        """Return values of the log as they are on disk; None, and a repair is under way, where one of them is damaged."""
        disk = self._state.disk
        if not disk.damaged:
            return values
        found = [(value, disk.read(segment, value)) for value in values]
        for value, sound in found:
            if sound is None and (segment, value.base) not in self._missing:
                self._missing[segment, value.base] = None
                self._want(segment, value.base)
        sound_ones = [sound for _, sound in found if sound is not None]
        return sound_ones if len(sound_ones) == len(found) else None

    def read_all(self) -> None:
        """Read everything there is, as an operator does who compares copies."""
        for segment in range(self._state.segments):
            self.read(segment, self._state.disk.log(segment))

    def _want(self, segment: int, base: int) -> None:
        """Ask for a value until it is there, or wanted no more: cut, or dropped."""
        if (segment, base) not in self._state.disk.damaged:
            self._missing.pop((segment, base), None)
            return
        self._ask(Wanted(host=self._state.host, segment=segment, base=base))
        self._state.process.after(_AGAIN_US, lambda: self._want(segment, base))

    def answer(self, wanted: Wanted) -> None:
        """Give what is sound here, and committed."""
        watermark = int(self._state.core.watermark[wanted.segment])
        for value in self._state.disk.after(wanted.segment, wanted.base - 1)[:1]:
            sound = self._state.disk.read(wanted.segment, value)
            if sound is not None and value.base == wanted.base and value.last <= watermark:
                self._state.world.send(self._state.host, wanted.host, Mended(segment=wanted.segment, value=sound))

    def hear(self, mended: Mended) -> None:
        """Write what was wanted in the place of what is damaged."""
        if (mended.segment, mended.value.base) in self._missing:
            self._state.storage.put(lambda: self._mend(mended.segment, mended.value), lambda: None)

    def _mend(self, segment: int, value: Value) -> None:
        if self._state.disk.mend(segment, value):
            self._state.world.history.write(segment, value)
            self._state.world.reached["repaired from another replica"] += 1
