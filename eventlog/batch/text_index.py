"""Which rows of a column of texts hold a text, or begin with it, without a look at the texts themselves.

An index of a file of columns: what the texts go on with behind what all of them begin with, eight bytes of it, sorted and each once
(`heads`); where the rows that go on so begin (`firsts`); and these rows (`rows`), behind them those of texts of no length.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from eventlog.batch.texts import Ints, Mask, Texts, Words

HEADS, FIRSTS, ROWS = "heads", "firsts", "rows"
INDEX_TYPES = {HEADS: "<u8", FIRSTS: "<u4", ROWS: "<u4"}
NUMBERS_TOGETHER = 1_024  # are read and checked together
_WORD = 8
_LISTED_MAX = 64  # of so many texts each is looked up
_UNSURE_SHARE = 8  # candidates are looked at one by one where they are at most this share of the rows


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IndexSummary:
    """What is known of an index without reading it: how many heads, and every `NUMBERS_TOGETHER`-th of them (`fences`).

    All texts but those of no length begin with `common`. `is_exact`: behind it none is longer than its head or ends with a zero, so
    that texts with one head are the same.
    """

    texts: int
    heads: int
    fences: Words
    common: bytes
    is_exact: bool


Numbers = Callable[[str, int, int], npt.NDArray[Any]]
"""Reads numbers `[low, high)` of one of the index's columns."""


def make_index(texts: Texts) -> tuple[IndexSummary, dict[str, npt.NDArray[Any]]]:
    """Return an index, and the numbers that are its columns."""
    long = np.flatnonzero(texts.sizes > 0)
    common = _common(texts, long)
    words = texts.words(long, len(common))
    order = np.argsort(words, kind="stable")
    ordered = words[order]
    firsts = np.flatnonzero(np.concatenate((np.ones(min(len(ordered), 1), bool), ordered[1:] != ordered[:-1])))
    heads = ordered[firsts]
    rows = np.concatenate((long[order], np.flatnonzero(texts.sizes == 0)))
    columns = {HEADS: heads, FIRSTS: np.append(firsts, len(ordered)), ROWS: rows}
    rest = texts.sizes[long] - len(common)
    ends = np.frombuffer(texts.data, np.uint8)[(texts.starts + texts.sizes - 1)[long]]
    is_exact = bool((rest <= _WORD).all()) and bool((ends[rest > 0] != 0).all())
    return IndexSummary(texts=len(texts), heads=len(heads), fences=heads[::NUMBERS_TOGETHER].copy(), common=common, is_exact=is_exact), {
        name: numbers.astype(INDEX_TYPES[name]) for name, numbers in columns.items()
    }


def _common(texts: Texts, rows: Ints) -> bytes:
    """Return what all of some texts begin with."""
    if not len(rows):
        return b""
    shortest, at = int(texts.sizes[rows].min()), 0
    while at < shortest:
        words = texts.words(rows, at)
        alike = _WORD - ((int(words.min()) ^ int(words.max())).bit_length() + 7) // 8
        at = min(at + alike, shortest)
        if alike < _WORD:
            break
    return texts.item(int(rows[0]))[:at]


