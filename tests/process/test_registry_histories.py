"""The checker of a registry's histories finds what is planted."""

from dataclasses import replace

import pytest

from tests.process.registry_histories import Asked, violations

HISTORY = [
    Asked(kind="register", subject="s", schema="A", began=0, ended=1, answer={"id": 1, "version": 1}),
    Asked(kind="register", subject="s", schema="B", began=0, ended=3, answer={"id": 2, "version": 2}),
    Asked(kind="register", subject="s", schema="A", began=4, ended=5, answer={"id": 1, "version": 1}),
    Asked(kind="register", subject="s", schema="C", began=4, ended=5),
    Asked(kind="list", subject="s", began=2, ended=4, answer=[1]),
    Asked(kind="list", subject="s", began=6, ended=7, answer=[1, 2]),
    Asked(kind="delete", subject="s", version=1, began=8, ended=9, answer=1),
    Asked(kind="list", subject="s", began=8.5, ended=8.7, answer=[1, 2]),
    Asked(kind="list", subject="s", began=10, ended=11, answer=[2, 3]),
]
FINAL = {"s": {1: 1, 2: 2, 3: 3}}


def test_a_history_that_holds_has_no_violation():
    assert list(violations(HISTORY, FINAL)) == []


@pytest.mark.parametrize(
    ("at", "change", "why"),
    [
        (2, {"answer": {"id": 2, "version": 2}}, "has the ids 1 and 2"),
        (2, {"schema": "D"}, "two schemas have one id"),
        (1, {"answer": {"id": 2, "version": 3}}, "is not there"),
        (5, {"answer": [1]}, "then not known"),
        (8, {"answer": [1, 2, 3]}, "then known"),
    ],
)
def test_an_answer_that_cannot_be_is_found(at: int, change: dict[str, object], why: str):
    history = [*HISTORY[:at], replace(HISTORY[at], **change), *HISTORY[at + 1 :]]
    assert any(why in sentence for sentence in violations(history, FINAL))


@pytest.mark.parametrize(("final", "why"), [({"s": {1: 1, 2: 2, 3: 4}}, "ids have gaps"), ({"s": {1: 1, 2: 2, 4: 3}}, "versions of s")])
def test_gaps_are_found(final: dict[str, dict[int, int]], why: str):
    assert any(why in sentence for sentence in violations(HISTORY, final))
