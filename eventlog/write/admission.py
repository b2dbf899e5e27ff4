"""Admission: blocks are what they say, within the limits, their keys belong to the segments they were sent for, JSON values are JSON.

A write of other bytes to a JSON cache is refused, or its readers would fail for it. A decoder that makes nothing of what it reads is a
quarter of a full decode, and passes two things that a full one refuses: text that is not UTF-8 and numbers out of range. Values are asked
for these all at once; only where there may be one, each is decoded in full. What is nested too deep for some readers is refused as well.

Values of Avro caches are checked by clients, and not here: 16 MiB of them would hold the loop for a second, and the other members would
take the node for dead. Where a cache validates them, that was done before (`schema/checking.py`). Elsewhere a value that is not of its
schema is NULL to filters, and UNREADABLE_VALUE to readers.
"""

from collections import deque
from collections.abc import Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.check import FROM_CLIENTS, BadBlocks, BlockLimits, check_blocks, slices
from eventlog.batch.marks import EXPIRY
from eventlog.events import TOO_DEEP, Kind, are_too_deep, is_too_deep
from eventlog.hashing import HASH_BITS, hash_key, hash_keys, route_bytes, segment_of
from eventlog.limits import HEADERS_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX
from eventlog.state.caches import CacheRules
from eventlog.state.key_table import KeyTable
from eventlog.write.share import Share, Submitted

BOUNDS = BlockLimits(key_bytes=KEY_BYTES_MAX, value_bytes=VALUE_BYTES_MAX, header_bytes=HEADERS_BYTES_MAX, columns=FROM_CLIENTS)
_skim = msgspec.json.Decoder(msgspec.Raw).decode
_decode = msgspec.json.Decoder().decode
_NOT_JSON = (ValueError, RecursionError)  # of msgspec, and UnicodeDecodeError
_DIGITS_MIN = 300  # a number with fewer, and without an exponent of three, is in range
_OUT_OF_RANGE_BYTES_MIN = len(b"1e309")
_STEP = _DIGITS_MIN // 2
_ZERO, _TEN, _LOWER, _E = (np.uint8(number) for number in (ord("0"), 10, 0x20, ord("e")))


def admit(submitted: Submitted, *, rules: CacheRules, table: KeyTable | None = None, bounds: BlockLimits = BOUNDS) -> Share:
    """Return the share of checked blocks.

    The segment is checked for every key where the cache keeps state, else for the first key of each block: a wrong one could only
    hide an event from readers of its segment, not shadow an entry.

    Raises:
        BadBlocks: naming the blocks; the caller refuses their frames and admits the rest again.
    """
    blocks = check_blocks(
        submitted.data,
        starts=submitted.starts,
        lengths=submitted.lengths,
        counts=submitted.counts,
        bounds=bounds,
        text_keys=rules.text_keys,
    )
    if np.count_nonzero(submitted.counts) < len(submitted.counts):
        raise BadBlocks([(block, "it is empty") for block in (submitted.counts == 0).nonzero()[0].tolist()])
    if not rules.state and np.count_nonzero(blocks.bitmaps & EXPIRY):
        raise BadBlocks([(block, "a lifespan needs state") for block in (blocks.bitmaps & EXPIRY).nonzero()[0].tolist()])
    kinds = np.where(blocks.kinds == Kind.REMOVED, np.uint8(Kind.EXPIRED), blocks.kinds) if submitted.internal else blocks.kinds
    share = Share(rules=rules, submitted=submitted, blocks=blocks, kinds=kinds, live=np.ones(len(submitted.counts), bool), table=table)
    if rules.json_values:
        check_json(share)
    data, places = (share.raw, (blocks.key_at, blocks.key_end)) if rules.state else (blocks.data.data, blocks.key_column.firsts())
    keys = slices(data, *places)
    hashes = np.array(hash_keys(keys), np.uint64)
    routed = np.array(hash_keys([route_bytes(key, by_prefix=True) for key in keys]), np.uint64) if rules.by_prefix else hashes
    expected = submitted.segments.repeat(submitted.counts) if rules.state else submitted.segments
    placed = routed >> np.uint64(HASH_BITS + 1 - rules.segments.bit_length()) if rules.segments > 1 else np.zeros(len(keys), np.uint64)
    wrong = placed.view(np.int64) != expected
    if np.count_nonzero(wrong):
        raise BadBlocks(_misplaced(share, np.unique(share.block_of_row[wrong]) if rules.state else wrong.nonzero()[0]))
    if rules.state:
        share.keys, share.hashes = keys, hashes
        _check_conditions(submitted, rules)
    return share


