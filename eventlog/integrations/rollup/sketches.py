"""How many different keys there are, about: sketches that are added up over windows and tasks, where counts are not. Pure.

HyperLogLog with 4,096 registers, in the bytes and with the hash of Apache DataSketches ("HLL_8", log2 of K is 12), which Spark's
`hll_union_agg` and other databases read: https://datasketches.apache.org/docs/HLL/HLL.html. A key becomes a coupon, 26 bits of a place and
6 of a value. Few coupons are kept as they are and counted; of more each register keeps the highest value of its places. Both depend on
the set of keys alone, so a sketch is the same to the last bit however the work was cut. Estimates are Ertl's improved raw estimator ("New
cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6), which needs no tables.
"""

import math
import struct
from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from eventlog.errors import InvalidArgument

STANDARD_ERROR: Final = 1.04 / 64
"""Of an estimate of more than `COUPONS_MAX` keys, as a part of it; 64 is the root of the number of registers."""
COUPONS_MAX: Final = 384  # as DataSketches has it: three quarters of an eighth of the registers
_LG_K: Final = 12
_REGISTERS: Final = 1 << _LG_K
_PLACE_BITS: Final = 26
_VALUE_MAX: Final = 63
_SEED: Final = 9001
_SERIAL_VERSION, _FAMILY, _LG_SET_MIN = 1, 7, 5
_COMPACT, _OUT_OF_ORDER = 8, 16
_SET_MODE, _HLL_MODE = 9, 10  # the lower two bits say which, the others that registers are of 8 bits
_SET: Final = struct.Struct("<8Bi")
_HLL: Final = struct.Struct("<8B3d2i")

Coupons = npt.NDArray[np.uint32]
_Words = npt.NDArray[np.uint64]
_NO_COUPONS: Final[Coupons] = np.empty(0, np.uint32)


