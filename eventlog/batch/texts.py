"""Byte strings within a larger buffer, uncopied: what is looked at to judge an event, and mostly not wanted afterwards."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Words = npt.NDArray[np.uint64]
_WORD = 8
_ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
_FEW = 8  # of so few candidates each is asked for by itself


@dataclass(frozen=True, kw_only=True, eq=False)
class Texts:
    """Item i is `data[starts[i]:starts[i] + sizes[i]]`; items stand in any order, with anything between them."""

    data: bytes
    starts: Ints
    sizes: Ints

    def __len__(self) -> int:
        return len(self.starts)

    def item(self, row: int) -> bytes:
        """Return one item."""
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
