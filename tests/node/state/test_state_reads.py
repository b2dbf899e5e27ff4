"""One batch of entries out of a snapshot, against a model."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.entries import encode_entry, read_state_part
from eventlog.node.state.state_reads import ScanPace, StateScan, scan_ahead
from eventlog.segment.keys import entry_key, expiry_key, producer_key
from eventlog.segment.memory import open_store
from tests.examples import examples

KEYS = st.binary(max_size=3)
ORDERS = st.permutations(range(4))
PREFIXES = [b"", b"\xff", b"a"]
ENTRIES = st.dictionaries(st.tuples(st.integers(0, 3), KEYS), st.sampled_from([b"", b"no", b"yes", b"yes" * 30]), max_size=40)


class Yes:
    """A filter: values that begin with yes."""

    def mask(self, events):
        return events.values.starts_with(b"yes")

    def project(self, events):
        del events


def snapshot_of(entries):
    store = open_store("", segments=4)
    store.apply(
        [(entry_key(segment, 1, key), encode_entry(7 + index, value)) for index, ((segment, key), value) in enumerate(entries.items())]
    )
    around = [(entry_key(segment, cache, b"x"), encode_entry(1, b"yes")) for segment in range(4) for cache in (0, 2)]
    store.apply([*around, *((expiry_key(segment, 1, 5, b"x"), b"") for segment in range(4)), (producer_key(1, 1, 9), b"row")])
    return store.snapshot()


def rows_of(batch):
    found = []
    for part in batch.parts:
        read = read_state_part(memoryview(b"".join(part.buffers)), entries=part.entries, runs=part.runs)
        segments = [int(segment) for segment, count in zip(read.segments, read.counts, strict=True) for _ in range(count)]
        found += list(zip(segments, read.block.keys.to_list(), read.block.values.to_list(), strict=True))
    return found


PACES = [ScanPace(chunk_rows=2), ScanPace(chunk_rows=3, chunk_bytes=40), ScanPace()]


@pytest.mark.parametrize("pace", PACES)
@settings(max_examples=examples(150), deadline=None)
@given(
    ENTRIES, st.integers(1, 9), st.integers(1, 120), st.integers(1, 4), st.booleans(), st.sampled_from(PREFIXES), st.permutations(range(4))
)
def test_batches_that_follow_each_other_are_all_entries_once_within_their_bounds(
    pace, entries, rows, nbytes, batches, is_filtered, prefix, order
):
    snapshot, left, after, found = snapshot_of(entries), list(order), None, []
    pins = {segment: 100 + segment for segment in left}
    while left:
        made = scan_ahead(
            StateScan(
                snapshot=snapshot,
                cache_id=1,
                segments=left,
                after=after,
                prefix=prefix,
                pins=pins,
                filter=Yes() if is_filtered else None,
                entries_max=rows,
                bytes_max=nbytes,
                metadata=True,
                pace=pace,
            ),
            batches=batches,
        )
        assert 1 <= len(made) <= batches
        for batch in made:
            own = rows_of(batch)
            assert len(own) == batch.entries <= rows
            assert len(own) <= 1 or sum(len(key) + len(value) for _, key, value in own) <= nbytes
            assert batch.cursors, "it got on"
            found += own
            after = None
            for cursor in batch.cursors.values():
                assert cursor.pin == pins[cursor.segment]
                if cursor.finished:
                    assert cursor.segment == left.pop(0)
                else:
                    assert cursor.segment == left[0]
                    after = cursor.key
    wanted = [(segment, key, value) for (segment, key), value in entries.items() if key.startswith(prefix)]
    wanted = [row for row in wanted if not is_filtered or row[2].startswith(b"yes")]
    assert found == sorted(wanted, key=lambda row: (order.index(row[0]), row[1]))


@pytest.mark.parametrize("pace", PACES)
@settings(max_examples=examples(50), deadline=None)
@given(st.integers(1, 9), st.integers(0, 200))
def test_only_the_last_batch_read_ahead_begins_above_the_bound(pace, rows, ahead_bytes):
    entries = {(0, bytes([key])): b"yes" * 9 for key in range(40)}
    made = scan_ahead(
        StateScan(
            snapshot=snapshot_of(entries),
            cache_id=1,
            segments=[0],
            after=None,
            prefix=b"",
            pins={0: 5},
            filter=None,
            entries_max=rows,
            bytes_max=1 << 20,
            metadata=False,
            pace=replace(pace, ahead_bytes=ahead_bytes),
        ),
        batches=99,
    )
    assert all(batch.entries == rows for batch in made[:-1]), "each is as large as asked for"
    assert sum(batch.nbytes for batch in made[:-2]) < max(ahead_bytes, 1)
    assert sum(batch.nbytes for batch in made) >= min(ahead_bytes, 40 * 28)
