"""Byte strings within a larger buffer, uncopied: what is looked at to judge an event, and mostly not wanted afterwards.

An index of them tells which rows hold a text, or begin with it, without a look at the texts: what they go on with behind what all of them
begin with, eight bytes of it, sorted and each once (`heads`); where the rows that go on so begin (`firsts`); and these rows (`rows`),
behind them those of texts of no length.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints, Mask

Words = npt.NDArray[np.uint64]
_WORD = 8
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
_FEW = 8  # of so few candidates each is asked for by itself
HEADS, FIRSTS, ROWS = "heads", "firsts", "rows"
INDEX_TYPES = {HEADS: "<u8", FIRSTS: "<u4", ROWS: "<u4"}
_LISTED_MAX = 64  # of so many texts each is looked up


@dataclass(frozen=True, kw_only=True, eq=False)
class Texts:
    """Item i is `data[starts[i]:starts[i] + sizes[i]]`; items stand in any order, with anything between them."""

    data: bytes
    starts: Ints
    sizes: Ints

    def __len__(self) -> int:
        return len(self.starts)

    def item(self, row: int) -> bytes:
        start = self.starts.item(row)
        return self.data[start : start + self.sizes.item(row)]

    def to_list(self) -> list[bytes]:
        """Return every item."""
        data = self.data
        return [data[low:high] for low, high in zip(self.starts.tolist(), (self.starts + self.sizes).tolist(), strict=True)]

    def take(self, rows: "Ints | Mask | slice") -> "Texts":
        """Return some of the items, by index, by mask, or some that follow each other."""
        return Texts(data=self.data, starts=self.starts[rows], sizes=self.sizes[rows])

    def equals(self, text: bytes) -> Mask:
        """Return which items are `text`."""
        return self._marked(self._holding(text, np.flatnonzero(self.sizes == len(text))))

    def starts_with(self, prefix: bytes) -> Mask:
        """Return which items begin with `prefix`."""
        return self._marked(self._holding(prefix, np.flatnonzero(self.sizes >= len(prefix))))

    def is_in(self, texts: Sequence[bytes]) -> Mask:
        """Return which items are one of `texts`."""
        wanted = set(texts)
        if len(wanted) <= _FEW:
            found = np.zeros(len(self), bool)
            for text in wanted:
                found |= self.equals(text)
            return found
        rows = np.flatnonzero(np.isin(self.sizes, np.unique([len(text) for text in wanted])))
        items = self.take(rows).to_list()
        return self._marked(rows[np.fromiter((item in wanted for item in items), bool, len(items))])

    def order(self, text: bytes) -> npt.NDArray[np.int8]:
        """Return of each item -1, 0 or 1: whether it sorts before `text`, is it, or sorts behind."""
        found = np.sign(self.sizes - len(text)).astype(np.int8)  # right for those that are equal as far as both go, zeros behind the end
        rows = np.arange(len(self))
        for at in range(0, len(text), _WORD):
            expected = np.uint64(int.from_bytes(text[at : at + _WORD].ljust(_WORD, b"\0"), "big"))
            words = self.words(rows, at)
            found[rows[words < expected]] = -1
            found[rows[words > expected]] = 1
            rows = rows[words == expected]
            if not len(rows):
                break
        return found

    def words(self, rows: Ints, at: int) -> Words:
        """Return eight bytes of some items from `at` on, as they sort, zeros behind an item's end."""
        starts, sizes = self.starts[rows] + at, np.clip(self.sizes[rows] - at, 0, _WORD)
        room = len(self.data) - _WORD
        if room < 0:
            pieces = [
                self.data[start : start + size].ljust(_WORD, b"\0") for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
            ]
            return np.frombuffer(b"".join(pieces), ">u8").astype(np.uint64)
        words = np.ndarray((room + 1,), "<u8", self.data, 0, (1,))
        near = np.clip(starts, 0, room)
        shift = np.clip((starts - near) * 8, 0, 63).astype(np.uint64)
        found = np.where(sizes > 0, words[near] >> shift, 0).astype(np.uint64)
        kept = np.where(sizes == _WORD, _ALL_BITS, (np.uint64(1) << (8 * np.minimum(sizes, _WORD - 1)).astype(np.uint64)) - np.uint64(1))
        return (found & kept).byteswap()

    def _marked(self, rows: Ints) -> Mask:
        mask = np.zeros(len(self), bool)
        mask[rows] = True
        return mask

    def _holding(self, text: bytes, rows: Ints) -> Ints:
        """Return those of `rows`, long enough all, that begin with `text`.

        Its last byte is looked at first: keys of one kind begin alike and differ at the end, and a byte is had for a third of a word.
        """
        if not text or not len(rows):
            return rows
        octets = np.frombuffer(self.data, np.uint8)
        rows = rows[octets[self.starts[rows] + (len(text) - 1)] == text[-1]]
        for at in range(0, len(text) - 1, _WORD):
            if not len(rows):
                break
            rows = rows[self._words_at(self.starts[rows] + at, text[at : at + _WORD])]
        return rows

    def _words_at(self, starts: Ints, piece: bytes) -> Mask:
        """Return where `data` has `piece`, of up to eight bytes, at each of `starts`."""
        room = len(self.data) - _WORD
        if room < 0:
            return np.array([self.data[start : start + len(piece)] == piece for start in starts.tolist()], bool)
        words = np.ndarray((room + 1,), "<u8", self.data, 0, (1,))  # a word at every byte, unaligned ones too
        expected, bits = int.from_bytes(piece, "little"), 8 * len(piece)
        near = np.minimum(starts, room)
        found = words[near] >> ((starts - near) * 8).astype(np.uint64)
        return np.asarray((found & np.uint64((1 << bits) - 1)) == np.uint64(expected), bool)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCuts:
    """How columns are cut into what is read and checked together, and when reading a whole one is quicker."""

    rows_together: int = 8  # of texts
    numbers_together: int = 1_024  # of an index
    piece_worth_bytes: int = 6 << 10  # reading one piece takes as long as so many bytes at once
    unsure_share: int = 8  # candidates are looked at one by one where they are at most this share of the rows


