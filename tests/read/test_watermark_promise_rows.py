"""Promises as bytes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import BadMessage
from eventlog.read.watermark import PROMISE, Promise, decode_promises, encode_promises

IDS = st.integers(0, (1 << 63) - 1)
ROWS = st.lists(st.tuples(st.integers(0, 4095), st.integers(0, (1 << 32) - 1), IDS), min_size=1, unique_by=lambda row: row[0])


def promise_of(id_, rows):
    columns = [np.array(column, np.int64) for column in zip(*rows, strict=True)]
    return Promise(id=id_, segments=columns[0], epochs=columns[1], last_ids=columns[2])


def plain(promises):
    return sorted((p.id, *row) for p in promises for row in zip(p.segments.tolist(), p.epochs.tolist(), p.last_ids.tolist(), strict=True))


@given(IDS, IDS, ROWS, st.integers(0, 99))
def test_promises_come_back_as_they_were(first, second, rows, share):
    at = len(rows) * share // 100
    promises = [promise_of(id_, own) for id_, own in ((first, rows[:at]), (second, rows[at:])) if own]
    found = decode_promises(encode_promises(promises), segments=4096)
    assert plain(found) == plain(promises)
    assert len(found) == len({promise.id for promise in promises})


def test_nothing_promised_is_no_rows():
    assert decode_promises(encode_promises([]), segments=4) == []


def test_what_cannot_be_is_refused():
    good = encode_promises([promise_of(5, [(1, 1, 3), (2, 1, 4)])])
    assert len(good) == 2 * PROMISE.itemsize
    for bad in (good[:-1], good + good[:24], encode_promises([promise_of(5, [(4, 1, 3)])]), encode_promises([promise_of(-1, [(1, 1, 3)])])):
        with pytest.raises(BadMessage):
            decode_promises(bad, segments=4)
