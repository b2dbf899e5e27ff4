"""The HTTP server's end, and requests that are none."""

import asyncio

import pytest

from eventlog.errors import CacheNotFound
from eventlog.http.server import CONNECTIONS_MAX, STOP_S, Api, ApiOptions, HttpServer, Probes, render
from eventlog.transport.connection import Exchange
from eventlog.transport.server import bind
from tests.http.api_ends import api_of, dispatch
from tests.loops import WITHIN_S
from tests.schema.registries import Alone, body, record


def serving(probes: Probes, *, api: Api | None = None, stop_s: float = 0.02, **options) -> HttpServer:
    return HttpServer(probes, bind("127.0.0.1", 0), api=api or api_of(), stop_s=stop_s, **options)


@pytest.mark.parametrize("request_", [b"GET / HTTP/1.1\r\nHost: a\r\n", b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\n"])
def test_a_request_that_never_ends_does_not_hold_up_the_end_of_the_node(request_: bytes) -> None:
    async def main() -> None:
        server = serving(Probes(ready=str, metrics=str), stop_s=STOP_S)
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
        server = serving(Probes(ready=str, metrics=str))
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
        server = serving(Probes(ready=str, metrics=str))
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        writer.write(request_)
        assert (await reader.readline()).split()[1] == status
        writer.close()
        await server.stop()

    asyncio.run(main())
    assert caplog.records == []


@pytest.mark.parametrize(
    "request_",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /v1/caches/none HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /v1/openapi.json HTTP/1.1\r\nHost: a\r\n\r\n",
        b"HEAD /v1/caches/c/events HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /v1/caches/c/events HTTP/1.1\r\nHost: a\r\nAccept: text/event-stream\r\n\r\n",
        b"POST /v1/caches/c/entries HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\nContent-Length: 0\r\n\r\n",
        b"GET /subjects HTTP/1.1\r\nHost: a\r\n\r\n",
        b"no request\r\n\r\n",
        b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n",
    ],
)
def test_no_answer_names_the_versions_that_made_it(request_: bytes) -> None:
    async def main() -> None:
        server = serving(Probes(ready=str, metrics=str), registry=Alone())
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        writer.write(request_)
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"\r\nDate: " in head
        assert b"server:" not in head.lower()
        writer.close()
        await server.stop()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("target", "status"),
    [
        (b"http://a/v1/caches/c", b"200"),
        (b"https://b.example:1/v1/caches/c", b"200"),
        (b"http://a/v1/caches/none", b"404"),
        (b"http://a/v1/caches/c?x=1", b"400"),
        (b"http://a/health/live", b"200"),
        (b"http://a/subjects", b"200"),
        (b"http://a", b"200"),
        (b"http://a/v1/nothing", b"404"),
    ],
)
def test_a_whole_address_is_the_same_as_its_path(target: bytes, status: bytes) -> None:
    async def main() -> None:
        server = serving(Probes(ready=str, metrics=str), registry=Alone())
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        writer.write(b"GET %b HTTP/1.1\r\nHost: a\r\n\r\n" % target)
        assert (await reader.readline()).split()[1] == status
        writer.close()
        await server.stop()

    asyncio.run(main())


@pytest.mark.parametrize("packed", [b"Content-Encoding: gzip\r\nContent-Length: 2", b"Transfer-Encoding: gzip, chunked"])
def test_a_schema_that_is_packed_is_refused_as_such(packed: bytes) -> None:
    async def main() -> None:
        server = serving(Probes(ready=str, metrics=str), registry=Alone())
        reader, writer = await asyncio.open_connection("127.0.0.1", await server.start())
        writer.write(b"POST /subjects/s/versions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n%b\r\n\r\n" % packed)
        assert (await reader.readline()).split()[1] == b"415"
        assert b'"error_code": 415' in await reader.read(), "the connection is closed: the body has not come"
        writer.close()
        await server.stop()

    asyncio.run(main())


def test_who_closes_its_half_of_a_connection_has_given_up() -> None:
    async def main() -> None:
        server = serving(Probes(ready=str, metrics=str))
        port = await server.start()
        for request_ in (b"GET /v1/caches/c/events?follow=true HTTP/1.1\r\nHost: a\r\n\r\n", b"GET / HTTP/1.1\r\nHo"):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request_)
            writer.write_eof()
            async with asyncio.timeout(WITHIN_S):
                assert await reader.read() == b""
            writer.close()
        assert server.figures()["http_api_connections"][0] == 0
        await server.stop()

    asyncio.run(main())


