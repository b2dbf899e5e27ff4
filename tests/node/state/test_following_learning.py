"""What many values say of their producers, learnt in one pass, is what they say one by one."""

import asyncio
import random

import numpy as np

from eventlog.batch.sections import heads_of, unfold
from eventlog.batch.views import decode_value
from eventlog.hashing import hash_key
from eventlog.node.state.following import learn_values
from eventlog.segment.keys import cache_range
from eventlog.state.producers import ProducerTable
from tests.node.nodes import SEGMENTS, cache_of, submit, with_node


def test_a_pass_over_values_of_all_kinds_learns_what_each_of_them_says(tmp_path):
    chance = random.Random(7)

    async def act(node):
        cache = await cache_of(node)
        sequences: dict[tuple[int, int], int] = {}
        for _ in range(150):
            waiting = []
            for producer in chance.sample([11, 12, 13], chance.randint(1, 3)):
                key = b"k%d" % chance.randrange(20)
                segment = hash_key(key) >> (64 - (SEGMENTS - 1).bit_length())
                sequence = sequences.get((producer, segment), 0)
                sequences[producer, segment] = sequence + 1
                value = chance.choice([b"v", None])
                version = chance.choice([-1, -1, 0])
                waiting.append(
                    submit(node, cache, [(key, value)] * chance.randint(1, 3), producer=producer, sequence=sequence, version=version)
                )
            await asyncio.gather(*waiting)
        slow, fast = ProducerTable(SEGMENTS), ProducerTable(SEGMENTS)
        for segment in range(SEGMENTS):
            data = [value for _, value in node.store.read_log(*cache_range(segment, cache.cache_id), bytes_max=1 << 30)]
            for value in data:
                slow.learn(decode_value(segment, cache.cache_id, value))
            learn_values(fast, unfold(data, heads_of(data)), segments=np.full(len(data), segment), cache_id=cache.cache_id, data=data)
            assert sorted(slow.export(segment)) == sorted(fast.export(segment)) == sorted(cache.producers.export(segment))
        assert len(fast) == 3

    with_node(tmp_path, act)
