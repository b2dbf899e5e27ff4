"""Moments of the state that readers hold on to: what stood in the store as of an id of each segment.

A pin is exact: in the step on the loop in which the ids are noted, everything applied up to them is in the storage thread's queue or
in the store, and the snapshot is taken by a job that stands behind it and before whatever comes later.

Pins are local to a node and few. Losing one is no error: its reader goes on after the last key as of a later moment.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from eventlog.arrays import Ints
from eventlog.limits import PIN_AGE_MS_MAX, PIN_IDLE_MS_MAX, PIN_SHARED_MS_MAX, PINNED_BYTES_MAX, PINS_MAX
from eventlog.node.writing.storage import StorageThread
from eventlog.segment.port import Snapshot, Store

NOT_HERE = -1
_SWEEP_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """What the state of this node is, now: of each segment everything up to `ids` and nothing else, NOT_HERE where it is not whole.

    `applied` are the last ids that changed anything.
    """

    ids: Ints
    applied: Ints


@dataclass(slots=True, kw_only=True, eq=False)
class Pin:
    """The state as of `places`. `used` is when somebody read from it last, by the loop's clock.

    `counted`, by segment and cache: how many entries the counters knew then, where that is to be compared.
    """

    places: Places
    snapshot: Snapshot
    born: float
    used: float = field(default=0.0)
    is_open: bool = True
    counted: dict[int, dict[int, int]] = field(default_factory=dict)

    def id_of(self, segment: int) -> int:
        """Return the id as of which a segment can be read, NOT_HERE where it cannot."""
        return int(self.places.ids[segment]) if self.is_open else NOT_HERE

    def applied_of(self, segment: int) -> int:
        """Return the last id that changed a segment, NOT_HERE where it cannot be read."""
        return int(self.places.applied[segment]) if self.is_open else NOT_HERE


class Pins:
    """The pins of a node. `places` is called on the loop."""

    def __init__(self, store: Store, storage: StorageThread, *, places: Callable[[], Places], sweep_s: float = _SWEEP_S) -> None:
        self.sweep_s = sweep_s
        self._store = store
        self._storage = storage
        self._places = places
        self._pins: list[Pin] = []
        self._sweeping: asyncio.TimerHandle | None = None
        self.peak = 0

    def __len__(self) -> int:
        return len(self._pins)

    def places(self) -> Places:
        """Return what a pin taken now would be of."""
        return self._places()

    async def take(self, *, at_least: tuple[int, int] | None = None) -> Pin:
        """Return a pin of now; one of a moment ago if nothing has changed since. `at_least`: (segment, id) that it must reach."""
        now = asyncio.get_running_loop().time()
        places = self._places()
        newest = self._pins[-1] if self._pins else None
        is_shared = newest is not None and newest.is_open and (now - newest.born) * 1000 <= PIN_SHARED_MS_MAX
        if newest is not None and is_shared and np.array_equal(newest.places.applied, places.applied):
            segment, id_ = at_least or (0, NOT_HERE)
            if newest.id_of(segment) >= id_:
                newest.used = now
                return newest
        snapshot = await self._storage.run(self._store.snapshot)
        pin = Pin(places=places, snapshot=snapshot, born=now, used=now)
        self._pins.append(pin)
        self.peak = max(self.peak, len(self._pins))
        self._make_room()
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(self.sweep_s, self._sweep)
        return pin

    def find(self, segment: int, id_: int) -> Pin | None:
        """Return a pin that holds a segment as of exactly this id, if there still is one."""
        return next((pin for pin in reversed(self._pins) if pin.id_of(segment) == id_), None)

    def find_applied(self, segment: int, id_: int) -> Pin | None:
        """Return a pin of which this id was the last that had changed a segment, if there still is one."""
        return next((pin for pin in reversed(self._pins) if pin.applied_of(segment) == id_), None)

    def use(self, pin: Pin) -> None:
        """Note that a pin is being read."""
        pin.used = asyncio.get_running_loop().time()

    def drop(self, pin: Pin) -> None:
        """Let go of a pin; a reader that still uses it loses it."""
        if pin.is_open:
            pin.is_open = False
            pin.snapshot.close()
            self._pins.remove(pin)

    def close(self) -> None:
        """Let go of all of them."""
        for pin in list(self._pins):
            self.drop(pin)
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is bounded here."""
        return {"pins": (len(self._pins), PINS_MAX, self.peak)}

    def _make_room(self) -> None:
        """Let go of those that were not used for longest, never of all: memory and number are bounded."""
        while len(self._pins) > 1 and (len(self._pins) > PINS_MAX or self._store.pinned_bytes() > PINNED_BYTES_MAX):
            self.drop(min(self._pins[:-1], key=lambda pin: pin.used))

    def _sweep(self) -> None:
        self._sweeping = None
        now = asyncio.get_running_loop().time()
        for pin in list(self._pins):
            if (now - pin.used) * 1000 > PIN_IDLE_MS_MAX or (now - pin.born) * 1000 > PIN_AGE_MS_MAX:
                self.drop(pin)
        self._make_room()
        if self._pins:
            self._sweeping = asyncio.get_running_loop().call_later(self.sweep_s, self._sweep)
