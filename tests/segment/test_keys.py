import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import CorruptData
from eventlog.segment import keys

segments = st.integers(0, 4095)
caches = st.integers(0, 2**32 - 1)
ids = st.integers(0, 2**63 - 1)
places = st.tuples(segments, caches, ids)


@given(st.lists(places, max_size=20))
def test_log_keys_sort_as_their_parts_and_come_back(rows):
    packed = [keys.log_key(*row) for row in rows]
    assert [keys.parse_log_key(key) for key in sorted(packed)] == sorted(rows)


@given(places, places)
def test_ranges_hold_exactly_their_own_log_keys(own, other):
    key = keys.log_key(*other)
    lower, upper = keys.segment_range(own[0])
    assert (lower <= key < upper) == (other[0] == own[0])
    lower, upper = keys.cache_range(*own[:2])
    assert (lower <= key < upper) == (other[:2] == own[:2])
    assert lower <= keys.entry_key(own[0], own[1], b"\xff" * 20) < upper
    lower, upper = keys.log_range(own[0], own[1], after=own[2] // 2, upto=own[2])
    assert (lower <= key < upper) == (other[:2] == own[:2] and own[2] // 2 < other[2] <= own[2])


def test_many_log_keys_are_made_like_one():
    assert keys.log_keys([1, 2], 3, [10, 20]) == [keys.log_key(1, 3, 10), keys.log_key(2, 3, 20)]


@given(segments, caches, st.binary(max_size=20), ids)
def test_state_keys_come_back_and_stay_under_their_tag(segment, cache, key, number):
    made = {
        keys.TAG_ENTRY: (keys.entry_key(segment, cache, key), key),
        keys.TAG_EXPIRY: (keys.expiry_key(segment, cache, number, key), number.to_bytes(8) + key),
        keys.TAG_PRODUCER: (keys.producer_key(segment, cache, number), number.to_bytes(8)),
    }
    assert keys.entry_prefix(segment, cache) + key == made[keys.TAG_ENTRY][0]
    for tag, (packed, rest) in made.items():
        assert keys.parse_state_key(packed) == (segment, cache, tag, rest)
        for other in made:
            lower, upper = keys.tag_range(segment, cache, other)
            assert (lower <= packed < upper) == (tag == other)


@given(st.integers(0, 2**63 - 2), st.integers(0, 2**63 - 2), st.binary(max_size=4))
def test_due_expiry_entries_are_one_range(deadline, now, key):
    lower, upper = keys.expiry_range(1, 2, before=now)
    assert (lower <= keys.expiry_key(1, 2, deadline, key) < upper) == (deadline < now)


@given(st.integers(1, 300), st.randoms())
def test_marks_come_back_page_by_page(segments, random):
    ids = np.array([random.randrange(2**63) for _ in range(segments)], np.int64)
    epochs = np.array([random.randrange(2**32) for _ in range(segments)], np.uint32)
    rows = dict(keys.encode_marks(page, ids, epochs) for page in range(-(-segments // keys.MARKS_PER_PAGE)))
    assert sorted(rows) == keys.applied_keys(segments)
    found_ids, found_epochs = keys.decode_marks([rows[key] for key in keys.applied_keys(segments)], segments)
    assert found_ids.tolist() == ids.tolist()
    assert found_epochs.tolist() == epochs.tolist()


def test_a_missing_page_of_marks_is_zeros_and_a_short_one_is_damage():
    key, row = keys.encode_marks(1, np.arange(128), np.ones(128, np.uint32))
    assert key == keys.applied_key(1)
    ids, epochs = keys.decode_marks([None, row], 128)
    assert ids.tolist() == [0] * 64 + list(range(64, 128))
    assert epochs.tolist() == [0] * 64 + [1] * 64
    with pytest.raises(CorruptData, match="page 1"):
        keys.decode_marks([None, row[:-1]], 128)


def test_applied_marks_lie_outside_every_segment():
    assert keys.applied_key(0) >= keys.segment_range(4095)[1]


@given(segments, st.integers(0, 2**32 - 1), ids, st.integers(-1, 2**62))
def test_meta_rows_come_back_and_lie_in_their_ranges_only(segment, number, id_, count):
    epoch = keys.encode_epoch(segment, number, id_, previous=7)
    rows = {
        "epoch": (epoch, keys.decode_epoch, (segment, number, id_, 7), keys.epoch_range(segment)),
        "trim": (keys.encode_trim(number, segment, id_, count), keys.decode_trim, (number, segment, id_, count), keys.trim_range(number)),
        "step": (keys.encode_step(number, id_, count, 7), keys.decode_step, (number, id_, count, 7), keys.step_range(number, upto=id_)),
        "end": (keys.encode_end(segment, id_, number), keys.decode_end, (segment, id_, number), keys.end_range()),
    }
    whole = {"epoch": keys.epoch_range(), "trim": keys.trim_range(), "step": keys.step_range(number), "end": keys.end_range()}
    for name, (pair, decode, facts, own) in rows.items():
        assert decode(pair) == facts
        assert own[0] <= pair[0] < own[1]
        for other, (lower, upper) in whole.items():
            assert (lower <= pair[0] < upper) == (name == other)
        assert not whole[name][0] <= keys.IDENTITY_KEY < whole[name][1]
        with pytest.raises(CorruptData):
            decode((pair[0], pair[1][:-1]))
        with pytest.raises(CorruptData):
            decode((pair[0] + b"x", pair[1]))


@given(ids, ids)
def test_steps_up_to_an_id_are_one_range(step, upto):
    lower, upper = keys.step_range(5, upto=min(upto, 2**63 - 2))
    assert (lower <= keys.encode_step(5, step, 0, 0)[0] < upper) == (step <= min(upto, 2**63 - 2))


@pytest.mark.parametrize("key", [b"", b"x", b"x" * 13, b"x" * 15])
def test_a_key_of_another_size_is_damage(key):
    with pytest.raises(CorruptData):
        keys.parse_log_key(key)
    if len(key) < 7:
        with pytest.raises(CorruptData):
            keys.parse_state_key(key)
