"""The HTTP server's end, and requests that are none."""

import asyncio

import pytest

from eventlog.http.server import CONNECTIONS_MAX, STOP_S, HttpServer, Probes
from eventlog.transport.server import bind
from tests.loops import WITHIN_S
from tests.schema.registries import Alone, body, record


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


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 100_000 + b"\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ],
)
def test_what_is_no_request_is_refused_and_leaves_nothing_in_the_log(request_: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        server = HttpServer(Probes(ready=str, metrics=str), bind("127.0.0.1", 0))
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        writer.write(request_)
        assert b" 400 " in await reader.readline()
        writer.close()
        await server.stop()

    asyncio.run(main())
    assert caplog.records == []


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\nhello", b"405"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nContent-Encoding: deflate\r\nContent-Length: 5\r\n\r\nhello", b"200"),
        (b"GET / HTTP/1.1\r\nHost: a\r\nExpect: \xff\r\n\r\n", b"200"),
        (b"PUT /none HTTP/1.1\r\nHost: a\r\nExpect: \xff\r\n\r\n", b"404"),
        (b"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", b"404"),
        (b"GET /%ff%00%zz HTTP/1.1\r\nHost: a\r\n\r\n", b"404"),
        (b"HEAD /health/live HTTP/1.1\r\nHost: a\r\n\r\n", b"200"),
        (b"DELETE /metrics HTTP/1.1\r\nHost: a\r\n\r\n", b"405"),
    ],
)
def test_requests_that_nobody_needs_are_answered_and_leave_nothing_in_the_log(
    request_: bytes, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        server = HttpServer(Probes(ready=str, metrics=str), bind("127.0.0.1", 0))
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        writer.write(request_)
        assert (await reader.readline()).split()[1] == status
        writer.close()
        await server.stop()

    asyncio.run(main())
    assert caplog.records == []


def test_a_page_that_fails_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> str:
        raise ZeroDivisionError

    async def main() -> None:
        server = HttpServer(Probes(ready=str, metrics=fail), bind("127.0.0.1", 0))
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        writer.write(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 500 " in await reader.readline()
        writer.close()
        await server.stop()

    asyncio.run(main())
    [record] = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_whoever_keeps_connections_open_keeps_no_probe_out() -> None:
    async def main() -> None:
        server = HttpServer(Probes(ready=str, metrics=str), bind("127.0.0.1", 0), idle_s=3_600)  # it is not for this that they are closed
        port = await server.start()
        kept = [await asyncio.open_connection("127.0.0.1", port) for _ in range(CONNECTIONS_MAX + 10)]
        async with asyncio.timeout(WITHIN_S):
            for reader, _ in kept[:10]:
                assert await reader.read() == b"", "the oldest were closed"
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b" 200 " in await reader.readline()
        assert server.figures()["http_connections"][1:] == (CONNECTIONS_MAX, CONNECTIONS_MAX)
        for _, each in (*kept, (reader, writer)):
            each.close()
        await server.stop()

    asyncio.run(main())


async def told(server: HttpServer, request: bytes) -> bytes:
    """Return all that is answered to a request until the connection ends."""
    reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
    try:
        writer.write(request)
        async with asyncio.timeout(WITHIN_S):
            return await reader.read()
    finally:
        writer.close()
        await server.stop()


POST = b"POST /subjects/s/versions HTTP/1.1\r\nHost: a\r\n"


def test_a_schema_comes_through_the_server() -> None:
    registry = Alone()
    data = body(record("a"))
    sent = POST + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(data) + data
    found = asyncio.run(told(HttpServer(Probes(ready=str, metrics=str), bind("127.0.0.1", 0), registry=registry), sent))
    assert found.startswith(b"HTTP/1.1 200 ")
    assert b"application/vnd.schemaregistry.v1+json" in found
    assert list(registry.kept.registry.subjects) == ["s"]


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (POST + b"Content-Length: 100\r\n\r\n" + b"x" * 100, b"413"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"40\r\n" + b"x" * 64 + b"\r\n", b"413"),
        (POST + b"Content-Length: 9\r\n\r\nx", b"408"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n", b"408"),
    ],
)
def test_a_body_is_bounded_in_size_and_time(sent: bytes, status: bytes) -> None:
    registry = Alone()
    probes, bound = Probes(ready=str, metrics=str), bind("127.0.0.1", 0)
    found = asyncio.run(told(HttpServer(probes, bound, registry=registry, body_s=0.05, body_bytes_max=63), sent))
    assert found.split()[1] == status
    assert found.count(b"HTTP/1.1") == 1, "what follows is no request"
    assert not registry.kept.registry.subjects


def test_without_a_registry_its_paths_are_none() -> None:
    found = asyncio.run(told(HttpServer(Probes(ready=str, metrics=str), bind("127.0.0.1", 0)), b"GET /subjects HTTP/1.0\r\n\r\n"))
    assert b" 404 " in found.splitlines()[0]
