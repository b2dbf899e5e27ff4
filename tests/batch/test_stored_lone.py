"""The value of a group in one segment has the bytes that it has beside others, wherever its blocks lie."""

from dataclasses import replace

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


@st.composite
def groups(draw):
    """Blocks in segments that rise, and what `sections` takes with them."""
    segments = sorted(draw(st.lists(st.integers(0, SEGMENTS - 2), min_size=1, max_size=5)))
    counts = [draw(st.integers(1, 4)) for _ in segments]
    keys = [[b"k%d" % number] * count for number, count in enumerate(counts)]
    blocks = [build_blocks(Columns(kinds=np.zeros(len(own), np.uint8), keys=own, values=own), np.array([len(own)]))[0] for own in keys]
    producers = [draw(st.sampled_from([0, 77])) for _ in segments]
    return blocks, segments, {"counts": counts, "producers": producers, "kinds": [1] * len(segments)}


@given(groups())
def test_blocks_of_one_segment_alone_and_beside_another(group):
    blocks, _, rest = group
    alone = made(sections(blocks, [1] * len(blocks), **rest))
    beside = {name: [*of_blocks, of_blocks[0]] for name, of_blocks in rest.items()}
    pair = made(sections([*blocks, blocks[0]], [*[1] * len(blocks), 2], **beside))
    assert alone.data == pair.data[:1]
    assert (alone.counts.tolist(), alone.segments.tolist()) == (pair.counts.tolist()[:1], [1])
    assert alone.last_id == pair.last_ids.tolist()[0]


@given(groups(), st.randoms(use_true_random=False))
def test_blocks_may_lie_in_any_order(group, chance):
    blocks, segments, rest = group
    ordered = sections(blocks, segments, **rest)
    places = list(range(len(blocks)))
    chance.shuffle(places)
    data = b"".join(blocks[place] for place in places)
    starts = np.zeros(len(blocks), np.int64)
    starts[places] = np.cumsum([0, *[len(blocks[place]) for place in places[:-1]]])
    assert made(replace(ordered, data=data, starts=starts)).data == made(ordered).data
