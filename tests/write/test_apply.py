"""What values do to the state in one pass is what they do one by one."""

import asyncio
import random

from eventlog.batch.sections import heads_of, unfold
from eventlog.batch.views import decode_value
from eventlog.segment.keys import cache_range
from eventlog.state.replay import state_puts
from eventlog.write.apply import puts_of
from tests.node.nodes import SEGMENTS, cache_of, submit, with_node


def test_values_of_all_kinds_do_in_one_pass_what_they_do_one_by_one(tmp_path):
    chance = random.Random(3)

    async def act(node):
        for name, options in {"plain": {}, "without": {"before": False}, "mortal": {"lifespan_ms": 600_000}}.items():
            cache = await cache_of(node, name, **options)
            for _ in range(120):
                waiting = []
                for _ in range(chance.randint(1, 4)):
                    values = [chance.choice([b"", b"value" * chance.randrange(9), None]) for _ in range(chance.randint(1, 9))]
                    rows = [(b"k%d" % chance.randrange(40), value) for value in values]
                    waiting.append(submit(node, cache, rows, version=chance.choice([-1, -1, None])))
                await asyncio.gather(*waiting)
            found = [
                (segment, value)
                for segment in range(SEGMENTS)
                for _, value in node.store.read_log(*cache_range(segment, cache.cache_id), bytes_max=1 << 30)
            ]
            assert len(found) > 100
            one_by_one = [put for segment, value in found for put in state_puts(decode_value(segment, cache.cache_id, value))]
            segments, data = [segment for segment, _ in found], [value for _, value in found]
            assert puts_of(cache.cache_id, segments, data, unfold(data, heads_of(data))) == one_by_one

    with_node(tmp_path, act)
