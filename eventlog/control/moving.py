"""Moving a stopped cluster's records to another metadata store, or putting rebuilt ones there.

The identity goes last: a store without one is nobody's, so a copy that broke off is never taken for the cluster. Before it goes, the
old store is marked as left; nodes refuse it from then on, and a move that broke off between the two is finished by the same command.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

import msgspec

from eventlog.control.metastore import Listing, MetaStore
from eventlog.control.metastores.resolving import WRITER_PREFIX
from eventlog.control.rebuilding import RebuiltRecords
from eventlog.control.records import IDENTITY_KEY, MOVED_KEY, ClusterIdentity, Moved, decode, encode
from eventlog.errors import InvalidArgument, MetadataLost, MetadataMoved

ITEMS_PER_COMMIT = 100
BYTES_PER_COMMIT = 1_000_000
STILL_MS = 2_500  # nodes that run renew their leases every second


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedStore:
    """What was moved: the cluster, and the number of records."""

    cluster: str
    records: int


async def move_records(
    source: MetaStore,
    open_target: Callable[[], Awaitable[MetaStore]],
    *,
    names: tuple[str, str],
    wait: Callable[[int], Awaitable[None]],
    on_progress: Callable[[int, int], None],
) -> MovedStore:
    """Copy all records from `source` to a target, which are called `names`, and leave `source` behind, marked.

    The target is opened, and made if need be, when the source may be left. `wait` sleeps for some milliseconds; `on_progress` gets the
    number of records done and in all.

    Raises:
        MetadataLost: the source holds no cluster.
        MetadataMoved: it was left for yet another store.
        InvalidArgument: nodes are running, or the target holds records of its own.
    """
    before = await source.list("")
    identity = _identity(before, names)
    await wait(STILL_MS)
    listing = await source.list("")
    if listing.revision != before.revision:
        raise InvalidArgument(why=f"nodes of cluster {identity.cluster} are running on {names[0]}; stop them all first")
    items = [item for item in listing.items if item.key not in (IDENTITY_KEY, MOVED_KEY) and not item.key.startswith(WRITER_PREFIX)]
    records = {item.key: item.value for item in items}
    target = await open_target()
    await _check_target(target, records, names[1])
    await _put(target, records, on_progress=on_progress)
    left = next((item.revision for item in listing.items if item.key == MOVED_KEY), 0)
    await source.commit({MOVED_KEY: left, IDENTITY_KEY: _revision(listing)}, puts={MOVED_KEY: encode(Moved(to=names[1]))})
    moved = msgspec.structs.replace(identity, copies=identity.copies + 1)
    await target.commit({IDENTITY_KEY: 0}, puts={IDENTITY_KEY: encode(moved)})
    on_progress(len(items) + 1, len(items) + 1)
    return MovedStore(cluster=identity.cluster, records=len(items) + 1)


async def put_rebuilt(target: MetaStore, rebuilt: RebuiltRecords, *, name: str) -> None:
    """Put records that were made again into an empty store, called `name`, the identity last.

    Raises:
        InvalidArgument: the target holds records of its own.
    """
    await _check_target(target, rebuilt.records, name)
    await _put(target, rebuilt.records, on_progress=lambda _done, _total: None)
    await target.commit({IDENTITY_KEY: 0}, puts={IDENTITY_KEY: encode(rebuilt.identity)})


async def _put(target: MetaStore, records: Mapping[str, bytes], *, on_progress: Callable[[int, int], None]) -> None:
    done = 0
    for chunk in _chunks(records):
        await target.commit({}, puts=chunk)
        done += len(chunk)
        on_progress(done, len(records) + 1)


def _identity(listing: Listing, names: tuple[str, str]) -> ClusterIdentity:
    found = {item.key: item.value for item in listing.items}
    if IDENTITY_KEY not in found:
        raise MetadataLost(where=names[0], why="it holds no cluster")
    if MOVED_KEY in found and (to := decode(found[MOVED_KEY], Moved, where=MOVED_KEY).to) != names[1]:
        raise MetadataMoved(where=names[0], to=to)
    return decode(found[IDENTITY_KEY], ClusterIdentity, where=IDENTITY_KEY)


def _revision(listing: Listing) -> int:
    return next(item.revision for item in listing.items if item.key == IDENTITY_KEY)


async def _check_target(target: MetaStore, records: Mapping[str, bytes], name: str) -> None:
    """Refuse a target with anything but what an earlier, broken-off move of the same records left there."""
    for item in (await target.list("")).items:
        if not item.key.startswith(WRITER_PREFIX) and records.get(item.key) != item.value:
            raise InvalidArgument(why=f"{name} holds {item.key} already; records are put into an empty store")


def _chunks(records: Mapping[str, bytes]) -> list[dict[str, bytes]]:
    chunks: list[dict[str, bytes]] = []
    size = BYTES_PER_COMMIT + 1
    for key, value in records.items():
        if size + len(value) > BYTES_PER_COMMIT or len(chunks[-1]) == ITEMS_PER_COMMIT:
            chunks.append({})
            size = 0
        chunks[-1][key] = value
        size += len(value)
    return chunks
