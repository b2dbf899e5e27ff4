"""What a node hears of signals, from a stream that is only played."""

import asyncio
import json
from contextlib import asynccontextmanager
from types import SimpleNamespace

from eventlog.batch.columns import join_events
from eventlog.errors import Stopping
from eventlog.integrations.kafka.signals import Signals
from eventlog.wire.eventlog_pb2 import Message, Part, PollAnswer, StreamItem
from tests.predicate.rows import events

ASKING = json.dumps({"type": "execute-snapshot", "data": {"data-collections": ["c"]}}).encode()


class PlayedStream:
    def __init__(self, items):
        self._items = iter(items)

    def __aiter__(self):
        return self

    async def __anext__(self):
        for item in self._items:
            return item
        raise Stopping

    def stop(self):
        pass


def item(last_id, rows=()):
    body, parts = b"", []
    if rows:
        joined = join_events(events(list(rows)))
        body = joined.runs.tobytes() + joined.block
        parts = [Part(length=len(body), runs=len(joined.runs), events=joined.events)]
    answer = PollAnswer(parts=parts, last_id=last_id)
    return SimpleNamespace(message=Message(stream_item=StreamItem(poll_answer=answer)), body=memoryview(body))


class PlayedInside:
    def __init__(self, *items):
        self._items = items
        self.asked = []
        self.is_asked_again = asyncio.Event()

    @asynccontextmanager
    async def open(self):
        yield SimpleNamespace(stream=self._stream)

    def _stream(self, message, credit_bytes):
        if self.asked:
            self.is_asked_again.set()
        self.asked.append(message.watch.poll.after)
        return PlayedStream(self._items if len(self.asked) == 1 else ())


def test_signals_are_heard_in_order_and_an_answer_without_any_is_none():
    rows = [{"key": f"k{number}", "value": ASKING} for number in range(3)]
    heard = events(rows).ids.tolist()
    last = max(heard)
    inside = PlayedInside(item(1), item(last, rows), item(last + 5))
    node = SimpleNamespace(
        caches=SimpleNamespace(named=lambda _: SimpleNamespace(cache_id=7)), inner=SimpleNamespace(leads=lambda _: True), cache_changes=None
    )

    async def run():
        signals = Signals(node, inside, mirrored=lambda: {"c"}, now_ms=0, look_s=0.001)
        following = asyncio.create_task(signals.follow())
        found, after = [], 0
        for _ in heard:
            after = await signals.next("c", after)
            found.append(after)
        await inside.is_asked_again.wait()
        following.cancel()
        assert found == sorted(heard)
        assert inside.asked[:2] == [0, last + 5]

    asyncio.run(asyncio.wait_for(run(), 20))
