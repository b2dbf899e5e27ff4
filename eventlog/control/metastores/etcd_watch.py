"""Watching keys of an etcd cluster across lost streams and members.

A stream resumes after the last *event* it delivered. The revision in the header of an answer is the store's, which may be far ahead of
the events that are still to come: resuming there loses them.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from functools import partial
from itertools import groupby

import grpc.aio

from eventlog.control.metastore import Change
from eventlog.control.metastores import etcd_pb2 as pb
from eventlog.control.metastores.etcd_calls import PAUSE_MS, WATCH, Endpoints, Request, after_prefix
from eventlog.errors import MetadataUnavailable

Seen = tuple[int, list[Callable[[int], Change]]]


async def watch_prefix(endpoints: Endpoints, prefix: bytes, start: int, *, closing: asyncio.Event) -> AsyncGenerator[Seen, None]:
    """Yield (revision, changes) of keys that begin with `prefix`, from etcd's revision `start` on, until `closing` is set.

    A change is called with the number of characters to leave out of the front of its key.

    Raises:
        LookupError: revisions that were asked for are forgotten.
    """
    while not closing.is_set():
        answers = _one_stream(endpoints, prefix, start, closing)
        try:
            async for answer in answers:
                if answer.compact_revision:
                    raise LookupError(f"revisions up to {answer.compact_revision - 1} are forgotten")
                if answer.canceled:
                    break
                for revision, events in groupby(answer.events, key=lambda event: event.kv.mod_revision):
                    yield revision, [partial(_change, event) for event in events]
                    start = revision + 1
        finally:
            await answers.aclose()
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_MS / 1000):
                await closing.wait()


async def _one_stream(endpoints: Endpoints, prefix: bytes, start: int, closing: asyncio.Event) -> AsyncGenerator[pb.WatchResponse, None]:
    """Yield the answers of one stream until it breaks, the store closes, or calls went on to another endpoint.

    A member that was stopped keeps its streams open and silent; a call to it that was not answered tells sooner than its keepalive.
    """

    async def requests() -> AsyncGenerator[Request, None]:
        yield pb.WatchRequest(create_request=pb.WatchCreateRequest(key=prefix, range_end=after_prefix(prefix), start_revision=start))
        await closing.wait()  # a stream whose requests have ended is ended by the server

    at, call = endpoints.stream(WATCH, requests())
    ends = {asyncio.ensure_future(closing.wait()), asyncio.ensure_future(endpoints.moved.wait())}
    try:
        while True:
            reading = asyncio.ensure_future(call.read())
            await asyncio.wait({reading, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if any(end.done() for end in ends):
                reading.cancel()
                return
            answer = reading.result()
            if answer is grpc.aio.EOF:
                endpoints.failed(at)
                return
            endpoints.check_cluster(at, answer)
            yield answer
    except (grpc.aio.AioRpcError, grpc.aio.UsageError):
        endpoints.failed(at)
    except MetadataUnavailable:
        return  # an endpoint of another cluster
    finally:
        for end in ends:
            end.cancel()
        call.cancel()


def _change(event: pb.Event, skip: int) -> Change:
    return Change(key=event.kv.key[skip:].decode(), value=None if event.type == pb.Event.DELETE else event.kv.value)
