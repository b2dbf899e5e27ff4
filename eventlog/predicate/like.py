"""LIKE patterns: `%` is any text, `_` any one character.

Matching looks for the pieces between `%` from left to right: linear in the text, where a regular expression of the same meaning can be
exponential. Only pieces with `_` inside are slower, text times piece; `is_costly` says so.
"""

import re
from dataclasses import dataclass
from functools import cached_property

PIECE_CHARACTERS_MAX = 64
# I with a dot, of which `str.lower` makes two characters; and sigma, of which it makes another letter at the end of a word
_FOLDED_ALONE = str.maketrans({"\u0130": "i", "\u03a3": "\u03c3", "\u03c2": "\u03c3"})


@dataclass(frozen=True, kw_only=True)
class Pattern:
    """One pattern. `pieces` stand between the `%`; in a piece None is any one character."""

    pieces: tuple[tuple[str | None, ...], ...]
    ignore_case: bool

    @cached_property
    def prefix(self) -> str:
        """Return the text that everything matching begins with; empty where case is ignored."""
        found: list[str] = []
        for character in self.pieces[0]:
            if character is None:
                break
            found.append(character)
        return "" if self.ignore_case else "".join(found)

    @property
    def is_exact(self) -> bool:
        """Return whether only `prefix` itself matches."""
        return len(self.pieces) == 1 and self.is_prefix_whole

    @property
    def is_prefix(self) -> bool:
        """Return whether everything that begins with `prefix` matches."""
        return len(self.pieces) == 2 and not self.pieces[1] and self.is_prefix_whole

    @property
    def is_prefix_whole(self) -> bool:
        """Return whether `prefix` is all of the first piece."""
        return not self.ignore_case and None not in self.pieces[0]

    @property
    def is_costly(self) -> bool:
        """Return whether a piece that is looked for everywhere has `_` in it and is longer than `PIECE_CHARACTERS_MAX`."""
        return any(None in piece and len(piece) > PIECE_CHARACTERS_MAX for piece in self.pieces[1:-1])

    @cached_property
    def longest(self) -> str:
        """Return the longest text that everything matching has in it; empty where case is ignored."""
        found, run = "", ""
        for piece in self.pieces:
            for character in (*piece, None):
                if character is not None:
                    run += character
                    continue
                found, run = max(found, run, key=len), ""
        return "" if self.ignore_case else found

    def matches(self, text: str) -> bool:
        """Return whether a text matches."""
        if self.ignore_case:
            text = _fold(text)
        first, last = self._searches[0], self._searches[-1]
        if len(self.pieces) == 1:
            return len(text) == len(self.pieces[0]) and first.match(text) is not None
        end = len(text) - len(self.pieces[-1])
        at = len(self.pieces[0])
        if end < at or first.match(text) is None or last.match(text, end) is None:
            return False
        for search in self._searches[1:-1]:
            found = search.search(text, at, end)
            if found is None:
                return False
            at = found.end()
        return True

    @cached_property
    def _searches(self) -> list[re.Pattern[str]]:
        """Return each piece as an expression of fixed length."""
        return [re.compile("".join("." if one is None else re.escape(one) for one in piece), re.DOTALL) for piece in self.pieces]


def _fold(text: str) -> str:
    """Return a text without regard to case, character by character."""
    return text.lower() if text.isascii() else text.translate(_FOLDED_ALONE).lower()


def like(pattern: str, *, escape: str, ignore_case: bool) -> Pattern:
    """Return a pattern; a character behind `escape` stands for itself."""
    if ignore_case:
        pattern, escape = _fold(pattern), _fold(escape)
    pieces: list[tuple[str | None, ...]] = []
    piece: list[str | None] = []
    characters = iter(pattern)
    for character in characters:
        if escape and character == escape:
            piece.append(next(characters, escape))
        elif character == "%":
            pieces.append(tuple(piece))
            piece = []
        else:
            piece.append(None if character == "_" else character)
    pieces.append(tuple(piece))
    middle = [one for one in pieces[1:-1] if one]
    return Pattern(pieces=(pieces[0], *middle, pieces[-1]) if len(pieces) > 1 else (pieces[0],), ignore_case=ignore_case)
