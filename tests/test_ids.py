"""Flake ids: layout, golden vectors, runs."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import InvalidArgument
from eventlog.ids import EPOCH_MS, ID_MAX, ID_STEP, TIME_MS_MAX, decode_id, id_before, id_fields, last_of_run, make_id, time_of

GOLDEN = json.loads((Path(__file__).parent / "golden" / "ids.json").read_text())

times = st.integers(EPOCH_MS, TIME_MS_MAX)
sequences = st.integers(0, 4095)
nodes = st.integers(0, 1023)
ids = st.integers(0, ID_MAX)


@pytest.mark.parametrize("row", GOLDEN["ids"], ids=lambda row: row["id"])
def test_an_id_is_made_and_decoded_as_the_golden_vectors_say(row):
    assert make_id(row["time_ms"], row["sequence"], row["node"]) == int(row["id"])
    assert decode_id(int(row["id"])) == (row["time_ms"], row["sequence"], row["node"])


@pytest.mark.parametrize("row", GOLDEN["before"], ids=lambda row: str(row["time_ms"]))
def test_the_last_id_before_a_time_is_as_the_golden_vectors_say(row):
    assert id_before(row["time_ms"]) == int(row["id"])


@pytest.mark.parametrize("row", GOLDEN["runs"], ids=lambda row: str(row["count"]))
def test_a_run_ends_as_the_golden_vectors_say(row):
    assert last_of_run(int(row["base"]), row["count"]) == int(row["last"])


def test_the_largest_id_has_all_bits_but_the_sign():
    assert make_id(TIME_MS_MAX, 4095, 1023) == ID_MAX == (1 << 63) - 1


@given(times, sequences, nodes)
def test_decoding_gives_back_what_an_id_was_made_of(time_ms, sequence, node):
    made = make_id(time_ms, sequence, node)
    assert decode_id(made) == (time_ms, sequence, node)
    assert time_of(made) == time_ms


@given(ids)
def test_every_id_is_made_of_what_it_decodes_to(event_id):
    assert make_id(*decode_id(event_id)) == event_id


@given(times, times, sequences, nodes)
def test_ids_sort_by_time_first(one, other, sequence, node):
    assert (one < other) == (make_id(one, 4095 - sequence, 1023 - node) < make_id(other, sequence, node)) or one == other


@given(times)
def test_the_last_id_before_a_time_lies_right_below_all_ids_of_that_time(time_ms):
    assert id_before(time_ms) == max(make_id(time_ms, 0, 0) - 1, 0)


@given(times, sequences, nodes, st.integers(1, 100_000))
def test_ids_of_a_run_keep_their_node_and_carry_into_the_time(time_ms, sequence, node, count):
    base = make_id(time_ms, sequence, node)
    last = last_of_run(base, count)
    carried = (time_ms - EPOCH_MS) * 4096 + sequence + count - 1
    assert (last >> 10, last & 1023) == (carried, node)
    assert last - base == (count - 1) * ID_STEP


@pytest.mark.parametrize(
    ("time_ms", "sequence", "node"),
    [(EPOCH_MS - 1, 0, 0), (TIME_MS_MAX + 1, 0, 0), (EPOCH_MS, -1, 0), (EPOCH_MS, 4096, 0), (EPOCH_MS, 0, -1), (EPOCH_MS, 0, 1024)],
)
def test_parts_that_do_not_fit_are_refused(time_ms, sequence, node):
    with pytest.raises(InvalidArgument):
        make_id(time_ms, sequence, node)


@pytest.mark.parametrize("event_id", [-1, ID_MAX + 1])
def test_what_is_no_id_is_not_decoded(event_id):
    with pytest.raises(InvalidArgument):
        decode_id(event_id)


def test_every_id_stands_again_as_text() -> None:
    assert id_fields(id=1 << 60, version=None) == {"id": 1 << 60, "id_str": str(1 << 60), "version": None}