COLUMN_CUTS = ColumnCuts()


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IndexSummary:
    """What is known of an index without reading it: how many heads, and the first of those that are read together (`fences`).

    All texts but those of no length begin with `common`. `is_exact`: behind it none is longer than its head or ends with a zero, so
    that texts with one head are the same.
    """

    texts: int
    heads: int
    fences: Words
    common: bytes
    is_exact: bool
    cuts: ColumnCuts


Numbers = Callable[[str, int, int], npt.NDArray[Any]]
"""Reads numbers `[low, high)` of one of the index's columns."""


def make_index(texts: Texts, cuts: ColumnCuts = COLUMN_CUTS) -> tuple[IndexSummary, dict[str, npt.NDArray[Any]]]:
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
    fences = heads[:: cuts.numbers_together].copy()
    summary = IndexSummary(texts=len(texts), heads=len(heads), fences=fences, common=common, is_exact=is_exact, cuts=cuts)
    return summary, {name: numbers.astype(INDEX_TYPES[name]) for name, numbers in columns.items()}


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

    def is_few(self, candidates: int) -> bool:
        """Return whether so many candidates are looked at one by one: loading all texts takes longer."""
        return candidates * self._summary.cuts.unsure_share <= self._summary.texts

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
        together = self._summary.cuts.numbers_together
        low = max(int(np.searchsorted(self._summary.fences, word, side)) - 1, 0) * together
        heads = self._numbers(HEADS, low, min(low + together, self._summary.heads))
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
        if not self._index.is_few(len(unsure)):
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
        if not self._index.is_few(len(rows)):
            return None
        rows = np.sort(rows)
        return rows[asked(self._load(rows))]

    def _mask(self, rows: Ints) -> Mask:
        mask = np.zeros(self._index.texts, bool)
        mask[rows] = True
        return mask if self._own is None else mask[self._own]
