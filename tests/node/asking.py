"""Asking a fake node as a client would: one scenario a test."""

import random

from eventlog.node.handlers import events
from tests import loops
from tests.node.polling import FakeNode, poll_exchange, rows_of_answer


def run(scenario, **options):
    """Run a scenario with a started node; afterwards nothing waits and the bounds held."""

    async def main():
        node = FakeNode(**options)
        node.reads.start()
        try:
            await scenario(node)
        finally:
            await node.reads.stop()
        for name, (used, limit, peak) in node.reads.figures().items():
            assert used <= peak, name
            assert peak <= limit, name

    loops.run(main())


async def ask(node, **fields):
    """Poll once; return the answer's message and its events."""
    exchange = poll_exchange(**fields)
    events.poll(node, exchange)
    answer, body = await exchange.until()
    return answer, rows_of_answer(answer, body, fields.get("cache_id", 1))


async def read_all(node, **fields):
    """Poll to the end; return the last answer and all events."""
    found = []
    while True:
        answer, rows = await ask(node, **fields)
        found += rows
        if answer.end:
            return answer, found
        fields = {name: value for name, value in fields.items() if name not in {"after", "from_time_ms", "earliest"}}
        fields |= {"position": answer.position}


def waiting(node, **fields):
    """Begin a long poll and return its exchange."""
    exchange = poll_exchange(**{"wait_ms": 30_000} | fields)
    events.poll(node, exchange)
    return exchange


def fill(node, cache, groups, *, seed=1, other=None):
    chance = random.Random(seed)
    for index in range(groups):
        of = chance.sample(range(node.segments), chance.randint(1, node.segments))
        contents = {segment: [b"%d/%d" % (index, n) for n in range(chance.choice((0, 1, 1, 4)))] for segment in of}
        parts = [(cache, contents)]
        if other is not None and chance.random() < 0.5:
            parts.append((other, {chance.randrange(node.segments): [b"other"]}))
        node.write(*parts)
        node.now_ms += chance.choice((0, 0, 1))


def by_id(rows):
    return sorted(rows, key=lambda row: row.id)


def position_of(node, at, **changes):
    from eventlog.read.position import Position

    return Position(**{"cluster": node.cluster, "cache_id": 1, "segments": node.segments, "at": at} | changes)