def test_a_page_that_fails_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> str:
        raise ZeroDivisionError

    async def main() -> None:
        server = serving(Probes(ready=str, metrics=fail))
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
        server = serving(Probes(ready=str, metrics=str), idle_s=3_600, first_s=3_600)  # it is not for this that they are closed
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
    found = asyncio.run(told(serving(Probes(ready=str, metrics=str), registry=registry), sent))
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
    probes = Probes(ready=str, metrics=str)
    found = asyncio.run(told(serving(probes, registry=registry, body_s=0.05, body_bytes_max=63), sent))
    assert found.split()[1] == status
    assert found.count(b"HTTP/1.1") == 1, "what follows is no request"
    assert not registry.kept.registry.subjects


@pytest.mark.parametrize(("query", "begins"), [("", b"HTTP/1.1 404 "), ("?follow=true", b"HTTP/1.1 200 ")])
def test_what_a_read_that_ends_is_refused_has_its_status_however_late_it_is(query: str, begins: bytes) -> None:
    head_s = 0.02

    def late(exchange: Exchange) -> None:
        if exchange.kind in {"hello", "describe_cache"}:
            dispatch(exchange)
        else:
            asyncio.get_running_loop().call_later(2 * head_s, exchange.fail, CacheNotFound(cache="c"))

    api = Api(late, ApiOptions(body_bytes_max=1_000, head_s=head_s))
    sent = f"GET /v1/caches/c/events{query} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()
    found = asyncio.run(told(serving(Probes(ready=str, metrics=str), api=api), sent))
    assert found.startswith(begins)
    assert b"CACHE_NOT_FOUND" in found


def test_without_a_registry_its_paths_are_none() -> None:
    found = asyncio.run(told(serving(Probes(ready=str, metrics=str)), b"GET /subjects HTTP/1.0\r\n\r\n"))
    assert b" 404 " in found.splitlines()[0]


