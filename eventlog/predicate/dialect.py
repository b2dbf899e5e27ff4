"""SQL as predicates may use it: text -> the parser's tree, with everything refused beforehand that the parser is slow or lax about.

The parser takes any SQL, and time exponential in the depth of some of it. So its tokens are looked at first: only those that a
predicate can have, so many, so deep, and a parenthesis only behind a function that there is.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import ClassVar

from sqlglot import Token, TokenType, exp, parser, tokens
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from eventlog.errors import BadPredicate
from eventlog.limits import WHERE_CHARACTERS_MAX, WHERE_DEPTH_MAX, WHERE_TOKENS_MAX
from eventlog.predicate.functions import FUNCTIONS, ROWS

_OPERATORS = frozenset(
    {
        TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE, TokenType.PLUS, TokenType.DASH,
        TokenType.STAR, TokenType.SLASH, TokenType.MOD, TokenType.DPIPE, TokenType.DCOLON, TokenType.COMMA, TokenType.DOT,
        TokenType.L_PAREN, TokenType.R_PAREN, TokenType.L_BRACKET, TokenType.R_BRACKET, TokenType.PLACEHOLDER, TokenType.COLON,
        TokenType.NUMBER, TokenType.STRING, TokenType.HEX_STRING, TokenType.IDENTIFIER,
    }
)  # fmt: skip
_COMPARING = frozenset({TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE})
_BEFORE_PARENTHESIS = frozenset(
    {
        "AND",
        "OR",
        "NOT",
        "IN",
        "CASE",
        "WHEN",
        "THEN",
        "ELSE",
        "LIKE",
        "ILIKE",
        "BETWEEN",
        "ESCAPE",
        "FROM",
        "FOR",
        "IS",
        "CAST",
        "SUBSTRING",
    }
)
_KEYWORDS = _BEFORE_PARENTHESIS | {"END", "NULL", "TRUE", "FALSE", "UNKNOWN", "DISTINCT", "AS"}
_PLACEHOLDERS = frozenset({TokenType.PLACEHOLDER, TokenType.COLON})
_REFUSED = frozenset({"SELECT", "EXISTS", "INTERVAL", "OVER", "COLLATE", "ANY", "ALL", "SOME", "ARRAY", "MAP", "STRUCT", "ROW", "UNION"})
_PREFIXES = frozenset({"NOT", "-", "+"})
# What the parser was seen to raise, or might, where it does not expect a word: it was written for what databases accept.
_PARSER_FAILURES = (RecursionError, AttributeError, TypeError, ValueError, LookupError, AssertionError)

# What the parser says of syntax that it does not know is no news to an operator.
logging.getLogger("sqlglot").setLevel(logging.CRITICAL)


class Predicates(Dialect):
    """The default dialect with bytes as X'00ff', and functions left as they are written: ours are none of the parser's business."""

    class Tokenizer(tokens.Tokenizer):
        """Knows bytes."""

        HEX_STRINGS: ClassVar = [("x'", "'"), ("X'", "'")]

    class Parser(parser.Parser):
        """Makes a plain call of every function but two that have words among their arguments."""

        FUNCTIONS: ClassVar = {}
        FUNCTION_PARSERS: ClassVar = {name: parser.Parser.FUNCTION_PARSERS[name] for name in ("CAST", "SUBSTRING")}
        NO_PAREN_FUNCTIONS: ClassVar = {}
        IS_PREDICATE_PRECEDENCE: ClassVar = parser.IsPredicatePrecedence.EQUALITY  # a = b IS NULL: (a = b) IS NULL, as in the standard


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedText:
    """The parser's tree, and where the placeholders stand, in order of the text."""

    tree: exp.Expression
    placeholders: tuple[int, ...]


