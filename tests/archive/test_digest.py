"""A digest of events: the same however they lie in chunks, and the same as that of archives which are there."""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from xxhash import xxh3_64

from eventlog.client.reading.frames import TIME
from eventlog.integrations.archive.columns import rows_in_order
from eventlog.integrations.archive.digest import digest_of, digests_of

KNOWN = 14434116815381874280


def events(count: int) -> pa.Table:
    """Return events of some segments, some of them without a value, or with headers."""
    rows = range(count)
    columns: dict[str, Any] = {
        "segment": pa.array([row * 5 // count for row in rows], pa.int32()),
        "id": pa.array([row * 7 for row in rows], pa.int64()),
        "time": pa.array([row * 1_000 for row in rows], pa.int64()).cast(TIME),
        "key": pa.array([f"k{row % 9} ä" for row in rows], pa.string()),
        "value": pa.array([None if row % 4 == 1 else "x" * (row % 11) for row in rows], pa.string()),
        "before": pa.array([bytes(row % 3) if row % 5 else None for row in rows], pa.binary()),
        "headers": pa.array(
            [None if row % 6 == 5 else [(f"h{place}", bytes(place)) for place in range(row % 3)] for row in rows],
            pa.map_(pa.string(), pa.binary()),
        ),
    }
    return pa.table(columns)


TABLE = events(200)


def cut(table: pa.Table, places: list[int]) -> pa.Table:
    """Return the same rows, in chunks that begin at places, each with buffers of its own or not."""
    bounds = [0, *sorted(places), len(table)]
    parts = [table.slice(low, high - low) for low, high in pairwise(bounds)]
    return pa.concat_tables([part if place % 2 else pa.table(part.to_pydict(), schema=part.schema) for place, part in enumerate(parts)])


def test_it_is_what_it_was_when_archives_were_written() -> None:
    assert digest_of(TABLE) == KNOWN


@settings(deadline=None)
@given(st.lists(st.integers(0, len(TABLE)), max_size=20))
def test_it_is_the_same_however_rows_lie_in_chunks(places: list[int]) -> None:
    found = cut(TABLE, places)
    assert digest_of(found) == digest_of(TABLE)
    assert digests_of(found.slice(30, 90)) == digests_of(TABLE.slice(30, 90))


def test_more_than_2_gib_of_a_column_have_a_digest_and_are_put_in_order() -> None:
    values = [pa.array([name * (64 << 20)]) for name in ("a", "b")]
    count = 34  # of 64 MiB each
    large = pa.table({"segment": pa.array([3] * count, pa.int32()), "value": pa.chunked_array([values[row % 2] for row in range(count)])})
    digest = xxh3_64(np.full(count, 3, np.int32).tobytes() + np.full(count, 64 << 20, np.int32).tobytes())
    for row in range(count):
        digest.update(values[row % 2][0].as_buffer())
    assert digests_of(large) == {3: (count, digest.intdigest())}
    turned = rows_in_order(large, np.arange(count)[::-1])
    assert [value.as_buffer()[:1].to_pybytes() for value in turned.column("value")] == [b"b", b"a"] * (count // 2)


@given(st.permutations(range(30)), st.sampled_from([0, 1 << 30]))
def test_rows_are_put_in_order_whether_they_are_many_bytes_or_few(order: list[int], bytes_max: int) -> None:
    found = rows_in_order(TABLE.slice(0, 30), np.array(order), taken_bytes_max=bytes_max)
    assert found.to_pylist() == [TABLE.slice(row, 1).to_pylist()[0] for row in order]


def test_a_chunk_a_row_is_as_one_chunk() -> None:
    found = cut(TABLE, list(range(1, len(TABLE))))
    assert found.column("value").num_chunks == len(TABLE)
    assert digest_of(found) == digest_of(TABLE)
