"""How far readers may see: the low watermark, with what this node can promise by itself, looked up once in a while and when it rose."""

import asyncio

from eventlog.node.reading.pulls import Ints, ReadContext

_AGE_S = 0.02


class Reach:
    """The low watermark as of a moment ago. It covers everything that was acknowledged before `limit` was called."""

    def __init__(self, context: ReadContext) -> None:
        self._context = context
        self._limit = 0
        self._until = 0.0

    def limit(self, asked: Ints | None = None) -> int:
        """Return the id up to which a reader of `asked` may see."""
        if asyncio.get_running_loop().time() >= self._until:
            self.refresh()
        return self._limit if asked is None else self._context.low.limit(asked)

    def refresh(self) -> int:
        """Promise what the clock allows, and return how far all segments may be seen by now."""
        self._context.closing.close_up()
        self._limit = self._context.low.limit()
        self._until = asyncio.get_running_loop().time() + _AGE_S
        return self._limit

    def rose(self) -> None:
        """Look again with the next question: something was committed or promised."""
        self._until = 0.0