class Asker:
    """A connection on which bytes are sent as they are, and answers read."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def ask(self, data: bytes) -> tuple[int, dict[str, str], bytes]:
        self.writer.write(data)
        return await self.answer()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        status = int((await self.reader.readline()).split()[1])
        headers = {}
        while line := (await self.reader.readline()).strip().decode():
            name, _, value = line.partition(": ")
            headers[name] = value
        return status, headers, await self.reader.readexactly(int(headers.get("Content-Length", 0)))


def using(test, **options) -> None:
    async def main() -> None:
        server = serving(Probes(ready=str, metrics=str), **options)
        port = await server.start()
        askers: list[Asker] = []

        async def open_() -> Asker:
            askers.append(Asker(*await asyncio.open_connection("127.0.0.1", port)))
            return askers[-1]

        async with asyncio.timeout(WITHIN_S):
            await test(server, open_)
        for asker in askers:
            asker.writer.close()
        await server.stop()

    asyncio.run(main())


GET = b"GET /v1/caches/c/entries/k HTTP/1.1\r\nHost: a\r\n\r\n"
PUT = b"PUT /v1/caches/c/entries/k HTTP/1.1\r\nHost: a\r\n"
LIVE = b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\n"


def test_the_api_has_places_of_its_own_and_a_newcomer_beyond_them_is_told_to_come_again() -> None:
    async def test(server, open_) -> None:
        first, second, third = [await open_() for _ in range(3)]
        assert (await first.ask(GET))[0] == (await second.ask(GET))[0] == 404
        status, headers, body = await third.ask(GET)
        assert (status, headers["Retry-After"], b"OVERLOADED" in body) == (503, "1", True)
        assert await third.reader.read() == b"", "it is closed"
        assert (await (await open_()).ask(LIVE))[0] == 200, "a probe needs no place there"
        assert server.figures()["http_api_connections"] == (2, 2, 2)
        first.writer.close()
        while (status := (await (await open_()).ask(GET))[0]) == 503:
            pass
        assert status == 404

    using(test, api=api_of(connections_max=2))


def test_whoever_asks_the_api_is_not_closed_for_probes() -> None:
    async def test(server, open_) -> None:
        asker = await open_()
        await asker.ask(GET)
        for _ in range(CONNECTIONS_MAX + 10):
            await open_()
        assert (await asker.ask(GET))[0] == 404

    using(test)


def test_a_head_that_never_ends_is_not_waited_for() -> None:
    async def test(server, open_) -> None:
        slow, heard = await open_(), await open_()
        assert (await heard.ask(LIVE))[0] == 200
        slow.writer.write(b"GET / HTTP/1.1\r\nX: ")
        assert await slow.reader.read() == b""
        assert (await heard.ask(LIVE))[0] == 200, "it has asked for something"

    using(test, first_s=0.05)


def test_a_body_that_does_not_come_is_answered_and_its_connection_closed() -> None:
    async def test(server, open_) -> None:
        for announced in (b"Content-Length: 5\r\n\r\n1", b"Transfer-Encoding: chunked\r\n\r\n1\r\n1\r\n"):
            asker = await open_()
            status, _, body = await asker.ask(PUT + announced)
            assert (status, b"BODY_TOO_SLOW" in body) == (408, True)
            assert await asker.reader.read() == b""
        assert server.figures()["http_body_bytes"][0] == 0

    using(test, api=api_of(body_ms_max=50))


@pytest.mark.parametrize(
    "body",
    [
        b"Content-Length: 2147483648\r\n\r\n1",
        b"Transfer-Encoding: chunked\r\n\r\n" + b"100\r\n" + b"1" * 256 + b"\r\n" + b"400\r\n" + b"1" * 1_024 + b"\r\n",
    ],
)
def test_of_a_body_that_is_too_large_the_rest_is_not_read(body: bytes) -> None:
    async def test(server, open_) -> None:
        asker = await open_()
        status, _, said = await asker.ask(PUT + body)
        assert (status, b"TOO_LARGE" in said) == (413, True)
        assert await asker.reader.read() == b""
        assert server.figures()["http_body_bytes"][0] == 0

    using(test)


LINES = b"POST /v1/caches/c/entries HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-ndjson\r\n"


@pytest.mark.parametrize(
    ("head", "data", "status"),
    [(PUT, b"1", 404), (LINES, b'{"key": "k", "value": 1}', 404), (POST, body(record("a")), 200)],  # the node's cache takes no writes
)
def test_a_client_that_waits_to_be_told_so_hears_that_its_body_is_wanted(head: bytes, data: bytes, status: int) -> None:
    async def test(server, open_) -> None:
        asker = await open_()
        assert (await asker.ask(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(data)))[0] == 100
        assert (await asker.ask(data))[0] == status
        asker = await open_()
        assert (await asker.ask(head + b"Expect: 100-continue\r\nContent-Length: 2147483648\r\n\r\n"))[0] == (100 if head == LINES else 413)

    using(test, registry=Alone())


def test_a_body_that_is_compressed_on_its_way_is_refused() -> None:
    async def test(server, open_) -> None:
        for head in (PUT, LINES):
            asker = await open_()
            assert (await asker.ask(head + b"Transfer-Encoding: gzip, chunked\r\n\r\n1\r\n1\r\n0\r\n\r\n"))[0] == 415

    using(test)


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 1\r\nContent-Length: 2\r\n",
        b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
        b"Content-Length: +1\r\n",
        b"Transfer-Encoding: chunked, identity\r\n",
    ],
)
def test_a_body_whose_end_could_be_in_two_places_is_refused_and_nothing_behind_it_is_taken_for_a_request(head: bytes) -> None:
    async def test(server, open_) -> None:
        asker = await open_()
        status, _, _ = await asker.ask(PUT + head + b"\r\n1" + LIVE)
        assert status == 400
        assert await asker.reader.read() == b""

    using(test)


def test_samples_of_one_name_stand_together_behind_its_help():
    counters = [
        ("events", "Events.", "counter", 3.0, 'cache="a"'),
        ("groups", "Groups.", "counter", 1e15, ""),
        ("events", "Events.", "counter", 4.0, 'cache="b"'),
    ]
    assert render(counters, []).splitlines() == [
        "# HELP events Events.",
        "# TYPE events counter",
        'events{cache="a"} 3',
        'events{cache="b"} 4',
        "# HELP groups Groups.",
        "# TYPE groups counter",
        "groups 1000000000000000",
    ]


def test_a_bounded_thing_has_used_limit_and_peak():
    lines = render([], [("queue", 1, 10, 7)]).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'eventlog_used{thing="queue"} 1',
        'eventlog_limit{thing="queue"} 10',
        'eventlog_peak{thing="queue"} 7',
    ]


def test_a_peak_that_nobody_keeps_is_left_out():
    lines = render([], [("table", 1, 0, None), ("queue", 1, 10, 7)]).splitlines()
    assert [line for line in lines if line.startswith("eventlog_peak")] == ['eventlog_peak{thing="queue"} 7']
    assert 'eventlog_used{thing="table"} 1' in lines
