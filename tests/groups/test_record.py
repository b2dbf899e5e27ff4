import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import BadMessage, CorruptData, InvalidArgument, UnsupportedFormat
from eventlog.groups.coordinator import join
from eventlog.groups.record import (
    CommittedPlace,
    Member,
    Place,
    RecordKey,
    checked_name,
    checked_timeout,
    decode_committed,
    decode_group,
    decode_key,
    decode_places,
    decode_set,
    encode_committed,
    encode_group,
    encode_key,
    encode_places,
    encode_set,
    new_group,
    route_of,
)

PLACES = st.builds(Place, id=st.integers(0, (1 << 63) - 1), next_offset=st.integers(-1, 1 << 62), epoch=st.integers(0, (1 << 32) - 1))
NAMES = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=20)


@given(NAMES, st.integers(0, (1 << 32) - 1), st.sampled_from("gpw"), st.integers(0, 4095))
def test_a_key_says_what_it_was_made_of(group, cache_id, tag, segment):
    key = RecordKey(group=group, cache_id=cache_id, tag=tag, segment=0 if tag == "g" else segment)
    data = encode_key(key)
    assert decode_key(data) == key
    assert data.startswith(route_of(group))


@given(PLACES, st.text(st.characters(exclude_categories=["Cs"]), max_size=50))
def test_a_committed_position_is_read_as_it_was_written(place, metadata):
    committed = CommittedPlace(place=place, generation=3, time_ms=1_800_000_000_000, metadata=metadata)
    assert decode_committed(encode_committed(committed)) == committed


def test_a_group_is_read_as_it_was_written():
    state = new_group(300, mode="read", assignor="owner", start_id=12)
    for number in range(5):
        state = join(state, Member(id=f"m{number}", instance="i" * number, client="c", node=number, timeout_ms=1_000 + number))
    assert decode_group(encode_group(state)) == state
    work = new_group(300, mode="work")
    assert decode_group(encode_group(work)) == work


@pytest.mark.parametrize("data", [b"", b"\xff", b"\x02rest"])
def test_another_version_is_said(data):
    with pytest.raises(UnsupportedFormat):
        decode_group(data)


@pytest.mark.parametrize("data", [b"\x01", b"\x01\xc1", b"\x01" + b"\x80"])
def test_what_is_no_group_is_said(data):
    with pytest.raises(CorruptData):
        decode_group(data)
    with pytest.raises(CorruptData):
        decode_committed(data)


@pytest.mark.parametrize("data", [b"", b"g", b"g\0", b"g\0\0\0\0\1x", b"g\0\0\0\0\1g\0", b"g\0\0\0\0\1p\0"])
def test_what_is_no_key_is_said(data):
    with pytest.raises(CorruptData):
        decode_key(data)


@given(st.integers(1, 300).flatmap(lambda count: st.tuples(st.just(count), st.sets(st.integers(0, count - 1)))))
def test_a_set_of_segments_is_read_as_it_was_written(pair):
    count, segments = pair
    assert decode_set(encode_set(segments, count), count) == segments
    assert decode_set(b"", count) == frozenset()


@given(st.binary(max_size=4))
def test_a_forged_set_is_refused_or_within_bounds(data):
    with contextlib.suppress(BadMessage):
        assert max(decode_set(data, 9), default=0) < 9


@given(st.dictionaries(st.integers(0, 15), PLACES))
def test_places_are_read_as_they_were_written(places):
    data = encode_places(places)
    assert decode_places(data, rows=len(places), count=16) == places
    with pytest.raises(BadMessage):
        decode_places(data + b"x", rows=len(places), count=16)
    if places and max(places):
        with pytest.raises(BadMessage):
            decode_places(data, rows=len(places), count=max(places))


def test_names_and_timeouts_have_bounds():
    assert checked_name("billing: é") == "billing: é"
    for name in ("", "a\0b", "x" * 201, "a\n"):
        with pytest.raises(InvalidArgument):
            checked_name(name)
    assert checked_timeout(10_000) == 10_000
    for timeout_ms in (0, 999, 1 << 40):
        with pytest.raises(InvalidArgument):
            checked_timeout(timeout_ms)
