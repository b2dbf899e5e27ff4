"""The demo's checks: each finds the one fault it is there for."""

from dataclasses import replace

import pytest

from eventlog_cli.demo.checks import (
    Check,
    SeenEvent,
    TriedWrite,
    check_forgotten,
    check_log,
    check_rest,
    check_same,
    check_state,
    check_stream,
    replay,
)

WRITES = [
    TriedWrite(writer=1, key=b"a", value=b"1", id=10),
    TriedWrite(writer=2, key=b"b", value=b"1", id=11),
    TriedWrite(writer=1, key=b"a", value=b"2", id=12),
    TriedWrite(writer=2, key=b"b", value=b"2", id=None),
    TriedWrite(writer=2, key=b"b", value=None, id=14),
]
LOG = [
    SeenEvent(id=10, key=b"a", value=b"1"),
    SeenEvent(id=11, key=b"b", value=b"1"),
    SeenEvent(id=12, key=b"a", value=b"2"),
    SeenEvent(id=13, key=b"b", value=b"2"),
    SeenEvent(id=14, key=b"b", value=None),
]


def broken(checks: list[Check]) -> list[int]:
    return [index for index, check in enumerate(checks) if not check.is_kept]


def test_a_log_with_all_writes_keeps_every_promise_whatever_became_of_the_unknown_one() -> None:
    assert broken(check_log(WRITES, LOG)) == []
    assert broken(check_log(WRITES, [seen for seen in LOG if seen.id != 13])) == []


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (LOG[:2] + LOG[3:], [0]),  # lost
        ([*LOG, replace(LOG[0], id=15)], [1]),  # twice
        ([*LOG, SeenEvent(id=15, key=b"c", value=b"9")], [2]),  # from nowhere
        ([LOG[1], LOG[0], *LOG[2:]], [3]),  # ids fall
        ([replace(LOG[0], value=b"7"), *LOG[1:]], [0, 2]),  # another value under the id
        ([replace(LOG[0], id=9), *LOG[1:]], [0]),  # another id
    ],
)
def test_each_fault_of_a_log_breaks_the_promise_about_it(log: list[SeenEvent], expected: list[int]) -> None:
    assert broken(check_log(WRITES, log)) == expected


def test_a_writer_whose_later_write_has_a_lower_id_breaks_a_promise() -> None:
    writes = [replace(WRITES[0], id=12), WRITES[1], replace(WRITES[2], id=10), *WRITES[3:]]
    log = [replace(LOG[2], id=10), LOG[1], replace(LOG[0], id=12), *LOG[3:]]
    assert broken(check_log(writes, log)) == [4]


def test_what_was_written_twice_may_be_there_twice() -> None:
    writes = [*WRITES, replace(WRITES[0], id=15)]
    log = [*LOG, replace(LOG[0], id=15)]
    assert broken(check_log(writes, log)) == []
    assert broken(check_log(writes, [*log, replace(LOG[0], id=16)])) == [1]


def test_a_check_on_nothing_is_not_kept() -> None:
    assert not Check(promise="p", checked=0, problems=()).is_kept
    assert broken(check_log([], [])) == [0, 1, 2, 3, 4]


def test_a_replay_keeps_the_last_value_and_drops_what_was_removed() -> None:
    assert replay(LOG) == {b"a": (b"2", 12)}


@pytest.mark.parametrize(
    ("entries", "kept"),
    [
        ({b"a": (b"2", 12)}, True),
        ({b"a": (b"2", 10)}, False),
        ({b"a": (b"1", 12)}, False),
        ({}, False),
        ({b"a": (b"2", 12), b"b": (b"2", 13)}, False),
    ],
)
def test_entries_must_equal_the_replay_in_keys_values_and_versions(entries: dict[bytes, tuple[bytes, int]], kept: bool) -> None:
    assert check_state("c", LOG, entries).is_kept is kept


def test_the_rest_is_what_lies_above_the_id_in_its_order() -> None:
    assert check_rest(11, LOG, LOG[2:]).is_kept
    assert not check_rest(11, LOG, LOG[1:]).is_kept
    assert not check_rest(11, LOG, LOG[3:]).is_kept
    assert not check_rest(11, LOG, [LOG[3], LOG[2], LOG[4]]).is_kept
    assert check_rest(LOG[-1].id, LOG, []).is_kept, "nothing follows the only event of a short file"
    assert not check_rest(0, [], []).is_kept


def test_nodes_that_give_different_events_are_found() -> None:
    log = [SeenEvent(id=number, key=b"k", value=b"%d" % number) for number in range(1, 4)]
    assert check_same("c", {"n1": log, "n2": list(log)}).is_kept
    for other in (log[:2], [*log, log[2]], [log[1], log[0], log[2]]):
        assert check_same("c", {"n1": log, "n2": log, "n3": other}).problems == (f"n3 gives {len(other)} events, n1 3, or they differ",)


@pytest.mark.parametrize("stream", [LOG[1:], [*LOG, LOG[0]], [*LOG[:-1], replace(LOG[-1], value=b"other")]])
def test_a_stream_with_less_more_or_other_rows_than_a_batch_is_found(stream: list[SeenEvent]) -> None:
    assert check_stream(LOG, LOG).is_kept
    assert not check_stream(LOG, stream).is_kept


def test_what_nodes_keep_is_the_end_of_a_longer_log() -> None:
    assert check_forgotten(LOG, LOG[2:]).checked == 2
    assert check_forgotten(LOG, LOG[2:]).is_kept
    assert not check_forgotten(LOG, LOG[1:-1]).is_kept
    assert not check_forgotten(LOG, LOG).is_kept, "nothing was forgotten"
