"""The port of the metadata store: few keys, changed all or nothing, never forgotten. No store's words leak through it.

Revisions count the commits of the whole store from 1; a key's revision is that of the commit which put it last, 0 when it is not
there. What an adapter promises:

1. `commit` is atomic and durable when it returns; of two that expect the same revision of a key, one conflicts.
2. `get` and `list` see every commit that returned, at any node, before they were called (linearizable); `list` is one snapshot.
3. `watch` delivers every revision's changes once, in order, or says that it cannot.
4. An error of `commit` other than a conflict or a refusal says by its `outcome` whether the commit may have happened.
5. A store that is lost, emptied or damaged is named (`MetadataLost`) and never taken for an empty one.

Leases are hints about which nodes are alive. Nothing may be safe because of them.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from eventlog.errors import InvalidArgument, TooLarge

OPERATIONS_MAX = 128  # per commit; what etcd takes unless it is told otherwise
VALUE_BYTES_MAX = 1_500_000  # etcd's request limit is 1.5 MiB
KEY_CHARACTERS_MAX = 512
REVISIONS_KEPT = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A key that is there."""

    key: str
    value: bytes
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """Items in order of their keys, all as of `revision`, the store's latest."""

    items: tuple[Item, ...]
    revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemChange:
    """What a commit did to one key; `value` is None where it was deleted."""

    key: str
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionChanges:
    """What the commit of one revision changed, as far as it was asked for."""

    revision: int
    changes: tuple[ItemChange, ...]


class Lease(Protocol):
    """Keys put under it are deleted soon after nobody renewed it for its time to live."""

    @property
    def number(self) -> int:
        """What `commit` takes; never 0."""
        ...

    async def renew(self) -> None:
        """Begin its time to live anew.

        Raises:
            LookupError: it has ended; its keys are gone.
        """
        ...

    async def end(self) -> None:
        """Delete its keys now; ending twice is harmless."""
        ...


class MetaStore(Protocol):
    """A metadata store, opened."""

    async def get(self, key: str) -> Item | None:
        """Return the item, None when the key is not there."""
        ...

    async def list(self, prefix: str) -> Listing:
        """Return all items whose keys begin with `prefix`, which may be empty."""
        ...

    async def commit(self, expect: Mapping[str, int], *, puts: Mapping[str, bytes], deletes: Sequence[str] = (), lease: int = 0) -> int:
        """Put and delete if every expected key has its expected revision (0: is not there); return the new revision.

        Puts belong to `lease` from now on (0: to none). Deleting what is not there changes nothing.

        Raises:
            MetadataConflict: names a key that has another revision; nothing was changed.
            MetadataUnavailable: nothing was changed, or, with `outcome` "unknown", perhaps.
            LookupError: there is no such lease; nothing was changed.
        """
        ...

    def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[RevisionChanges, None]:
        """Yield the changes under `prefix` of each revision `>= from_revision`, as they come, until it is closed.

        To go on from a listing, pass its revision + 1; to resume, the last revision yielded + 1.

        Raises:
            LookupError: the store has forgotten revisions that were asked for; list again.
        """
        ...

    async def lease(self, ttl_s: int) -> Lease:
        """Return a new lease that lives `ttl_s` >= 1 seconds unless it is renewed."""
        ...

    async def close(self) -> None:
        """Let go of the store; watches end. Closing twice is harmless."""
        ...


def check_commit(expect: Mapping[str, int], puts: Mapping[str, bytes], deletes: Sequence[str]) -> None:
    """Refuse what some store would: no operation, too many, a key twice, odd keys, a value too large.

    Raises:
        InvalidArgument: says which.
        TooLarge: a value.
    """
    if not puts and not deletes:
        raise InvalidArgument(why="a commit needs something to put or delete")
    operations = max(len(expect), len(puts) + len(deletes))
    if operations > OPERATIONS_MAX:
        raise InvalidArgument(why=f"a commit of {operations} operations; {OPERATIONS_MAX} are the limit")
    changed = [*puts, *deletes]
    if len(set(changed)) < len(changed):
        raise InvalidArgument(why="a commit puts or deletes a key twice")
    for key in {*expect, *changed}:
        if not 0 < len(key) <= KEY_CHARACTERS_MAX or not key.isascii() or not key.isprintable():
            raise InvalidArgument(why=f"{key!r} cannot be a metadata key")
    for key, value in puts.items():
        if len(value) > VALUE_BYTES_MAX:
            raise TooLarge(what=f"metadata {key}", size=len(value), limit=VALUE_BYTES_MAX)
