"""Which mirrors there are, and what is changed of them. All of it is one record, so that every change is one write, whole or not at all."""

import re
from collections.abc import Callable
from typing import Final, Literal, TypeAlias

import msgspec

from eventlog.errors import CorruptData, InvalidArgument, MirrorExists, MirrorNotFound, MirrorRuns, Overloaded
from eventlog.ids import ID_MAX
from eventlog.kafka.letters import PARTITIONS, SUFFIX
from eventlog.limits import MIRROR_INTERVAL_MS_DEFAULT, MIRROR_SHARDS_MAX, MIRROR_SHARDS_MIN, MIRRORS_BYTES_MAX, MIRRORS_MAX

State: TypeAlias = Literal["running", "paused"]
FormatName: TypeAlias = Literal["debezium", "upsert", "raw"]
EncodingName: TypeAlias = Literal["json", "json-schema", "avro"]
OnTooLarge: TypeAlias = Literal["halt", "dead-letter"]
Complaints: TypeAlias = tuple[tuple[bool, str], ...]
FORMATS: Final = ("debezium", "upsert", "raw")
ENCODINGS: Final = ("json", "json-schema", "avro")
ON_TOO_LARGE: Final = ("halt", "dead-letter")
INTERVAL_MS_MAX: Final = 60_000
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_TOPIC: Final = re.compile(r"(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}")


class Mirror(msgspec.Struct, frozen=True, kw_only=True):
    """A cache that is written into a topic, from behind `from_id` on; with `has_snapshot` its entries first, and what follows them.

    Segment s goes to partition s % `partitions`, partition p is written by shard p % `shards`. `generation` is another one after each
    beginning: progress of an earlier one counts no more; `revision` is another one after each change. `kafka` names a connection of the
    node's file, or a broker. `accepts` is the generation in which a forced primary's loss was accepted, 0 for none. `filter` is what the
    topic gets, as it came over the wire; empty: every event. `schema` is the type of a JSON cache's values, an Avro schema or, as
    `schema_type` says, a JSON Schema; empty: none is declared. Of signals those behind `signals_from` count. `registry` names the
    registry that its schemas have ids of, empty: the cluster's. `on_too_large` says what becomes of an event that the topic cannot have.
    """

    name: str
    cache: str
    cache_id: int
    kafka: str
    topic: str
    prefix: str
    partitions: int
    shards: int
    format: FormatName
    encoding: EncodingName
    generation: int
    revision: int = 0
    from_id: int
    has_snapshot: bool = False
    signals_from: int = 0
    key_field: str = "_key"
    has_tombstones: bool = True
    filter: bytes = b""
    interval_ms: int = MIRROR_INTERVAL_MS_DEFAULT
    state: State = "running"
    accepts: int = 0
    topic_settings: dict[str, str] = {}
    schema: str = ""
    schema_type: str = ""
    registry: str = ""
    on_too_large: OnTooLarge = "halt"

    @property
    def has_letters(self) -> bool:
        """Whether what the topic cannot have goes to its dead letters; else the shard stands still."""
        return self.on_too_large == "dead-letter"

    @property
    def letters_topic(self) -> str:
        """The topic of dead letters."""
        return f"{self.topic}{SUFFIX}"

    @property
    def progress_topic(self) -> str:
        """The compacted topic that says how far each segment was written."""
        return f"__{self.prefix}.mirror"

    def topics(self) -> dict[str, int]:
        """Return the topics that it writes into, and how many partitions each has."""
        letters = {self.letters_topic: PARTITIONS} if self.has_letters else {}
        return {self.topic: self.partitions, self.progress_topic: 1, **letters}

    @property
    def listener(self) -> str:
        """The durable listener that holds retention back for it."""
        return listener_of(self.name)


