"""What is kept of a listener, and which filter an event is for."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import CorruptData, InvalidArgument
from eventlog.groups.listeners import (
    FILTERS_MAX,
    FilterFrom,
    FilterReach,
    ListenerRecord,
    altered,
    checked_listener,
    decode_record,
    encode_record,
    filter_after,
    listener_name,
    listener_of,
    position_key,
    record_key,
)
from eventlog.predicate.spec import FilterSpec


def record(*froms: int) -> ListenerRecord:
    filters = tuple(FilterFrom(from_id=id_, spec=FilterSpec(where=f"id > {id_}", parameters=b"[1]")) for id_ in (0, *froms))
    return ListenerRecord(id="a", cache_id=3, cache="c", filters=filters, durable=True, hold_bytes=5, last_id=7)


def where(found: FilterReach) -> tuple[str, int]:
    return found.spec.where, found.until_id


def test_a_record_is_read_as_it_was_written():
    assert decode_record(encode_record(record(4, 9))) == record(4, 9)
    for data in (b"", b"{}", b"[]", b"\xff"):
        with pytest.raises(CorruptData):
            decode_record(data)


def test_an_event_is_judged_by_the_filter_of_its_time():
    kept = record(10, 20)
    assert where(filter_after(kept, 0)) == ("id > 0", 10)
    assert where(filter_after(kept, 9)) == ("id > 0", 10)
    assert where(filter_after(kept, 10)) == ("id > 10", 20)
    assert where(filter_after(kept, 20)) == ("id > 20", 0)


def test_an_alteration_takes_the_place_of_those_planned_behind_it():
    kept = altered(record(10, 20), FilterSpec(where="new"), from_id=15)
    assert [(found.from_id, found.spec.where) for found in kept.filters] == [(0, "id > 0"), (10, "id > 10"), (15, "new")]
    assert [found.from_id for found in altered(kept, FilterSpec(), from_id=0).filters] == [0]


@given(st.lists(st.integers(0, 1_000), max_size=40), st.integers(0, 1_100))
def test_every_id_has_one_filter_however_often_it_was_altered(froms, after):
    kept = record()
    for number, from_id in enumerate(froms):
        kept = altered(kept, FilterSpec(where=str(number)), from_id=from_id)
    assert len(kept.filters) <= FILTERS_MAX
    assert kept.filters[0].from_id == 0
    starts = [found.from_id for found in kept.filters]
    assert starts == sorted(set(starts))
    found = filter_after(kept, after)
    if froms and after >= froms[-1]:
        assert where(found) == (str(len(froms) - 1), 0)
    assert found.until_id == 0 or found.until_id > after


def test_what_was_asked_for_is_the_same_whenever_it_was():
    one = record()
    assert one.asked_for == msgspec.structs.replace(one, last_id=100, first_id=50).asked_for
    assert one.asked_for != msgspec.structs.replace(one, hold_bytes=6).asked_for


def test_keys_name_the_listener():
    assert listener_of(record_key("a.b")) == ("a.b", True)
    assert listener_of(position_key("a.b")) == ("a.b", False)


@given(st.integers(1, (1 << 63) - 1), st.integers(1, (1 << 63) - 1))
def test_made_up_names_are_as_different_as_their_numbers(one, two):
    assert (listener_name(one) == listener_name(two)) == (one == two)
    assert checked_listener(listener_name(one)) == listener_name(one)


@pytest.mark.parametrize("name", ["", ".a", "a b", "a\0", "é", "a" * 101])
def test_odd_names_are_refused(name):
    with pytest.raises(InvalidArgument):
        checked_listener(name)
