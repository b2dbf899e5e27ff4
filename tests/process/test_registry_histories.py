"""The checker of a registry's histories finds what is planted."""

from dataclasses import replace
from typing import Any

import pytest

from tests.process.registry_histories import Asked, unexplained, violations


def asked(kind: str, began: float, ended: float, answer: Any = None, **more: Any) -> Asked:
    return Asked(kind=kind, began=began, ended=ended, answer=answer, **({"subject": "s"} if kind != "id" else {}) | more)


HISTORY = [
    asked("register", 0, 1, 1, schema=7, id=1),
    asked("register", 0, 3, 2, schema=8, id=2),
    asked("list", 2, 4, (1,)),
    asked("register", 4, 5, 1, schema=7, id=1),
    asked("register", 4, 5, schema=9, code=None),
    asked("list", 6, 7, (1, 2)),
    asked("delete", 8, 9, 1, version=1),
    asked("list", 8.5, 8.7, (1, 2)),
    asked("list", 10, 11, (2, 3)),
    asked("get", 12, 13, (3, 9), version=3, id=3),
    asked("look up", 12, 13, code=40403, schema=7),
    asked("get", 14, 15, (1, 7), version=1, with_deleted=True, id=1),
    asked("id", 14, 15, 7, id=1),
    asked("delete", 16, 17, code=40406, version=1),
    asked("register", 20, 21, 1, subject="t", schema=10, id=4),
    asked("delete subject", 22, 23, (1,), subject="t"),
    asked("delete subject", 24, 25, (1,), subject="t", is_permanent=True),
    asked("id", 24, 26, id=4, code=40403),
    asked("list", 26, 27, subject="t", code=40401, with_deleted=True),
    asked("register", 28, 29, 1, subject="t", schema=10, id=5),
]


def test_a_history_that_holds_has_no_violation():
    assert list(violations(HISTORY)) == []


@pytest.mark.parametrize(
    ("at", "change", "why"),
    [
        pytest.param(1, {"answer": 3}, "no order explains", id="a version with a gap before it"),
        pytest.param(1, {"answer": 1}, "no order explains", id="a version given out twice"),
        pytest.param(3, {"answer": 3}, "no order explains", id="another version for the same schema"),
        pytest.param(5, {"answer": (1,)}, "no order explains", id="an acknowledged version that another node does not list yet"),
        pytest.param(8, {"answer": (1, 2, 3)}, "no order explains", id="a deleted version that another node still lists"),
        pytest.param(8, {"answer": (3,)}, "no order explains", id="an acknowledged version that is lost"),
        pytest.param(9, {"code": 40402, "answer": None, "id": 0}, "no order explains", id="a listed version that cannot be read"),
        pytest.param(10, {"code": 0, "answer": 1}, "no order explains", id="a deleted version that is found by its schema"),
        pytest.param(13, {"code": 40402}, "no order explains", id="a refusal that says that a deleted version was never there"),
        pytest.param(18, {"code": 0, "answer": (1,)}, "no order explains", id="a removed version that is still listed"),
        pytest.param(19, {"answer": 2}, "no order explains", id="a number that goes on although the subject was removed"),
        pytest.param(3, {"id": 2}, "schema 7 has the ids 1 and 2", id="two ids for one schema"),
        pytest.param(3, {"id": 2}, "id 2 is that of schema 8 and of schema 7", id="one id for two schemas"),
        pytest.param(
            12, {"code": 40403, "answer": None}, "id 1 was answered, and then not known", id="a node that does not know an id yet"
        ),
        pytest.param(19, {"id": 6}, "ids [5] were given to nothing", id="a gap in the ids"),
        pytest.param(
            17, {"began": 15, "ended": 15.5, "id": 3}, "id 3 was answered, and then", id="an id that is missing where nothing is removed"
        ),
        pytest.param(12, {"code": 50001, "answer": None}, "a code that nobody may be answered", id="an error that is none of the registry"),
    ],
)
def test_an_answer_that_cannot_be_is_found(at: int, change: dict[str, object], why: str):
    history = [*HISTORY[:at], replace(HISTORY[at], **change), *HISTORY[at + 1 :]]
    assert any(why in sentence for sentence in violations(history))


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (asked("register", 30, 31, 1, subject="t", schema=10, id=4), "after it had 5"),
        (asked("id", 30, 31, 10, id=4), "id 4 is there again"),
        (asked("list", 30, 31, (2,)), "no order explains"),
    ],
    ids=["a removed id that comes back", "a missing id that is found later", "a change of unknown outcome that is taken back"],
)
def test_an_answer_that_contradicts_an_earlier_one_is_found(row: Asked, why: str):
    assert any(why in sentence for sentence in violations([*HISTORY, row]))


def test_an_unanswered_change_may_have_been_done_late_or_never():
    rows = [asked("register", 0, 1, schema=5, code=None), asked("list", 2, 3, code=40401)]
    assert unexplained(rows) == ""
    late = [*rows, asked("register", 4, 5, 1, schema=6), asked("list", 6, 7, (1, 2))]
    assert unexplained(late) == ""
    assert unexplained([*late, asked("get", 8, 9, (2, 4), version=2)])


def test_a_request_is_never_placed_before_its_begin():
    rows = [asked("list", 0, 1, (1,)), asked("register", 2, 3, 1, schema=5)]
    assert "list" in unexplained(rows)
    assert unexplained([replace(rows[0], ended=2.5), rows[1]]) == ""
