"""Every decision is whole, and the places and tests it names are there."""

import re
from typing import NamedTuple

import pytest

from tests.docs.pages import TOP

pytestmark = pytest.mark.source

PARTS = ("Answer", "Reason", "Place", "Test", "Not taken")
OPEN_QUESTIONS = 7  # of designs of this kind; they come first
_HEADING = re.compile(r"^## (\d+)\. (.+)\n", re.MULTILINE)
_PART = re.compile(r"^- \*\*([\w ]+):\*\* (.*?)(?=^- \*\*|\Z)", re.MULTILINE | re.DOTALL)


class Decision(NamedTuple):
    number: int
    question: str
    parts: dict[str, str]


def decisions() -> list[Decision]:
    pieces = _HEADING.split((TOP / "docs" / "decisions.md").read_text())[1:]
    return [
        Decision(int(number), question, {name: text.strip() for name, text in _PART.findall(body)})
        for number, question, body in zip(pieces[::3], pieces[1::3], pieces[2::3], strict=True)
    ]


DECISIONS = decisions()


def test_decisions_are_numbered_one_after_the_other():
    assert [decision.number for decision in DECISIONS] == list(range(1, len(DECISIONS) + 1))
    assert len(DECISIONS) > OPEN_QUESTIONS


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda decision: str(decision.number))
def test_a_decision_is_whole(decision: Decision):
    assert decision.question.endswith("?")
    assert tuple(decision.parts) == PARTS
    assert all(decision.parts.values())


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda decision: str(decision.number))
def test_its_places_are_there(decision: Decision):
    places = re.findall(r"`([^`]+)`", decision.parts["Place"])
    assert places
    assert [place for place in places if not (TOP / place).is_file()] == []


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda decision: str(decision.number))
def test_its_test_is_there(decision: Decision):
    tests = re.findall(r"`([^`:]+)::(\w+)`", decision.parts["Test"])
    assert tests
    for file, name in tests:
        assert re.search(rf"^ *(?:async )?def {name}\(", (TOP / file).read_text(), re.MULTILINE), f"{file} has no {name}"
