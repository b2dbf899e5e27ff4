"""The value of a group of one block has the bytes that it has beside others."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.layout import place_seed
from eventlog.batch.stored import Sections, Values, ids_needed, make_values
from eventlog.batch.views import decode_value

SEGMENTS = 4
SEEDS = [place_seed(segment, 9) for segment in range(SEGMENTS)]


def sections(blocks: list[bytes], segments: list[int], *, counts: list[int], producers: list[int], kinds: list[int]) -> Sections:
    return Sections(
        data=b"".join(blocks),
        segments=np.array(segments),
        lengths=np.array([len(block) for block in blocks]),
        counts=np.array(counts),
        bitmaps=np.zeros(len(blocks), np.int64),
        kind_bits=np.array(kinds),
        producers=np.array(producers, np.uint64),
        sequences=np.arange(len(blocks)) + 7,
        submitted=np.array(counts),
    )


def made(given_sections: Sections) -> Values:
    return make_values(
        given_sections,
        base=5 << 40,
        epochs=np.arange(SEGMENTS, dtype=np.uint32) + 3,
        next_offsets=np.arange(SEGMENTS, dtype=np.int64) * 10,
        seeds=SEEDS,
    )


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=5), st.integers(0, SEGMENTS - 2), st.sampled_from([0, 77]))
def test_one_block_alone_and_beside_another(keys, segment, producer):
    block, _ = build_blocks(Columns(kinds=np.zeros(len(keys), np.uint8), keys=keys, values=keys), np.array([len(keys)]))
    lone = made(sections([block], [segment], counts=[len(keys)], producers=[producer], kinds=[1]))
    pair_sections = sections([block, block], [segment, segment + 1], counts=[len(keys)] * 2, producers=[producer, 0], kinds=[1, 1])
    pair = made(pair_sections)
    assert lone.data[0] == pair.data[0]
    assert (lone.bases.tolist(), lone.last_ids.tolist()) == (pair.bases.tolist()[:1], pair.last_ids.tolist()[:1])
    assert pair.last_id == (5 << 40) + (ids_needed(pair_sections) - 1) * 1024
    assert lone.nbytes == len(lone.data[0])
    ranks = np.arange(len(keys))
    assert lone.ids(ranks).tolist() == decode_value(segment, 9, lone.data[0]).ids.tolist()
    assert pair.ids(ranks + len(keys)).tolist() == decode_value(segment + 1, 9, pair.data[1]).ids.tolist()
