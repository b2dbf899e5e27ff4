"""Roads between clients and nodes that can be blocked: what is on them is held up, and nobody is told. No rights are needed for that."""

from types import TracebackType
from typing import Self

from eventlog.client.loop_thread import LoopThread
from tests.process.client_ends import Road


class Roads:
    """One road to each address, in a thread of its own, inside `with`. Clients stay on them with `routing="any"`."""

    def __init__(self, addresses: list[str]) -> None:
        self._thread = LoopThread("roads")
        self._roads = [Road(address) for address in addresses]

    def __enter__(self) -> Self:
        for road in self._roads:
            self._thread.run(road.open())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for road in self._roads:
            self._thread.run(road.close())
        self._thread.stop()

    @property
    def addresses(self) -> list[str]:
        """Where the roads begin."""
        return [road.address for road in self._roads]

    def passed(self, index: int = 0) -> int:
        """Return how many bytes came from the node so far."""
        return self._roads[index].passed["down"]

    def block(self, index: int) -> None:
        """Let nothing through, in either direction, on connections old and new."""
        self._thread.run(self._roads[index].block())

    def unblock(self, index: int) -> None:
        """End a `block`: what was held up arrives late."""
        self._thread.run(self._roads[index].unblock())
