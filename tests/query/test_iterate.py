import sys
from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.entries import StateCursor
from eventlog.errors import BadMessage, InvalidArgument
from eventlog.limits import KEY_BYTES_MAX
from eventlog.query.iterate import IterationProgress, checked_cursor, decode_segments, encode_segments, segments_in
from eventlog.topology import Topology

TOPOLOGY = Topology(epoch=1, primaries=(1, 2, 1, 3), addresses={1: "a:1"})


def test_a_set_of_segments_is_little_endian():
    assert encode_segments([0, 3, 9], of=16) == b"\x09\x02"
    assert decode_segments(b"\x09\x02", of=16) == (0, 3, 9)
    assert decode_segments(b"\x09", of=16) == (0, 3)
    assert decode_segments(b"", of=3) == (0, 1, 2)


@pytest.mark.parametrize("data", [b"\x00", b"\x00\x00", b"\x10", b"\x01\x00"])
def test_a_set_of_no_segments_or_of_strange_ones_is_refused(data):
    with pytest.raises(BadMessage):
        decode_segments(data, of=4)


@given(st.sampled_from([1, 2, 8, 256]), st.data())
def test_sets_come_back_and_whatever_is_sent_is_segments_or_refused(of, data):
    chosen = data.draw(st.sets(st.integers(0, of - 1), min_size=1))
    assert decode_segments(encode_segments(chosen, of=of), of=of) == tuple(sorted(chosen))
    try:
        found = decode_segments(data.draw(st.binary(max_size=40)), of=of)
    except BadMessage:
        return
    assert found
    assert all(0 <= segment < of for segment in found)


@given(
    st.builds(
        StateCursor,
        segment=st.integers(0, 9) | st.integers(0, 1 << 32),
        pin=st.sampled_from([0, 5, (1 << 63) - 1, 1 << 63, 1 << 64]),
        key=st.sampled_from([b"", b"k", bytes(KEY_BYTES_MAX), bytes(KEY_BYTES_MAX + 1)]),
        finished=st.booleans(),
    )
)
def test_cursors_from_outside_are_places_or_refused(cursor):
    is_place = cursor.segment < 8 and cursor.pin < 1 << 63 and len(cursor.key) <= KEY_BYTES_MAX and not (cursor.finished and cursor.key)
    with nullcontext() if is_place else pytest.raises(BadMessage):
        assert checked_cursor(cursor, of=8) is cursor


def test_what_goes_back_or_was_not_asked_for_is_refused():
    progress = IterationProgress([1, 2], [StateCursor(segment=1, key=b"k", pin=5)])
    for bad in (
        StateCursor(segment=0, key=b"k", pin=5),
        StateCursor(segment=1, key=b"k", pin=5),
        StateCursor(segment=1, key=b"l", pin=4),
    ):
        with pytest.raises(BadMessage):
            progress.took([bad])
    progress.took([StateCursor(segment=1, pin=5, finished=True)])
    with pytest.raises(BadMessage):
        progress.took([StateCursor(segment=1, pin=5, finished=True)])


@settings(deadline=None)
@given(st.data())
def test_an_entry_that_stays_is_met_once_however_often_pins_are_lost_and_whatever_is_written(data):
    """Two segments; before each batch keys come and go; sometimes all that is left of the iteration is its cursors."""
    names = [bytes([letter]) for letter in b"abcdefgh"]
    now = {segment: set(data.draw(st.sets(st.sampled_from(names)))) for segment in (0, 1)}
    always = {segment: set(keys) for segment, keys in now.items()}
    pinned: dict[int, tuple[int, set[bytes]]] = {}
    progress = IterationProgress([0, 1])
    seen: list[tuple[int, bytes]] = []
    moment = 0
    while not progress.is_finished:
        moment += 1
        segment, key = data.draw(st.sampled_from([0, 1])), data.draw(st.sampled_from(names))
        now[segment] ^= {key}
        always[segment] -= {key}
        (first, *_), cursor = progress.next
        if cursor is None or data.draw(st.booleans()):
            pinned[first] = (moment, set(now[first]))
        pin, keys = pinned[first]
        rows = sorted(key for key in keys if cursor is None or key > cursor.key)
        batch = rows[: data.draw(st.integers(1, 4))]
        seen += [(first, key) for key in batch]
        is_end = len(batch) == len(rows)
        progress.took([StateCursor(segment=first, pin=pin, key=b"" if is_end else batch[-1], finished=is_end)])
        if data.draw(st.booleans()):
            progress = IterationProgress(progress.left, list(progress.open.values()))
    assert len(seen) == len(set(seen))
    assert {(segment, key) for segment, keys in always.items() for key in keys} <= set(seen)


def test_scopes_are_all_led_named_or_what_a_function_says():
    def scope(name, asked=(0, 1, 2, 3), function=None, parameters=None):
        return segments_in(name, TOPOLOGY, asked=asked, number=1, custom=(function, parameters or {}))

    assert scope("") == scope("global") == (0, 1, 2, 3)
    assert scope("local") == (0, 2)
    assert scope("segments", asked=(1, 3)) == (1, 3)

    def of_node(topology, parameters):
        return [segment for segment, primary in enumerate(topology.primaries) if primary == parameters["node"]]

    assert scope("of-node", function=of_node, parameters={"node": 3}) == (3,)
    assert scope("of-node", asked=(1, 2), function=of_node, parameters={"node": 1}) == (2,)
    with pytest.raises(InvalidArgument):
        scope("nowhere")
    with pytest.raises(InvalidArgument, match=r"^scope 'of-node' with these parameters: KeyError: 'node'$"):
        scope("of-node", function=of_node)
    with pytest.raises(InvalidArgument, match=r"^scope 'ended' with these parameters: SystemExit: 3$"):
        scope("ended", function=lambda _topology, _parameters: sys.exit(3))
    for bad in ([4], [-1], ["x"], [True]):
        with pytest.raises(BadMessage):
            scope("bad", function=lambda _topology, _parameters, bad=bad: bad)
