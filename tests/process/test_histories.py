"""The checker of histories finds what is planted."""

import copy
import dataclasses

import pytest

from tests.process.histories import History, Stored, violations

LOG = [Stored(id=10 * at, segment=at % 2, offset=at // 2, key="k", value=f"w0-{at}") for at in range(1, 9)]
LOG[0:0] = [Stored(id=5, segment=0, offset=0, key="k", value="w0-0")]
LOG = [
    Stored(id=e.id, segment=e.segment, offset=sum(o.segment == e.segment for o in LOG[:at]), key="k", value=e.value)
    for at, e in enumerate(LOG)
]


def operation(value: str, outcome: str, ids: list[int]) -> dict[str, object]:
    return {"values": [value], "began": 1.0, "ended": 2.0, "outcome": outcome, "ids": ids, "error": "CODE" if outcome != "ok" else ""}


def history() -> History:
    operations = [operation(event.value, "ok", [event.id]) for event in LOG]
    operations += [operation("lost", "unknown", []), operation("refused", "none", [])]
    readings = [{"events": [[event.id, event.value] for event in LOG[:number]], "restarts": 0} for number in (0, 4, len(LOG))]
    return History(operations=operations, readings=readings)


def test_a_history_that_fits_its_log_has_no_violation():
    assert violations(history(), LOG) == []


@pytest.mark.parametrize(
    ("log", "why"),
    [
        (LOG[:3] + LOG[4:], "acknowledged and is there 0 times"),
        ([*LOG, LOG[-1]], "is there 2 times"),
        (LOG[:2] + LOG[3:4] + LOG[2:3] + LOG[4:], "do not rise"),
        ([*LOG, Stored(id=999, segment=0, offset=5, key="k", value="refused")], "was refused"),
        ([*LOG, Stored(id=999, segment=0, offset=5, key="k", value="odd")], "nobody wrote it"),
        ([*LOG, Stored(id=999, segment=0, offset=9, key="k", value="lost")], "gaps"),
        ([Stored(id=7, segment=0, offset=0, key="k", value="w0-0"), *LOG[1:]], "has 7"),
    ],
)
def test_what_is_wrong_with_a_log_is_said(log, why):
    assert any(why in sentence for sentence in violations(history(), log)), violations(history(), log)


@pytest.mark.parametrize("change", ["gap", "extra", "order"])
def test_a_reader_that_was_shown_something_else_is_found(change):
    told = history()
    events = copy.deepcopy(told.readings[2]["events"])
    if change == "gap":
        del events[3]
    elif change == "extra":
        events.append([1_000, "w9-9"])
    else:
        events[2], events[3] = events[3], events[2]
    told.readings[2]["events"] = events
    assert any("reader 2" in sentence for sentence in violations(told, LOG))


def test_the_longest_operation_is_measured_without_stalls_of_the_machine():
    assert history().longest_s() == 1.0
    assert dataclasses.replace(history(), stalls=[(0.5, 1.25), (1.5, 1.75), (1.75, 9.0)]).longest_s() == 0.25


def test_operations_in_flight_at_an_instant_are_counted():
    assert history().hit_by([1.5]) == len(history().operations)
    assert history().hit_by([0.5, 2.5]) == 0
    assert history().hit_by([0.99], within_s=0.02) > 0
