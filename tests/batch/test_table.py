"""The table of a write: a table of one row says the same as the rows of a longer one."""

import numpy as np
import pytest

from eventlog.batch.layout import TABLE
from eventlog.batch.table import Table, read_table


def rows_of(*rows: tuple[int, int, int]) -> np.ndarray:
    """Return rows of (segment, count, length)."""
    return np.array([(segment, 0, count, length, 7) for segment, count, length in rows], TABLE)


@pytest.mark.parametrize(
    ("rows", "only", "events", "nbytes"),
    [
        (rows_of((0, 1, 64)), 0, 1, 64),
        (rows_of((0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF)), 0xFFFF, 0xFFFF_FFFF, 0xFFFF_FFFF),
        (rows_of((2, 3, 64), (9, 5, 72)), -1, 8, 136),
        (rows_of((2, 0xFFFF_FFFF, 64), (9, 0xFFFF_FFFF, 72)), -1, 0x1_FFFF_FFFE, 136),
    ],
)
def test_a_table_knows_its_segments_events_and_bytes(rows, only, events, nbytes):
    table = Table.of(rows)
    assert (table.only, table.events, table.nbytes, len(table)) == (only, events, nbytes, len(rows))
    assert table.segment_list() == table.segments.tolist() == rows["segment"].tolist()
    assert (table.rows == rows).all()
    assert bytes(table.data) == rows.tobytes()


def test_what_was_read_is_a_view_and_what_lies_behind_it_the_blocks():
    body = rows_of((2, 3, 8), (9, 5, 16)).tobytes() + bytes(range(24))
    table, blocks = read_table(memoryview(body), 2)
    assert table.segment_list() == [2, 9]
    assert bytes(blocks) == bytes(range(24))
    assert isinstance(table.data, memoryview)
    assert table.data.obj is body


@pytest.mark.parametrize(
    ("rows", "blocks", "behind", "why"),
    [
        (rows_of((1, 1, 8)), 0, 8, "does not fit"),
        (rows_of((1, 1, 8)), 2, 8, "does not fit"),
        (rows_of((1, 1, 8)), 1, 9, "do not add up"),
        (rows_of((1, 1, 0xFFFF_FFFF), (2, 1, 9)), 2, 8, "do not add up"),
        (rows_of((1, 1, 4), (1, 1, 4)), 2, 8, "do not rise"),
        (rows_of((2, 1, 4), (1, 1, 4)), 2, 8, "do not rise"),
    ],
)
def test_a_table_that_contradicts_its_body_is_refused(rows, blocks, behind, why):
    with pytest.raises(ValueError, match=why):
        read_table(memoryview(rows.tobytes() + bytes(behind)), blocks)