def _misplaced(share: Share, blocks: Ints) -> list[tuple[int, str]]:
    segments = share.rules.segments
    beyond = share.submitted.segments >= segments
    return [(block, f"there are {segments} segments" if beyond[block] else "a key belongs to another segment") for block in blocks.tolist()]


def _check_conditions(submitted: Submitted, rules: CacheRules) -> None:
    """Conditions are about entries of their block's segment: of another one nothing is known here, and absence would always hold."""
    bad = []
    for condition in submitted.conditions:
        segment = segment_of(hash_key(route_bytes(condition.key, by_prefix=rules.by_prefix)), rules.segments)
        if segment != submitted.segments[condition.block]:
            bad.append((condition.block, "a condition's key belongs to another segment"))
    if bad:
        raise BadBlocks(bad)


def check_json(share: Share) -> None:
    """Check the values of puts.

    Raises:
        BadBlocks: naming the blocks that hold others.
    """
    if len(share.kinds) == 1:  # most of the time of a lone put would go into arrays of one
        if share.blocks.kinds.item(0) == Kind.CREATED and (why := _why_not_one(share.values[0])):
            raise BadBlocks([(0, f"a value is not JSON: {why}")])
        return
    puts = share.blocks.kinds == Kind.CREATED
    values = share.values if np.count_nonzero(puts) == len(puts) else [share.values[row] for row in puts.nonzero()[0].tolist()]
    if why_not_json(values) is None:
        return
    rows = puts.nonzero()[0].tolist()
    whys = {int(share.block_of_row[row]): why for row, value in zip(rows, values, strict=True) if (why := _why_not_one(value))}
    raise BadBlocks([(block, f"a value is not JSON: {why}") for block, why in sorted(whys.items())])


def is_json(value: bytes) -> bool:
    """Return whether every reader can decode a value."""
    return _why_not_one(value) is None


def why_not_json(values: Sequence[bytes]) -> str | None:
    """Return what is wrong with a value that some reader could not decode, None if there is none."""
    decode = _skim if _is_plain(b"".join(values)) else _decode
    try:
        deque(map(decode, values), maxlen=0)
    except _NOT_JSON as error:
        return str(error)
    return TOO_DEEP if are_too_deep(values) else None


def _why_not_one(value: bytes) -> str | None:
    try:
        _decode(value)
    except _NOT_JSON as error:
        return str(error)
    return TOO_DEEP if is_too_deep(value) else None


def _is_plain(joined: bytes) -> bool:
    """Return whether nothing in the values needs a full decode."""
    return joined.isascii() and not _may_be_out_of_range(np.frombuffer(joined, np.uint8))


def _may_be_out_of_range(text: npt.NDArray[np.uint8]) -> bool:
    """Return whether there is anything like an exponent of three digits, or as many digits as a number out of range has."""
    if len(text) < _OUT_OF_RANGE_BYTES_MIN:
        return False
    digits = (text - _ZERO) < _TEN
    exponents = (text[:-3] | _LOWER) == _E
    exponents &= digits[2:-1]
    exponents &= digits[3:]
    sampled = digits[::_STEP]
    return bool(np.count_nonzero(exponents) or np.count_nonzero(sampled[1:] & sampled[:-1]))
