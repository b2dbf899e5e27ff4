"""Creating, altering and dropping caches. Ids grow and are never given out again; a name may be used again after a drop.

The plans are pure; `CacheRecords` at the end is their driver: it reads the book, commits what was planned, and on a conflict does so
again. Any task may use it.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec
from xxhash import xxh3_64_hexdigest

from eventlog.control.metastore import VALUE_BYTES_MAX, Listing, MetaStore
from eventlog.control.records import (
    CACHE_DROPPED_PREFIX,
    CACHE_NEXT_KEY,
    CACHE_PREFIX,
    CACHES_SCOPE,
    CacheDroppedRecord,
    CacheNext,
    CacheOptions,
    CacheRecord,
    CommitPlan,
    Format,
    Versioned,
    cache_key,
    decode,
    dropped_key,
    encode,
)
from eventlog.errors import (
    BadName,
    CacheDiffers,
    CacheExists,
    CacheNotFound,
    InvalidArgument,
    MetadataConflict,
    Overloaded,
    TooLarge,
    Unalterable,
)
from eventlog.limits import (
    ARCHIVE_BYTES_MAX,
    CACHE_NAME_BYTES_MAX,
    CACHES_MAX,
    CHECKED_SCHEMA_BYTES_MAX,
    LISTENERS_AWAITED_MAX,
    PROMOTED_FIELDS_MAX,
)
from eventlog.schema.avro import AvroSchema
from eventlog.schema.avro_values import why_not_grown
from eventlog.schema.json_check import JsonCheck
from eventlog.schema.json_types import read_json_schema

UNALTERABLE = ("format", "state", "bytes_keys", "route_by_prefix")
CONFLICTS_MAX = 32  # more hands do not change caches in one moment


assert set(UNALTERABLE) <= set(CacheOptions.__struct_fields__)
# what is stored, and what can be asked
DECISIVE = ("format", "schema", "validate", "bytes_keys", "state", "before", "events", "route_by_prefix")
SCHEMA_BYTES_MAX = VALUE_BYTES_MAX // 2  # JSON escapes it once more
FIRST_CACHE_ID = 1
INTERNAL_PREFIX = "__"  # of the names of the cluster's own caches
SIGNALS = f"{INTERNAL_PREFIX}signals"  # the one of them that clients read and write: what they ask of mirrors
DROPPED_MAX = 1_000  # names of dropped caches that are remembered, the latest ones

_FORGOTTEN_PER_COMMIT_MAX = 10
_PATH = re.compile(r"value(\.[A-Za-z_][A-Za-z0-9_-]{0,99}){1,8}")
_ARCHIVE = re.compile(r"/.*|[a-z][a-z0-9+.-]*://[^/]+.*")
_SECRET = re.compile(r"[^/]*://[^/]*:[^/]*@")
_NAME = re.compile(rf"[a-z0-9][a-z0-9._-]{{0,{CACHE_NAME_BYTES_MAX - 1}}}")


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheBook:
    """All caches by name, and the next id: an id below it that no cache has was dropped. `dropped`: names of the latest such."""

    caches: Mapping[str, Versioned[CacheRecord]]
    next_id: int
    next_revision: int
    dropped: Mapping[int, str] = field(default_factory=dict)

    def find(self, name: str) -> Versioned[CacheRecord]:
        """Return the cache of this name.

        Raises:
            CacheNotFound: there is none.
        """
        found = self.caches.get(name)
        if found is None:
            raise CacheNotFound(cache=name)
        return found


def read_book(listing: Listing) -> CacheBook:
    """Return the caches in a listing of `CACHES_SCOPE`.

    Raises:
        CorruptData: a record is damaged.
    """
    caches, dropped = {}, {}
    counter = Versioned(CacheNext(id=FIRST_CACHE_ID), 0)
    for item in listing.items:
        if item.key.startswith(CACHE_PREFIX):
            record = decode(item.value, CacheRecord, where=item.key)
            caches[record.name] = Versioned(record, item.revision)
        elif item.key == CACHE_NEXT_KEY:
            counter = Versioned(decode(item.value, CacheNext, where=item.key), item.revision)
        elif (number := item.key.removeprefix(CACHE_DROPPED_PREFIX)) != item.key and number.isdecimal():
            dropped[int(number)] = decode(item.value, CacheDroppedRecord, where=item.key).name
    return CacheBook(caches=caches, next_id=counter.record.id, next_revision=counter.revision, dropped=dropped)


def plan_create(
    book: CacheBook, name: str, given: Mapping[str, Any], *, from_id: int, is_internal: bool = False
) -> tuple[CacheRecord, CommitPlan]:
    """Return the new cache, and the commit that creates it; `given` are the options not left to their defaults.

    The names of the cluster's own caches are for `is_internal` alone.

    Raises:
        BadName, InvalidArgument, TooLarge: the name or an option cannot be used; says which.
        CacheExists: there is one of this name.
        Overloaded: there are `CACHES_MAX` caches.
    """
    check_name(name.removeprefix(INTERNAL_PREFIX) if is_internal else name)
    options = options_of(given)
    if name in book.caches:
        raise CacheExists(cache=name)
    if len(book.caches) >= CACHES_MAX:
        raise Overloaded(what="the number of caches", limit=CACHES_MAX)
    record = CacheRecord(id=book.next_id, name=name, options=options, from_id=from_id)
    expect = {cache_key(name): 0, CACHE_NEXT_KEY: book.next_revision}
    puts = {cache_key(name): encode(record), CACHE_NEXT_KEY: encode(CacheNext(id=book.next_id + 1))}
    return record, CommitPlan(expect=expect, puts=puts)


def check_alike(record: CacheRecord, given: Mapping[str, Any]) -> None:
    """Refuse to use an existing cache in place of a new one that would hold something else; limits and waiting may differ.

    Raises:
        CacheDiffers: names the option.
    """
    options, wanted = record.options, options_of(given)
    for name in (option for option in DECISIVE if option in given):
        found, other = getattr(options, name), getattr(wanted, name)
        if name == "schema" and found and other and options.format == wanted.format:
            is_alike = _are_alike(found, other, options.format)
        else:
            is_alike = found == other
        if not is_alike:
            option, *texts = _spelled(name, found, other)
            raise CacheDiffers(cache=record.name, option=option, found=texts[0], wanted=texts[1])


def _are_alike(found: str, wanted: str, format: Format) -> bool:
    """Return whether a client that asks for one schema can use a cache that has the other: one that has grown since is as good."""
    if format == "avro":
        return not why_not_grown(AvroSchema(wanted), AvroSchema(found))
    return read_json_schema(found).normal == read_json_schema(wanted).normal


def _spelled(option: str, *values: Any) -> list[str]:
    """Return an option and its values as users write them."""
    if option == "bytes_keys":
        return ["key_format", *("bytes" if value else "utf8" for value in values)]
    if option == "schema":
        return ["schema", *(f"with fingerprint {xxh3_64_hexdigest(value.encode())}" if value else "none" for value in values)]
    return [option, *(str(value).lower() for value in values)]


def plan_alter(book: CacheBook, name: str, given: Mapping[str, Any], *, from_id: int) -> tuple[CacheRecord, CommitPlan | None]:
    """Return the cache as it is after the alteration, and the commit, None where nothing changes.

    Raises:
        CacheNotFound: there is none of this name.
        Unalterable: an option that is fixed at creation would change.
        InvalidArgument, TooLarge: an option cannot be used; says which.
    """
    found = book.find(name)
    old = found.record.options
    options = _checked({**msgspec.structs.asdict(old), **_known(given)})
    for option in UNALTERABLE:
        if getattr(options, option) != getattr(old, option):
            raise Unalterable(option=option)
    if old.format == "avro" and (why := why_not_grown(AvroSchema(old.schema), AvroSchema(options.schema))):
        raise InvalidArgument(why=f"a cache's Avro schema may grow at its end, or stay: {why}")
    if options == old:
        return found.record, None
    record = msgspec.structs.replace(found.record, options=options, from_id=from_id)
    key = cache_key(name)
    return record, CommitPlan(expect={key: found.revision}, puts={key: encode(record)})


def plan_drop(book: CacheBook, name: str) -> tuple[CacheRecord, CommitPlan]:
    """Return the cache and the commit that drops it, and keeps its name for positions that still have its id.

    Raises:
        CacheNotFound: there is none of this name.
    """
    found = book.find(name)
    key = cache_key(name)
    forgotten = sorted(book.dropped)[: max(len(book.dropped) - DROPPED_MAX + 1, 0)][:_FORGOTTEN_PER_COMMIT_MAX]
    return found.record, CommitPlan(
        expect={key: found.revision},
        puts={dropped_key(found.record.id): encode(CacheDroppedRecord(name=name))},
        deletes=(key, *map(dropped_key, forgotten)),
    )


def check_name(name: str) -> None:
    """Refuse what cannot name a cache of a user's.

    Raises:
        BadName: says what can.
    """
    if _NAME.fullmatch(name) is None:
        raise BadName(name=name)


def options_of(given: Mapping[str, Any]) -> CacheOptions:
    """Return the options of a new cache. Before-images are kept for json and avro with state unless told otherwise.

    Raises:
        InvalidArgument, TooLarge: an option cannot be used; says which.
    """
    known = _known(given)
    keeps_images = known.get("format", "json") != "bytes" and bool(known.get("state", True))
    return _checked({"before": keeps_images, **known})


def _known(given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if name not in CacheOptions.__struct_fields__:
            raise InvalidArgument(why=f"{name!r} is not an option of a cache")
    return dict(given)


def _check_promoted(paths: Sequence[str]) -> None:
    if len(paths) > PROMOTED_FIELDS_MAX or len(set(paths)) < len(paths):
        raise InvalidArgument(why=f"at most {PROMOTED_FIELDS_MAX} fields are promoted, each once")
    for path in paths:
        if _PATH.fullmatch(path) is None:
            raise InvalidArgument(why=f"{path!r} is no field: write value.name, or value.name.name")


def _check_archive(archive: str) -> None:
    if len(archive.encode("utf-8", "surrogatepass")) > ARCHIVE_BYTES_MAX:
        raise TooLarge(what="the place of the archive", size=len(archive), limit=ARCHIVE_BYTES_MAX)
    if archive and not (archive.isprintable() and _ARCHIVE.fullmatch(archive)):
        raise InvalidArgument(why=f"archive is {archive!r}: give a path from the root on, or an address, as in s3://archives/orders")
    if _SECRET.match(archive):
        raise InvalidArgument(why="archive has a password in its address, where everybody could read it: leave it out")


def _checked(values: Mapping[str, Any]) -> CacheOptions:
    try:
        options = msgspec.convert(values, CacheOptions)
    except msgspec.ValidationError as error:
        raise InvalidArgument(why=f"cache option: {error}") from error
    if len(options.schema.encode("utf-8", "surrogatepass")) > SCHEMA_BYTES_MAX:
        raise TooLarge(what="the schema", size=len(options.schema), limit=SCHEMA_BYTES_MAX)
    _check_promoted(options.promoted)
    _check_archive(options.archive)
    if options.wait_listeners.count(",") >= LISTENERS_AWAITED_MAX:
        raise InvalidArgument(why=f"writes wait for at most {LISTENERS_AWAITED_MAX} listeners")
    for condition, why in (
        (not options.state and not options.events, "a cache without state and events keeps nothing"),
        (options.before and not options.state, "before-images need state"),
        (options.lifespan_ms and not options.state, "a lifespan needs state"),
        (options.schema and options.format == "bytes", "a schema needs format json or avro: of bytes nobody knows what they say"),
        (options.validate and not options.schema, "values are checked by a schema: give one"),
        (options.promote and options.format != "json", "fields are promoted of JSON values"),
        (options.promote and not options.events, "promoted fields are stored with events"),
        (options.archive and not options.events, "an archive is one of events"),
        (options.format == "avro" and not options.schema, "format avro needs a schema"),
    ):
        if condition:
            raise InvalidArgument(why=why)
    if options.schema:
        check_schema(options.format, options.schema, validates=options.validate)
    return options


@lru_cache(maxsize=16)  # a plan looks at it again with each try
def check_schema(format: str, schema: str, *, validates: bool) -> None:
    """Refuse what is no schema of a format, or cannot be checked by. The worst take a tenth of a second: first in a thread.

    Raises:
        InvalidArgument, TooLarge: says why.
    """
    if validates and len(schema.encode()) > CHECKED_SCHEMA_BYTES_MAX:
        raise TooLarge(what="the schema that values are checked by", size=len(schema), limit=CHECKED_SCHEMA_BYTES_MAX)
    if format == "avro":
        AvroSchema(schema)
    elif validates:
        JsonCheck(schema)
    else:
        read_json_schema(schema)


class CacheRecords:
    """The caches in a metadata store."""

    def __init__(self, store: MetaStore) -> None:
        self._store = store

    async def read(self) -> CacheBook:
        """Return all caches as they are now."""
        return read_book(await self._store.list(CACHES_SCOPE))

    async def create(
        self, name: str, given: Mapping[str, Any], *, from_id: int, use_existing: bool = False, is_internal: bool = False
    ) -> tuple[CacheRecord, bool]:
        """Return the cache, and whether it was made just now; with `use_existing` one that is there already will do if it is alike.

        Raises:
            BadName, InvalidArgument, TooLarge: the name or an option cannot be used; says which.
            CacheExists: there is one of this name.
            CacheDiffers: there is one, `use_existing`, and an option that is given is another there.
            Overloaded: there are too many caches.
        """
        for _ in range(CONFLICTS_MAX):
            book = await self.read()
            try:
                record, plan = plan_create(book, name, given, from_id=from_id, is_internal=is_internal)
                await self._commit(plan)
            except CacheExists:
                if not use_existing:
                    raise
                record = book.caches[name].record
                if not is_internal:  # what those keep may change with a version
                    check_alike(record, given)
                return record, False
            except MetadataConflict:
                continue
            return record, True
        raise MetadataConflict(key=CACHES_SCOPE)

    async def alter(self, name: str, given: Mapping[str, Any], *, from_id: int) -> CacheRecord:
        """Change the given options from `from_id` on; return the cache with all its options.

        Raises:
            CacheNotFound: there is none of this name.
            Unalterable: an option that is fixed at creation would change.
            InvalidArgument, TooLarge: an option cannot be used; says which.
        """
        for _ in range(CONFLICTS_MAX):
            record, plan = plan_alter(await self.read(), name, given, from_id=from_id)
            try:
                if plan is not None:
                    await self._commit(plan)
            except MetadataConflict:
                continue
            return record
        raise MetadataConflict(key=CACHES_SCOPE)

    async def drop(self, name: str) -> CacheRecord:
        """Drop the cache; return what it was. Its name is free at once, its id is never used again.

        Raises:
            CacheNotFound: there is none of this name.
        """
        for _ in range(CONFLICTS_MAX):
            record, plan = plan_drop(await self.read(), name)
            try:
                await self._commit(plan)
            except MetadataConflict:
                continue
            return record
        raise MetadataConflict(key=CACHES_SCOPE)

    async def _commit(self, plan: CommitPlan) -> None:
        await self._store.commit(plan.expect, puts=plan.puts, deletes=plan.deletes)
