"""Admission: blocks are what they say, within the limits, and their keys belong to the segments they were sent for."""

import numpy as np

from eventlog.batch.check import FROM_CLIENTS, BadBlocks, Bounds, check_blocks, slices
from eventlog.batch.marks import EXPIRY
from eventlog.events import Kind
from eventlog.hashing import HASH_BITS, hash_key, hash_keys, route_bytes, segment_of
from eventlog.interceptor.json_values import check_json
from eventlog.interceptor.key_table import KeyTable
from eventlog.interceptor.share import CacheRules, Ints, Share, Submitted
from eventlog.limits import HEADERS_BYTES_MAX, KEY_BYTES_MAX, VALUE_BYTES_MAX

BOUNDS = Bounds(key_bytes=KEY_BYTES_MAX, value_bytes=VALUE_BYTES_MAX, header_bytes=HEADERS_BYTES_MAX, columns=FROM_CLIENTS)


def admit(submitted: Submitted, *, rules: CacheRules, table: KeyTable | None = None, bounds: Bounds = BOUNDS) -> Share:
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
