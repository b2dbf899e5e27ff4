"""Reading entries of a cache that is dropped meanwhile: an error, never a part of it that looks whole."""

import asyncio
import threading

import numpy as np
import pytest

from eventlog.errors import CacheDropped, NotPrimary
from eventlog.hashing import hash_key, segment_of
from eventlog.node.handlers import entries
from eventlog.wire.eventlog_pb2 import Get, GetMany, Keys, Message
from tests.node.nodes import cache_of, submit, with_node

KEYS = [b"k%04d" % number for number in range(1_000)]
NONE = b"none"  # read in a thread: memory cannot tell that there is none


class Asked:
    """A request of a reader that takes `credits` items and says when it waits for more."""

    def __init__(self, message: Message, body: bytes = b"", *, credits: int = 0) -> None:
        self.message = message
        self.body = memoryview(body)
        self.answers: list[Message] = []
        self.entries = 0
        self.has_ended = False
        self.waits = asyncio.Event()
        self._credits = asyncio.Semaphore(credits)

    def take(self) -> None:
        for _ in range(1_000):
            self._credits.release()

    async def credit(self) -> None:
        if self._credits.locked():
            self.waits.set()
        await self._credits.acquire()

    def answer(self, message: Message) -> None:
        self.answers.append(message)

    def stream_send(self, message: Message, *_: object) -> None:
        self.entries += message.stream_item.entries.count

    def stream_end(self) -> None:
        self.has_ended = True


def many(cache_id: int) -> tuple[Message, bytes]:
    ends = np.cumsum([0, *map(len, KEYS)]).astype("<i4")
    return Message(get_many=GetMany(cache_id=cache_id, count=len(KEYS))), ends.tobytes() + b"".join(KEYS)


async def filled(node, keys=KEYS):
    cache = await cache_of(node)
    await submit(node, cache, [(key, b"v") for key in keys])
    await node.storage.run(lambda: None)  # nobody waits for the state itself: it would come a quarter of a second later
    while node.overlay.nbytes:  # noqa: ASYNC110 -- until then reads need no thread
        await asyncio.sleep(0)
    return cache


@pytest.mark.parametrize("credits", [0, 1])
def test_keys_of_a_segment_that_is_given_away_meanwhile_end_with_an_error(tmp_path, credits):
    async def act(node):
        cache = await filled(node, [key for n in range(20_000) if segment_of(hash_key(key := b"%d" % n), node.segments) == 0])
        asked = Asked(Message(keys=Keys(cache_id=cache.cache_id, segments=[0])), credits=credits)
        reading = asyncio.create_task(entries.keys(node, asked))
        await asked.waits.wait()
        node.replicas.serving[:] = False
        cache.live[:] = 0  # as a copy is emptied
        asked.take()
        with pytest.raises(NotPrimary):
            await reading
        return asked.has_ended

    assert not with_node(tmp_path, act)


@pytest.mark.parametrize("kind", ["keys", "get_many"])
@pytest.mark.parametrize("credits", [0, 1])
def test_a_stream_of_a_cache_that_is_dropped_meanwhile_ends_with_an_error(tmp_path, kind, credits):
    async def act(node):
        cache = await filled(node)
        request = (Message(keys=Keys(cache_id=cache.cache_id)), b"") if kind == "keys" else many(cache.cache_id)
        asked = Asked(*request, credits=credits)
        reading = asyncio.create_task(getattr(entries, kind)(node, asked))
        await asked.waits.wait()
        await node.cache_changes.drop("c")
        asked.take()
        with pytest.raises(CacheDropped):
            await reading
        return asked.entries, asked.has_ended

    sent, has_ended = with_node(tmp_path, act)
    assert not has_ended
    assert sent < len(KEYS)


@pytest.mark.parametrize("kind", ["get", "get_many", "keys"])
def test_what_is_read_after_the_cache_was_dropped_is_not_told(tmp_path, kind):
    async def act(node):
        cache = await filled(node)
        message, body = {
            "get": (Message(get=Get(cache_id=cache.cache_id, key=NONE)), b""),
            "get_many": many(cache.cache_id),
            "keys": (Message(keys=Keys(cache_id=cache.cache_id)), b""),
        }[kind]
        asked = Asked(message, body, credits=1_000)
        begun, go = threading.Event(), threading.Event()
        node.entries._thread.submit(lambda: (begun.set(), go.wait(60)))  # what is read stands behind it
        await asyncio.to_thread(begun.wait, 60)
        reading = asyncio.create_task(getattr(entries, kind)(node, asked))
        await asyncio.sleep(0)
        await node.cache_changes.drop("c")
        go.set()
        with pytest.raises(CacheDropped):
            await reading
        return asked.answers, asked.entries

    assert with_node(tmp_path, act) == ([], 0)


@pytest.mark.parametrize("credits", [0, 1_000])
def test_without_a_drop_a_stream_ends_with_every_key(tmp_path, credits):
    async def act(node):
        cache = await filled(node)
        asked = Asked(Message(keys=Keys(cache_id=cache.cache_id)), credits=credits)
        asked.take()
        await entries.keys(node, asked)
        return asked.entries, asked.has_ended

    assert with_node(tmp_path, act) == (len(KEYS), True)
