"""The HTTP server's end."""

import asyncio

import pytest

from eventlog.http.server import STOP_S, HttpServer, Probes
from eventlog.transport.server import bind


@pytest.mark.parametrize("request_", [b"GET / HTTP/1.1\r\nHost: a\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"])
def test_a_request_that_never_ends_does_not_hold_up_the_end_of_the_node(request_: bytes) -> None:
    async def main() -> None:
        server = HttpServer(Probes(ready=str, metrics=str), bind("127.0.0.1", 0))
        _, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        writer.write(request_)
        await writer.drain()
        async with asyncio.timeout(STOP_S + 8):  # aiohttp waits for ten seconds by itself
            await server.stop()
        writer.close()

    asyncio.run(main())