class Book(msgspec.Struct, frozen=True, kw_only=True):
    """The mirrors of a cluster, by name."""

    mirrors: dict[str, Mirror] = {}

    def find(self, name: str) -> Mirror:
        """Return a mirror. Raises MirrorNotFound."""
        if name not in self.mirrors:
            raise MirrorNotFound(mirror=name)
        return self.mirrors[name]

    def added(self, mirror: Mirror) -> "Book":
        """Return the book with one more mirror.

        Raises:
            MirrorExists: one has its name, or writes into a topic that this one does.
            Overloaded: there are as many as there may be.
        """
        for other in self.mirrors.values():
            shared = _shared_topics(other, mirror) if other.kafka == mirror.kafka else set()
            if shared or other.name == mirror.name:
                raise MirrorExists(mirror=other.name, topic=min(shared, default=other.topic))
        if len(self.mirrors) >= MIRRORS_MAX:
            raise Overloaded(what="the number of mirrors", limit=MIRRORS_MAX)
        book = Book(mirrors={**self.mirrors, mirror.name: mirror})
        if len(encode(book)) > MIRRORS_BYTES_MAX:
            raise Overloaded(what="the number of bytes in all mirrors, their schemas among them", limit=MIRRORS_BYTES_MAX)
        return book

    def changed(self, name: str, change: Callable[[Mirror], Mirror]) -> "Book":
        """Return the book with another version of a mirror. Raises MirrorNotFound, and what `change` does."""
        changed = change(found := self.find(name))
        return Book(mirrors={**self.mirrors, name: msgspec.structs.replace(changed, revision=found.revision + 1)})

    def removed(self, name: str) -> "Book":
        """Return the book without a mirror. Raises MirrorNotFound."""
        self.find(name)
        return Book(mirrors={other: mirror for other, mirror in self.mirrors.items() if other != name})


def paused(mirror: Mirror) -> Mirror:
    """Return a mirror that stands still."""
    return msgspec.structs.replace(mirror, state="paused")


def resumed(mirror: Mirror, *, accepts_diverged: bool) -> Mirror:
    """Return a mirror that goes on; with `accepts_diverged` also from places that a forced primary gave up."""
    accepts = mirror.generation if accepts_diverged else mirror.accepts
    return msgspec.structs.replace(mirror, state="running", accepts=accepts)


def reset(mirror: Mirror, *, from_id: int, generation: int, signals_from: int, has_snapshot: bool = False) -> Mirror:
    """Return a mirror that begins anew behind an id, or with the entries that there are.

    Raises:
        MirrorRuns: it is not paused: what its shards have in hand would come behind the new beginning.
    """
    if mirror.state != "paused":
        raise MirrorRuns(mirror=mirror.name)
    assert generation != mirror.generation, "progress of the old generation must not count"
    return msgspec.structs.replace(mirror, from_id=from_id, generation=generation, signals_from=signals_from, has_snapshot=has_snapshot)


def came_to(mirror: Mirror, acknowledged: int) -> int:
    """Return up to which id a mirror is known to have written where its listener has come to an id.

    A listener begins at the end of the log and never goes back, also where the mirror begins earlier, or again. So what lay there when
    the mirror began tells nothing, and it may be at its beginning still.
    """
    return acknowledged if acknowledged > mirror.signals_from else mirror.from_id


def altered(mirror: Mirror, *, interval_ms: int | None = None, on_too_large: OnTooLarge | None = None) -> Mirror:
    """Return a mirror that goes on in another way, where it was. What its records are stays: a topic is of one kind throughout.

    Raises:
        InvalidArgument: naming what cannot be.
    """
    wanted = {"interval_ms": interval_ms, "on_too_large": on_too_large}
    found = msgspec.structs.replace(mirror, **{name: value for name, value in wanted.items() if value is not None})
    _refuse(_of_handling(found))
    return found


def _shared_topics(one: Mirror, other: Mirror) -> set[str]:
    """Return the topics that one writes into and the other has for something else. Both may have their progress in one."""
    own, others = {one.topic, one.letters_topic}, {other.topic, other.letters_topic}
    return own & others | own & {other.progress_topic} | others & {one.progress_topic}


