"""LIKE, against a regular expression of the same meaning; and in time that does not explode."""

import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import BadPredicate
from eventlog.predicate.like import like
from tests.predicate.rows import compiled


def expression(pattern: str, escape: str) -> str:
    made, characters = "", iter(pattern)
    for character in characters:
        if escape and character == escape:
            made += re.escape(next(characters, escape))
        else:
            made += {"%": ".*", "_": "."}.get(character, re.escape(character))
    return made


@given(st.text("ab%_!\n", max_size=9), st.lists(st.text("ab%_!\n", max_size=9), max_size=6), st.sampled_from(["", "!"]))
def test_a_pattern_matches_what_its_expression_does(pattern, texts, escape):
    found = like(pattern, escape=escape, ignore_case=False)
    wanted = re.compile(expression(pattern, escape), re.DOTALL)
    for text in [*texts, pattern, pattern.replace("%", "ab").replace("_", "a")]:
        assert found.matches(text) == (wanted.fullmatch(text) is not None)
        if found.matches(text):
            assert text.startswith(found.prefix)
            assert found.longest in text
            assert not found.is_exact or text == found.prefix
        assert not (found.is_prefix and text.startswith(found.prefix)) or found.matches(text)


def test_case_is_ignored_where_it_is_asked_for():
    found = like("AB%c_", escape="", ignore_case=True)
    assert found.matches("abxxCd")
    assert found.prefix == found.longest == ""
    assert not found.matches("abxxd")


DOTTED, ALPHA, SIGMA, SMALL, LAST = "\u0130", "\u0391", "\u03a3", "\u03c3", "\u03c2"


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        *(("_", DOTTED), (DOTTED, DOTTED), ("a_b", f"A{DOTTED}B")),
        *((f"%{SMALL}", ALPHA + SIGMA), (f"_{LAST}", ALPHA + SIGMA), (f"{ALPHA}{SIGMA}%", f"{ALPHA}{LAST} x")),
    ],
)
def test_a_character_is_one_character_in_any_case(pattern, text):
    assert like(pattern, escape="", ignore_case=True).matches(text)


def test_no_character_becomes_several():
    found = like("_", escape="", ignore_case=True)
    assert all(found.matches(chr(number)) for number in range(sys.maxunicode + 1))


def test_a_pattern_that_would_take_long_is_refused():
    with pytest.raises(BadPredicate, match="between two %"):
        compiled("value.a LIKE ?", parameters=["%" + "a_" * 40 + "%"])
    compiled("value.a LIKE ?", parameters=["a_" * 400 + "%" + "a_" * 20 + "%" + "b" * 400 + "%"])


@pytest.mark.parametrize("pattern", ["%a" * 100 + "b", "%_a%_a" * 50 + "b", "a%" * 300, "_%" * 300])
@pytest.mark.timeout(20)
def test_no_pattern_takes_long(pattern):
    like(pattern, escape="", ignore_case=False).matches("a" * 20_000)
