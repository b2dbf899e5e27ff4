"""Nodes for readers: three lead a third of the segments each, and hold all or some; what they send each other takes its time.

Values reach a backup before it may show them: it learns that they are committed from a promise, or with the next values.
"""

import asyncio
import random
from functools import partial
from types import SimpleNamespace

import numpy as np

from eventlog.errors import ConnectionLost
from eventlog.node.handlers import events
from eventlog.read.answer import CacheValues, CommittedGroup
from eventlog.segment.keys import encode_step, log_keys
from eventlog.wire.eventlog_pb2 import Message
from tests.node.polling import FakeNode


class PeerExchange:
    """A member's request at another one."""

    def __init__(self, message, connection, answered):
        self.message = message
        self.connection = connection
        self.is_over = False
        self.on_end = None
        self._answered = answered

    def answer(self, message, *buffers):
        assert not self.is_over, "answered twice"
        self.is_over = True
        self._answered(SimpleNamespace(message=message, body=memoryview(b"".join(buffers))))

    def fail(self, error):
        assert not self.is_over, "answered twice"
        self.is_over = True
        self._answered(error)


class Members:
    """The other nodes as one of them reaches them."""

    def __init__(self, trio, own):
        self._trio = trio
        self._own = own
        self.sent = []
        self.last = {}  # request to each

    @property
    def incarnations(self):
        return {node.number: "first" for node in self._trio.nodes if node is not self._own and not self._trio.is_cut(self._own, node)}

    def send(self, number, message, *buffers, timeout_ms=0):
        trio, other = self._trio, self._trio.nodes[number - 1]
        if trio.is_cut(self._own, other):
            raise ConnectionLost(address=str(number), why="cut")
        self.sent.append((number, message))
        future = asyncio.get_running_loop().create_future()

        def answered(reply):
            trio.later(lambda: None if future.done() else _settle(future, reply))

        copy = Message.FromString(message.SerializeToString())
        exchange = PeerExchange(copy, (self._own.number, number), answered)
        self.last[number] = exchange
        trio.later(lambda: trio.ask(other, exchange))
        return future


class Trio:
    """Connected nodes with caches of the same options; `chance` decides how long messages take.

    With `copies` below 3 a segment has so many; a fourth node, where there is one, has none and leads nothing.
    """

    def __init__(self, *, seed=0, segments=6, clocks=(0, 0, 0), delay_s=0.0, copies=3, **options):
        self.chance = random.Random(seed)
        self.delay_s = delay_s
        self.copies = copies
        leads = [tuple(range(n, segments, 3)) for n in range(3)] + [()]
        self.nodes = [FakeNode(segments=segments, number=n + 1, leads=leads[n], **options) for n in range(len(clocks))]
        self.cuts = set()
        self.pending = {node.number: [] for node in self.nodes}
        for node, clock in zip(self.nodes, clocks, strict=True):
            node.now_ms += clock
            node.heard = partial(self._heard, node)
            node.members = Members(self, node)
            node.closing.join(node.members)
            node.reads.fetching.join(node.members, copies=self.holders)
            node.reads.place(np.array([node.number in self.holders(segment) for segment in range(segments)]))

    def holders(self, segment):
        """Return the nodes with a copy, the primary first."""
        return [(segment + copy) % 3 + 1 for copy in range(self.copies)]

    def start(self):
        for node in self.nodes:
            node.reads.start()

    async def stop(self):
        for node in self.nodes:
            node.closing.stop()
            await node.reads.stop()

    def cache(self, **options):
        return [node.cache(**options) for node in self.nodes]

    def is_cut(self, one, two):
        return one.number in self.cuts or two.number in self.cuts

    def later(self, act):
        loop = asyncio.get_running_loop()
        loop.call_later(self.chance.uniform(0, self.delay_s), act) if self.delay_s else loop.call_soon(act)

    def ask(self, node, exchange):
        if exchange.message.HasField("close_up"):
            node.closing.asked(exchange)
        else:
            events.give(node, exchange)

    # ------------------------------------------------------------ writing

    def stamp(self, number, contents):
        """Stamp a group at a node without committing it."""
        node = self.nodes[number - 1]
        node.last_id = max(node.last_id, (node.now_ms << 22) - 1)
        return node.stamp((node.caches.find(1), contents))

    def commit(self, number, group):
        """Commit a group at its primary; the others have its values by then, and do not know."""
        for node in self.nodes:
            own = self._part(node, group)
            if node.number != number and own is not None:
                self._store(node, own)
                self.pending[node.number].append((number, own))
        self.nodes[number - 1].commit(group)

    def _part(self, node, group):
        """Return what a node holds of a group."""
        (values,) = group.caches
        rows = [row for row, segment in enumerate(values.segments) if node.number in self.holders(segment)]
        picked = [[column[row] for row in rows] for column in (values.segments, values.bases, values.counts, values.data)]
        own = CacheValues(cache_id=values.cache_id, **dict(zip(("segments", "bases", "counts", "data"), picked, strict=True)))
        return CommittedGroup(first_id=own.bases[0], last_id=last_ids(own)[-1], caches=(own,)) if rows else None

    def write(self, number, contents):
        """Write at a node that leads the segments; the backups hear with it what was committed before."""
        group = self.stamp(number, contents)
        for node in self.nodes:
            if node.number != number:
                self.learn(node, [pair for pair in self.pending[node.number] if pair[0] == number])
        self.commit(number, group)

    def _store(self, node, group):
        for values in group.caches:
            pairs = zip(log_keys(values.segments, values.cache_id, values.bases), values.data, strict=True)
            steps = node.steps.add(values.cache_id, last_ids(values)[-1], sum(values.counts), sum(map(len, values.data)))
            node.store.append(list(pairs), [encode_step(*row) for row in steps])

    def learn(self, node, pairs):
        for pair in pairs:
            self.pending[node.number].remove(pair)
            (values,) = pair[1].caches
            node.reads.learned(np.array(values.segments), np.array(last_ids(values)), [pair[1]])

    def _heard(self, node, promises):
        """Take the named ids as watermarks: as a replica whose log matches does."""
        named = {s: last for promise in promises for s, last in zip(promise.segments.tolist(), promise.last_ids.tolist(), strict=True)}
        for pair in list(self.pending[node.number]):
            number, group = pair
            (values,) = group.caches
            known = [at for at, segment in enumerate(values.segments) if last_ids(values)[at] <= named.get(segment, 0)]
            if len(known) == len(values.segments):
                self.learn(node, [(number, group)])
        node.reads.watermark_rose()


def _settle(future, reply):
    if isinstance(reply, Exception):
        future.set_exception(reply)
    else:
        future.set_result(reply)


def last_ids(values):
    return [base + (max(count, 1) - 1) * 1024 for base, count in zip(values.bases, values.counts, strict=True)]
