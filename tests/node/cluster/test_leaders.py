"""Word to clients of who leads."""

import asyncio
from types import SimpleNamespace

from eventlog.node.cluster.leaders import Leaders
from eventlog.topology import Topology
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import Reply
from tests import loops

SEGMENTS = 4


class Client:
    """The node's end of a connection to a client that answers when a test says so; `told` are the epochs that it heard of."""

    def __init__(self):
        self.told, self.asked = [], []
        self.is_closed = False
        self.state = {}
        self.session = SimpleNamespace(outgoing=self.asked)

    def post(self, told, message):
        self.told.append(message.topology_changed.epoch)
        self.asked.append(told)

    def answer(self):
        self.asked.pop()(Reply(None, Message(), memoryview(b""), 0))


def metadata_of(epoch):
    topology = Topology(epoch=epoch, primaries=(1,) * SEGMENTS, addresses={1: "h:1"})
    return SimpleNamespace(view=SimpleNamespace(topology=lambda _: topology), hooks=[])


def test_a_client_that_has_yet_to_answer_is_told_of_the_newest_change_when_it_does():
    async def main():
        leaders, client = Leaders(SEGMENTS), Client()
        leaders.greeted(client)
        for epoch in (1, 2, 3):
            leaders.join(metadata_of(epoch))
            await asyncio.sleep(0.05)
        assert client.told == [1]
        client.answer()
        assert client.told == [1, 3]
        client.answer()
        assert client.told == [1, 3]

    loops.run(main())


def test_changes_of_one_moment_are_told_once():
    async def main():
        leaders, client = Leaders(SEGMENTS), Client()
        leaders.greeted(client)
        for epoch in (1, 2, 3):
            leaders.join(metadata_of(epoch))
        await asyncio.sleep(0.05)
        assert client.told == [3]

    loops.run(main())
