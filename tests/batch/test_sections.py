"""Many stored values seen at once are what they are one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_blocks
from eventlog.batch.layout import HAS_PRODUCERS, PRODUCER, ValueHead, encode_value
from eventlog.batch.marks import ABSENT
from eventlog.batch.sections import heads_of, unfold
from eventlog.batch.views import decode_value
from eventlog.ids import ID_STEP

EVENT = st.tuples(st.integers(0, 3), st.binary(min_size=1, max_size=9), st.binary(max_size=20), st.booleans())
SECTIONS = st.lists(st.lists(EVENT, min_size=1, max_size=5), max_size=4)


def value_of(sections, *, base: int, producers: bool, ragged: bool) -> bytes:
    blocks, rows, outcomes, first = [], [], b"", 0
    for number, events in enumerate(sections):
        mortal = events[0][3]
        columns = Columns(
            kinds=np.array([kind for kind, *_ in events], np.uint8),
            keys=[key for _, key, *_ in events],
            values=[value for _, _, value, _ in events],
            expiry=np.arange(1, len(events) + 1) if mortal else None,
        )
        blocks.append(bytes(build_blocks(columns, np.array([len(events)]))[0]))
        is_ragged = ragged and number == 0
        rows.append((7 + number % 2, number, first, len(events), len(events) + is_ragged))
        if is_ragged:
            outcomes += bytes([kind for kind, *_ in events]) + bytes([ABSENT])
        first += len(events)
    table = np.array(rows, PRODUCER).tobytes() + outcomes + bytes(-len(outcomes) % 8) if producers else b""
    head = ValueHead(
        flags=HAS_PRODUCERS if producers and rows else 0,
        sections=len(blocks),
        epoch=1,
        count=first,
        bitmap=int(any(events[0][3] for events in sections)),
        kinds=0,
        producers=len(rows) if producers else 0,
        base=base,
        first_offset=0,
    )
    return encode_value(head, segment=3, cache=9, sections=blocks, producers=table if rows else b"")


@given(st.lists(st.tuples(SECTIONS, st.booleans(), st.booleans()), min_size=1, max_size=6))
def test_sections_rows_and_kinds_are_those_of_each_value(given_values):
    data = [
        value_of(sections, base=(place + 1) * 1_000 * ID_STEP, producers=p, ragged=r) for place, (sections, p, r) in enumerate(given_values)
    ]
    unfolded = unfold(data, heads_of(data))
    counts, bases, kinds, rows, of_value, of_row = [], [], [], [], [], []
    for place, value in enumerate(data):
        decoded = decode_value(3, 9, value)
        is_ragged = any(row.outcomes is not None for row in decoded.producers)
        assert bool(unfolded.is_ragged[place]) == is_ragged
        if is_ragged:
            continue
        at = 0
        for block in decoded.blocks:
            counts.append(block.count)
            bases.append(int(decoded.ids[at]))
            kinds += block.kinds.tolist()
            of_value.append(place)
            at += block.count
        rows += [(row.producer, row.sequence, row.first, row.count, row.submitted) for row in decoded.producers]
        of_row += [place] * len(decoded.producers)
    assert unfolded.counts.tolist() == counts
    assert unfolded.bases.tolist() == bases
    assert unfolded.kinds().tolist() == kinds
    assert unfolded.value.tolist() == of_value
    assert unfolded.rows.tolist() == rows
    assert unfolded.row_value.tolist() == of_row
