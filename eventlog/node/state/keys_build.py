"""Building the key table of a cache from its state, beside the writes: what they change meanwhile is noted and applied at the end."""

import logging
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np

from eventlog.errors import CorruptData
from eventlog.hashing import hash_keys
from eventlog.node.background import aside
from eventlog.segment.keys import TAG_ENTRY, entry_prefix, tag_range
from eventlog.segment.port import Store
from eventlog.state.caches import CacheState, KeyChange
from eventlog.state.key_table import KeyTable, update_table

log = logging.getLogger("eventlog.node")
_PAGE = 4_000


async def build_key_table(store: Store, cache: CacheState, *, keys_max: int, is_stopping: Callable[[], bool]) -> None:
    """Give the cache a key table; with more than `keys_max` entries, or one that cannot be read, it goes on without: others can be."""
    if int(cache.live.sum()) > keys_max:
        cache.building = None
        return
    changes: list[KeyChange] = cache.building if cache.building is not None else []
    cache.building = changes
    try:
        hashes = await aside(partial(_scan, store, cache, is_stopping))
    except CorruptData as error:
        log.warning("key_table_not_built cache=%s error=%s", cache.name, error)
        if cache.building is changes:
            cache.building = None
        return
    if cache.building is not changes:
        return  # begun again since
    table = KeyTable(len(hashes))
    table.add(hashes)
    for changed, kinds, rows in changes:
        update_table(table, hashes=changed, kinds=kinds, rows=rows)
    cache.building = None
    cache.keys = table


def give_up_tables(caches: Iterable[CacheState], *, bytes_max: int) -> None:
    """Let the largest key tables go until the rest has `bytes_max` or less; existence in their caches is read from the store."""
    tables = sorted(((cache.keys.nbytes, cache) for cache in caches if cache.keys is not None), key=lambda row: row[0])
    used = sum(nbytes for nbytes, _ in tables)
    while used > bytes_max:
        nbytes, cache = tables.pop()
        cache.keys = None
        used -= nbytes


def _scan(store: Store, cache: CacheState, is_stopping: Callable[[], bool]) -> "np.ndarray[tuple[int], np.dtype[np.uint64]]":
    """Return the hashes of all keys in the state, each once."""
    found: list[np.ndarray[tuple[int], np.dtype[np.uint64]]] = [np.zeros(0, np.uint64)]
    for segment in range(cache.segments):
        if cache.dropped:
            break
        lower, upper = tag_range(segment, cache.cache_id, TAG_ENTRY)
        size = len(entry_prefix(segment, cache.cache_id))
        while not is_stopping():
            page = store.read_state(lower, upper, limit=_PAGE)
            found.append(np.array(hash_keys([key[size:] for key, _ in page]), np.uint64))
            if len(page) < _PAGE:
                break
            lower = page[-1][0] + b"\0"
    return np.unique(np.concatenate(found))
