"""What tests of the client against one node share."""

from collections.abc import Awaitable, Callable
from typing import Any

import eventlog
from eventlog.client.client import connect
from tests.process.client_ends import run
from tests.process.nodes import NodeProcess

Test = Callable[[eventlog.Client], Awaitable[None]]
SEGMENTS = 16


def using(node: NodeProcess, test: Test, **options: Any) -> None:
    async def main() -> None:
        async with connect(node.address, **options) as client:
            await test(client)

    run(main())