def parse(text: str) -> ParsedText:
    """Return the tree of a predicate.

    Raises:
        BadPredicate: it is none, or larger or deeper than the limits.
    """
    if len(text) > WHERE_CHARACTERS_MAX:
        raise refusal(WHERE_CHARACTERS_MAX, f"a predicate has at most {WHERE_CHARACTERS_MAX} characters, this one {len(text)}")
    if "\0" in text:
        raise refusal(text.index("\0") + 1, "a character of value 0")
    dialect = Predicates()
    try:
        found = list(dialect.tokenize(text))
    except SqlglotError as error:
        raise refusal(len(text), f"it ends within a text, a name or a comment, or holds what is no SQL: {_first_line(error)}") from error
    _check_tokens(found)
    try:
        trees = dialect.parser().parse_into(exp.Condition, found, text)
    except SqlglotError as error:
        raise _syntax_error(error, text) from error
    except _PARSER_FAILURES as error:
        raise refusal(1, "it is no predicate") from error
    tree = trees[0] if len(trees) == 1 else None
    if not isinstance(tree, exp.Expression):
        raise refusal(1, "it is no predicate, or more than one")
    return ParsedText(tree=tree, placeholders=tuple(token.start + 1 for token in found if token.token_type in _PLACEHOLDERS))


def refusal(at: int, why: str, suggestion: str = "") -> BadPredicate:
    """Return the error of something at a place, from 1."""
    return BadPredicate(column=at, why=why, suggestion=suggestion)


def closest(name: str, known: Sequence[str]) -> str:
    """Return the one of `known` that was probably meant, or nothing."""
    return next(iter(get_close_matches(name[:200], known, 1, 0.6)), "")


def _check_tokens(found: list[Token]) -> None:
    if not found:
        raise refusal(1, "it is empty")
    if len(found) > WHERE_TOKENS_MAX:
        raise refusal(
            found[WHERE_TOKENS_MAX].start + 1, f"a predicate has at most {WHERE_TOKENS_MAX} words and signs, this one {len(found)}"
        )
    depth = prefixes = 0
    previous: Token | None = None
    for index, token in enumerate(found):
        kind = token.token_type
        _check_token(token, previous, found[index + 1] if index + 1 < len(found) else None)
        word = _word(token)
        prefixes = prefixes + 1 if word in _PREFIXES else 0
        if kind in {TokenType.L_PAREN, TokenType.L_BRACKET} or word == "CASE":
            depth += 1
        elif kind in {TokenType.R_PAREN, TokenType.R_BRACKET} or word == "END":
            depth = max(depth - 1, 0)
        if depth + prefixes > WHERE_DEPTH_MAX:
            raise refusal(token.start + 1, f"it is nested deeper than {WHERE_DEPTH_MAX} levels")
        previous = token


def _check_token(token: Token, previous: Token | None, following: Token | None) -> None:
    kind, at = token.token_type, token.start + 1
    if kind in _OPERATORS:
        if kind is TokenType.STRING and previous is not None and previous.token_type is TokenType.STRING:
            raise refusal(at, "two texts stand side by side; a quote within a text is written twice")
        if kind in _COMPARING and previous is not None and previous.token_type in _COMPARING:  # the parser reads `> >` as a shift of bits
            raise refusal(at, f"{token.text} stands behind {previous.text}; a comparison has one sign")
        return
    if not token.text[:1].isalpha() and token.text[:1] not in {"_", "$"}:
        raise refusal(at, f"{token.text[:20]!r} is not part of a predicate")
    if previous is not None and previous.token_type in {TokenType.DOT, TokenType.COLON}:
        return  # a field, or a parameter's name
    name = token.text.upper()
    called = following is not None and following.token_type is TokenType.L_PAREN
    if called and name not in FUNCTIONS and name not in _BEFORE_PARENTHESIS:
        raise refusal(at, f"there is no function {token.text[:60]}", closest(name, [*ROWS, "CAST"]))
    if name in _REFUSED and not called:
        raise refusal(at, f"{name} is not part of a predicate")


def _word(token: Token) -> str:
    return token.text.upper() if token.token_type not in {TokenType.STRING, TokenType.IDENTIFIER, TokenType.HEX_STRING} else ""


def _syntax_error(error: SqlglotError, text: str) -> BadPredicate:
    details = getattr(error, "errors", None) or [{}]
    line, column = details[0].get("line") or 1, details[0].get("col") or 1
    lines = text.split("\n")
    ended = sum(len(passed) + 1 for passed in lines[: line - 1])  # the parser counts columns within a line, up to the word's end
    highlight = details[0].get("highlight") or ""
    at = max(ended + column - max(len(highlight) - 1, 0), 1)
    near = f" near {highlight[:40]!r}" if highlight else ""
    return refusal(min(at, len(text) + 1), f"it is no predicate{near}")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:80]