class KeySketch:
    """A set of keys, about: by its coupons, or by its registers, and then it has no coupons."""

    __slots__ = ("coupons", "registers")

    def __init__(self, coupons: Coupons | None = None) -> None:
        self.coupons = _NO_COUPONS
        self.registers: npt.NDArray[np.uint8] | None = None
        if coupons is not None:
            self.add(coupons)

    def add(self, coupons: Coupons) -> None:
        """Add keys, by their coupons."""
        if self.registers is None:
            coupons = np.unique(np.concatenate([self.coupons, coupons]))
            if len(coupons) <= COUPONS_MAX:
                self.coupons = coupons
                return
            self.coupons, self.registers = _NO_COUPONS, np.zeros(_REGISTERS, np.uint8)
        np.maximum.at(self.registers, coupons & (_REGISTERS - 1), (coupons >> _PLACE_BITS).astype(np.uint8))

    def merge(self, other: "KeySketch") -> None:
        """Add the keys of another sketch."""
        if other.registers is None:
            self.add(other.coupons)
            return
        if self.registers is None:
            coupons, self.coupons = self.coupons, _NO_COUPONS
            self.registers = np.zeros(_REGISTERS, np.uint8)
            self.add(coupons)
        np.maximum(self.registers, other.registers, out=self.registers)

    def estimate(self) -> int:
        """Return about how many keys they are: exactly, but for hashes that are alike, up to `COUPONS_MAX`."""
        if self.registers is None:
            return len(self.coupons)
        counts = np.bincount(self.registers, minlength=_VALUE_MAX + 1).tolist()
        total = _REGISTERS * _tau(1 - counts[_VALUE_MAX] / _REGISTERS)
        for count in reversed(counts[1:_VALUE_MAX]):
            total = 0.5 * (total + count)
        total += _REGISTERS * _sigma(counts[0] / _REGISTERS)
        return round(_REGISTERS * _REGISTERS / (2 * math.log(2) * total))

    def to_bytes(self) -> bytes:
        """Return it as DataSketches has it."""
        if self.registers is None:
            lg_array = max(((len(self.coupons) * 4 - 1) // 3).bit_length(), _LG_SET_MIN)
            head = _SET.pack(3, _SERIAL_VERSION, _FAMILY, _LG_K, lg_array, _COMPACT, 0, _SET_MODE, len(self.coupons))
            return head + self.coupons.astype("<u4").tobytes()
        parts = np.ldexp(1.0, -self.registers.astype(np.int32))
        is_low = self.registers < 32
        sums = float(parts[is_low].sum()), float(parts[~is_low].sum())
        zeros = int(np.count_nonzero(self.registers == 0))
        head = _HLL.pack(10, _SERIAL_VERSION, _FAMILY, _LG_K, 0, _COMPACT | _OUT_OF_ORDER, 0, _HLL_MODE, 0.0, *sums, zeros, 0)
        return head + self.registers.tobytes()

    @classmethod
    def of_bytes(cls, data: bytes) -> "KeySketch":
        """Return a sketch that was written by `to_bytes`. Raises InvalidArgument: it was not."""
        found = cls()
        kind = data[7] if len(data) >= _SET.size and tuple(data[1:4]) == (_SERIAL_VERSION, _FAMILY, _LG_K) else None
        if kind == _SET_MODE and len(data) == _SET.size + 4 * _SET.unpack_from(data)[-1]:
            found.add(np.frombuffer(data, "<u4", offset=_SET.size).astype(np.uint32))
        elif kind == _HLL_MODE and len(data) == _HLL.size + _REGISTERS and max(data[_HLL.size :]) <= _VALUE_MAX:
            found.registers = np.frombuffer(data, np.uint8, offset=_HLL.size).copy()
        else:
            raise InvalidArgument(why=f"{data[:8].hex()}... of {len(data)} bytes is no sketch of keys~")
        return found


def distinct_keys(sketches: Iterable[bytes]) -> int:
    """Return about how many different keys there are in rows of a rollup, by what is in their columns of sketches.

    Raises:
        InvalidArgument: one is no sketch of `keys~`.
    """
    found = KeySketch()
    for one in sketches:
        found.merge(KeySketch.of_bytes(one))
    return found.estimate()


def _sigma(part: float) -> float:
    if part == 1:
        return math.inf
    found, factor, before = part, 1.0, -1.0
    while found != before:
        part *= part
        before, found = found, found + part * factor
        factor += factor
    return found


def _tau(part: float) -> float:
    if part in {0, 1}:
        return 0.0
    found, factor, before = 1 - part, 1.0, -1.0
    while found != before:
        part = math.sqrt(part)
        factor *= 0.5
        before, found = found, found - (1 - part) ** 2 * factor
    return found / 3


# ---------------------------------------------------------------- from keys to coupons


def coupons_of(keys: pa.Array) -> Coupons:
    """Return the coupons of keys, text or binary, none of them null: by MurmurHash3 (x64, 128 bits), those of one length at once."""
    _, offset_bytes, data_bytes = keys.buffers()
    offsets = np.frombuffer(offset_bytes, np.int32)[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    data = np.empty(0, np.uint8) if data_bytes is None else np.frombuffer(data_bytes, np.uint8)
    sizes = np.diff(offsets)
    found = np.empty(len(keys), np.uint32)
    for size in np.unique(sizes).tolist():
        rows = np.flatnonzero(sizes == size)
        blocks = size // 16 + 1  # one that is cut, filled up with zeros, or of nothing else: these change nothing
        padded = np.zeros((len(rows), blocks * 16), np.uint8)
        padded[:, :size] = data[offsets[rows, None] + np.arange(size)]
        first, second = _murmur(padded.view("<u8"), size)
        values = np.minimum(_leading_zeros(second), 62) + 1
        found[rows] = (values << _PLACE_BITS).astype(np.uint32) | (first & np.uint64((1 << _PLACE_BITS) - 1)).astype(np.uint32)
    return found


_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)
_F1, _F2 = np.uint64(0xFF51AFD7ED558CCD), np.uint64(0xC4CEB9FE1A85EC53)


def _murmur(words: _Words, size: int) -> tuple[_Words, _Words]:
    """Return both halves of the hashes of rows of words, of which so many bytes are of the key. Numbers of 64 bits wrap around."""
    first = np.full(len(words), _SEED, np.uint64)
    second = first.copy()
    for block in range(words.shape[1] // 2):
        is_whole = 16 * (block + 1) <= size
        first ^= _turned(words[:, 2 * block] * _C1, 31) * _C2
        if is_whole:
            first = (_turned(first, 27) + second) * np.uint64(5) + np.uint64(0x52DCE729)
        second ^= _turned(words[:, 2 * block + 1] * _C2, 33) * _C1
        if is_whole:
            second = (_turned(second, 31) + first) * np.uint64(5) + np.uint64(0x38495AB5)
    first ^= np.uint64(size)
    second ^= np.uint64(size)
    first += second
    second += first
    first, second = _mixed(first), _mixed(second)
    first += second
    return first, second + first


def _turned(words: _Words, bits: int) -> _Words:
    return (words << np.uint64(bits)) | (words >> np.uint64(64 - bits))


def _mixed(words: _Words) -> _Words:
    for factor in (_F1, _F2):
        words = (words ^ (words >> np.uint64(33))) * factor
    return words ^ (words >> np.uint64(33))


def _leading_zeros(words: _Words) -> npt.NDArray[np.int64]:
    """Return how many bits before the highest that is set are zero: floats hold each half exactly, and their exponent says it."""
    high, low = (words >> np.uint64(32)).astype(np.float64), (words & np.uint64(0xFFFFFFFF)).astype(np.float64)
    bits = np.where(high > 0, np.frexp(high)[1] + 32, np.frexp(low)[1])
    return (64 - bits).astype(np.int64)
