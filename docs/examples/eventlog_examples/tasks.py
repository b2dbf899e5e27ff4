"""A task: `await cache.for_each("larger", {"than": 1000})` counts large values where they are."""

from collections.abc import Mapping
from typing import Any


class Larger:
    """Made with the parameters of a call; a ValueError, TypeError or KeyError here refuses them."""

    def __init__(self, parameters: Mapping[str, Any]) -> None:
        self._than = int(parameters["than"])

    async def run(self, batch: Any) -> Mapping[str, int]:
        """Work on some entries; the numbers are added up for whoever asked."""
        return {"larger": sum(len(value) > self._than for value in batch.values)}