class TextIndex:
    """Looks rows up, in no order; the second of an answer says whether they are all right, or candidates."""

    def __init__(self, summary: IndexSummary, numbers: Numbers) -> None:
        self._summary = summary
        self._numbers = numbers

    @property
    def texts(self) -> int:
        """Return how many texts there are."""
        return self._summary.texts

    def equal_to(self, text: bytes) -> tuple[Ints, bool]:
        """Return the rows with a text."""
        known = self._summary
        if not text:
            return self._rows(self._first(known.heads), known.texts), True
        rest = text[len(known.common) :]
        if not text.startswith(known.common) or (known.is_exact and (len(rest) > _WORD or rest.endswith(b"\0"))):
            return self._rows(0, 0), True
        head = rest[:_WORD].ljust(_WORD, b"\0")
        return self._between(head, head), known.is_exact

    def starting_with(self, prefix: bytes) -> tuple[Ints, bool]:
        """Return the rows whose texts begin with `prefix`, which is not empty."""
        common = self._summary.common
        rest = prefix[len(common) :]
        if not rest:
            return self._rows(0, self._first(self._summary.heads) if common.startswith(prefix) else 0), True
        if not prefix.startswith(common):
            return self._rows(0, 0), True
        head = rest[:_WORD]
        is_sure = len(rest) <= _WORD and not rest.endswith(b"\0")
        return self._between(head.ljust(_WORD, b"\0"), head.ljust(_WORD, b"\xff")), is_sure

    def around(self, text: bytes) -> tuple[Ints, Ints]:
        """Return the rows whose texts, of some length, sort before `text`, and candidates to be looked at; all others sort behind."""
        common = self._summary.common
        if not text.startswith(common):
            return self._rows(0, self._first(self._summary.heads) if common < text else 0), self._rows(0, 0)
        head = text[len(common) :][:_WORD].ljust(_WORD, b"\0")
        begin, end = self._first(self._place(head, "left")), self._first(self._place(head, "right"))
        return self._rows(0, begin), self._rows(begin, end)

    def _between(self, low: bytes, high: bytes) -> Ints:
        """Return the rows with heads from `low` to `high`."""
        begin, end = self._place(low, "left"), self._place(high, "right")
        return self._rows(self._first(begin), self._first(end)) if begin < end else self._rows(0, 0)

    def _place(self, head: bytes, side: Literal["left", "right"]) -> int:
        """Return how many heads are below one, or not above it."""
        word = np.uint64(int.from_bytes(head, "big"))
        low = max(int(np.searchsorted(self._summary.fences, word, side)) - 1, 0) * NUMBERS_TOGETHER
        heads = self._numbers(HEADS, low, min(low + NUMBERS_TOGETHER, self._summary.heads))
        return low + int(np.searchsorted(heads, word, side))

    def _first(self, head: int) -> int:
        return int(self._numbers(FIRSTS, head, head + 1)[0])

    def _rows(self, low: int, high: int) -> Ints:
        return self._numbers(ROWS, low, high).astype(np.int64)


class IndexedTexts(Texts):
    """Some `rows` of texts with an index, None for all; they are loaded when they themselves are looked at."""

    def __init__(self, index: TextIndex, load: Callable[[Ints | None], Texts], rows: Ints | None) -> None:
        """Have `load` give some texts, None for all."""
        self._index = index
        self._load = load
        self._own = rows

    @cached_property
    def _loaded(self) -> Texts:
        return self._load(self._own)

    @property
    def data(self) -> bytes:
        return self._loaded.data

    @property
    def starts(self) -> Ints:
        return self._loaded.starts

    @property
    def sizes(self) -> Ints:
        return self._loaded.sizes

    def __len__(self) -> int:
        return self._index.texts if self._own is None else len(self._own)

    def equals(self, text: bytes) -> Mask:
        rows = self._sure(*self._index.equal_to(text), lambda texts: texts.equals(text))
        return super().equals(text) if rows is None else self._mask(rows)

    def starts_with(self, prefix: bytes) -> Mask:
        if not prefix:
            return np.ones(len(self), bool)
        rows = self._sure(*self._index.starting_with(prefix), lambda texts: texts.starts_with(prefix))
        return super().starts_with(prefix) if rows is None else self._mask(rows)

    def is_in(self, texts: Sequence[bytes]) -> Mask:
        if len(texts) > _LISTED_MAX:
            return super().is_in(texts)
        found = np.zeros(len(self), bool)
        for text in set(texts):
            found |= self.equals(text)
        return found

    def order(self, text: bytes) -> npt.NDArray[np.int8]:
        below, unsure = self._index.around(text)
        if len(unsure) * _UNSURE_SHARE > self._index.texts:
            return super().order(text)
        found = np.ones(self._index.texts, np.int8)
        found[below] = -1
        found[self._index.equal_to(b"")[0]] = -1 if text else 0
        if len(unsure):
            rows = np.sort(unsure)
            found[rows] = self._load(rows).order(text)
        return found if self._own is None else found[self._own]

    def _sure(self, rows: Ints, is_sure: bool, asked: Callable[[Texts], Mask]) -> Ints | None:  # noqa: FBT001 -- as the index answers
        """Return those of the candidates that are asked for; None where they are too many to be looked at one by one."""
        if is_sure or not len(rows):
            return rows
        if len(rows) * _UNSURE_SHARE > self._index.texts:
            return None
        rows = np.sort(rows)
        return rows[asked(self._load(rows))]

    def _mask(self, rows: Ints) -> Mask:
        mask = np.zeros(self._index.texts, bool)
        mask[rows] = True
        return mask if self._own is None else mask[self._own]