def _of_handling(mirror: Mirror) -> Complaints:
    return (
        (mirror.on_too_large not in ON_TOO_LARGE, f"on_too_large {mirror.on_too_large!r}: use {', '.join(ON_TOO_LARGE)}"),
        (not 1 <= mirror.interval_ms <= INTERVAL_MS_MAX, f"the interval is {mirror.interval_ms} ms: give 1 to {INTERVAL_MS_MAX}"),
    )


def _refuse(complaints: Complaints) -> None:
    for is_wrong, why in complaints:
        if is_wrong:
            raise InvalidArgument(why=why)


def checked(mirror: Mirror, *, segments: int, has_before: bool, has_state: bool) -> Mirror:
    """Return `mirror` if it can be carried out on a cache.

    Raises:
        InvalidArgument: naming what cannot.
    """
    divides = 1 <= mirror.shards <= mirror.partitions and mirror.partitions % mirror.shards == 0
    lacks = (
        "keeps no before-images: use --format upsert, or alter the cache with --before first"
        if has_state
        else "keeps no state, so its events say nothing of what they replace: use --format upsert"
    )
    topics = mirror.topics()
    complaints: Complaints = (
        (_NAME.fullmatch(mirror.name) is None, f"mirror {mirror.name!r}: a name is 1 to 100 of A-Z a-z 0-9 . _ -"),
        (
            not all(map(_TOPIC.fullmatch, topics)),
            f"topics {' and '.join(topics)}: Kafka takes 1 to 249 of A-Z a-z 0-9 . _ -",
        ),
        (
            mirror.progress_topic in {mirror.topic, mirror.letters_topic},
            f"topic {mirror.progress_topic} says how far the mirrors of prefix {mirror.prefix} are: give another --topic or --prefix",
        ),
        (
            not 1 <= mirror.partitions <= segments,
            f"partitions is {mirror.partitions}: there are {segments} segments, so give 1 to {segments}",
        ),
        (not divides, f"shards is {mirror.shards}: give a number that divides the {mirror.partitions} partitions"),
        (mirror.format not in FORMATS, f"format {mirror.format!r}: use {', '.join(FORMATS)}"),
        (mirror.encoding not in ENCODINGS, f"encoding {mirror.encoding!r}: use {', '.join(ENCODINGS)}"),
        (
            bool(mirror.registry) and (mirror.encoding != "avro" or mirror.format == "raw"),
            "only records in encoding avro have ids of a registry: leave it out, or give --encoding avro, and another format than raw",
        ),
        *_of_handling(mirror),
        (
            mirror.format == "debezium" and not (has_before and has_state),
            f"cache {mirror.cache!r} {lacks}",
        ),
        (not 0 <= mirror.from_id <= ID_MAX, f"{mirror.from_id} is not an id"),
        (mirror.has_snapshot and not has_state, f"cache {mirror.cache!r} keeps no state, so there is no snapshot of it"),
    )
    _refuse(complaints)
    return mirror


def default_format(*, has_before: bool, has_state: bool) -> tuple[FormatName, str]:
    """Return the format for a cache for which none is asked, and why."""
    if has_before and has_state:
        return "debezium", "the cache keeps before-images"
    return "upsert", "the cache keeps no before-images" if has_state else "the cache keeps no state"


def shards_for(partitions: int, *, nodes: int) -> int:
    """Return how many shards write so many partitions: about two a node, of which each has as many partitions as the others.

    Each has a producer and transactions of its own, which cost the same however few events are in them.
    """
    most = min(partitions, MIRROR_SHARDS_MAX, max(MIRROR_SHARDS_MIN, 2 * nodes))
    return next(count for count in range(most, 0, -1) if partitions % count == 0)


def listener_of(name: str) -> str:
    """Return the id of the durable listener that a mirror of this name has."""
    return f"mirror.{name}"


def encode(book: Book) -> bytes:
    """Return the record of a book."""
    return msgspec.json.encode(book)


def decode(data: bytes, *, where: str) -> Book:
    """Return the book in a record. Raises CorruptData: it is none."""
    try:
        return msgspec.json.decode(data, type=Book)
    except msgspec.MsgspecError as error:
        raise CorruptData(where=where, why=str(error)) from error
