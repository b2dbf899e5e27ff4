r"""What a registry of schemas holds, folded from the records that its cache keeps.

A record is an entry: a key, and JSON or nothing. The last one of each key counts, so any node gets the same registry from the entries of
the cache in any order, and goes on from there with the records that were written since:

    head                          revision, the next id, and which keys the last revisions wrote
    schema/ID                     type, references, and the number of parts of the text
    text/ID/PART                  a part of the text: a value has a limit that text with its escapes may pass
    version/SUBJECT\0VERSION       the id of its schema, and whether it is deleted (softly)
    subject/SUBJECT               the last version that was given out
    config/SUBJECT, mode/SUBJECT  where they are set; the empty subject is all of them

Every write replaces the head, on the condition that it is the one that was read: so there is one order of all writes, and ids and versions
are given out without gaps. `Registry` is never changed: `folded` returns another one, and a holder of the old one may go on with it
in a thread.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, Literal, get_args
from uuid import UUID

import msgspec

from eventlog.errors import CorruptData, InvalidArgument
from eventlog.limits import SCHEMA_REFERENCES_MAX
from eventlog.schema.avro_types import AvroTypes, read_avro
from eventlog.schema.json_types import JsonTypes, read_json_schema

SchemaType = Literal["AVRO", "JSON", "PROTOBUF"]
Level = Literal["NONE", "BACKWARD", "BACKWARD_TRANSITIVE", "FORWARD", "FORWARD_TRANSITIVE", "FULL", "FULL_TRANSITIVE"]
Mode = Literal["READWRITE", "READONLY", "IMPORT"]
TYPES: tuple[SchemaType, ...] = get_args(SchemaType)
LEVELS: tuple[Level, ...] = get_args(Level)
MODES: tuple[Mode, ...] = get_args(Mode)
EVERYWHERE = ""  # in place of a subject: all that have no setting of their own
ROUTE = b"registry"
RECENT_MAX = 64  # revisions whose keys the head remembers; a reader further behind reads everything
RECENT_CHARACTERS_MAX = 16 * 1024  # of those keys: the head is written and read with every change
_PART_CHARACTERS = 8 * 1024  # at most 6 bytes each, as JSON escapes a control character: far below the limit of values
Records = Mapping[str, Any]
"""Records to write by key: what becomes JSON, or None to remove the entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """A schema that another one needs, under the name by which it needs it."""

    name: str
    subject: str
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A registered schema. `identity` is the same for all spellings of it."""

    id: int
    type: SchemaType
    text: str
    references: tuple[Reference, ...]
    identity: bytes

    @property
    def guid(self) -> str:
        """The identity as clients want it."""
        return str(UUID(bytes=self.identity))


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    id: int
    is_deleted: bool


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """`recent` are the last revisions, each with its writer's token and the keys that were written; the last one stands last."""

    revision: int = 0
    next_id: int = 1
    recent: list[tuple[int, str, list[str]]] = []

    def after(self, records: Records, *, token: str, next_id: int) -> "Head":
        """Return the head that goes with records."""
        revision = self.revision + 1
        kept = [*self.recent[-(RECENT_MAX - 1) :], (revision, token, list(records))]
        while kept and sum(len(key) for _, _, keys in kept for key in keys) > RECENT_CHARACTERS_MAX:
            kept.pop(0)
        return Head(revision=revision, next_id=next_id, recent=kept)

    def keys_since(self, revision: int) -> set[str] | None:
        """Return the keys written after a revision, None where that is not remembered."""
        found = [keys for number, _, keys in self.recent if number > revision]
        return {key for keys in found for key in keys} if len(found) == self.revision - revision else None

    def remembers(self, revision: int) -> bool:
        """Whether it is known which write made a revision."""
        return any(number == revision for number, _, _ in self.recent)

    def has(self, token: str) -> bool:
        """Whether one of the last writes was this one."""
        return any(other == token for _, other, _ in self.recent)


@dataclass(frozen=True, slots=True, kw_only=True)
class Registry:
    """All that is registered. Versions are in rising order; a subject without any is not there."""

    head: Head = field(default_factory=Head)
    schemas: Mapping[int, Schema] = field(default_factory=dict)
    ids: Mapping[bytes, int] = field(default_factory=dict)  # by identity
    subjects: Mapping[str, Mapping[int, Version]] = field(default_factory=dict)
    last: Mapping[str, int] = field(default_factory=dict)
    users: Mapping[int, frozenset[tuple[str, int]]] = field(default_factory=dict)  # which versions have the schema of an id
    referring: Mapping[tuple[str, int], frozenset[int]] = field(default_factory=dict)  # ids of the schemas that need a version
    levels: Mapping[str, Level] = field(default_factory=dict)
    modes: Mapping[str, Mode] = field(default_factory=dict)
    texts_bytes: int = 0
    versions_count: int = 0

    def level(self, subject: str) -> Level:
        return self.levels.get(subject) or self.levels.get(EVERYWHERE, "BACKWARD")

    def mode(self, subject: str) -> Mode:
        return self.modes.get(subject) or self.modes.get(EVERYWHERE, "READWRITE")

    def live(self, subject: str) -> list[int]:
        """Return the versions of a subject that are not deleted, rising."""
        return [number for number, version in self.subjects.get(subject, {}).items() if not version.is_deleted]

    def schema_of(self, subject: str, version: int) -> Schema:
        return self.schemas[self.subjects[subject][version].id]

    def folded(self, records: Mapping[str, bytes | None]) -> "Registry":
        """Return the registry after records, None being a removal. A text and its schema have to be among the same records.

        Raises:
            CorruptData: a record is not what this module writes.
        """
        folding = _Folding(self)
        for key, value in sorted(records.items()):  # schemas before texts would be without them: `text` is asked for by `schema`
            try:
                folding.take(key, value, records)
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise CorruptData(where=f"the schema registry, {key[:100]!r}", why=f"{type(error).__name__}: {error}") from error
        return folding.result()


class _Folding:
    """Takes records, and copies of a registry only what changes."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._changed: dict[str, Any] = {}
        self._touched: set[str] = set()
        self._marks: dict[tuple[str, Any], set[Any]] = {}

    def _own(self, name: str) -> dict[Any, Any]:
        """Return a mapping of the registry to change."""
        if name not in self._changed:
            self._changed[name] = dict(getattr(self._registry, name))
        found: dict[Any, Any] = self._changed[name]
        return found

    def take(self, key: str, value: bytes | None, records: Mapping[str, bytes | None]) -> None:
        kind, _, rest = key.partition("/")
        found = None if value is None else json.loads(value)
        if kind == "head":
            self._changed["head"] = Head() if found is None else msgspec.convert(found, Head)
        elif kind == "schema":
            self._schema(int(rest), found, records)
        elif kind == "version":
            subject, _, number = rest.rpartition("\0")
            self._version(subject, int(number), found)
        elif kind == "subject":
            _put(self._own("last"), rest, None if found is None else int(found["last"]))
        elif kind in {"config", "mode"}:
            known = LEVELS if kind == "config" else MODES
            _put(self._own("levels" if kind == "config" else "modes"), rest, None if found is None else known[known.index(found["is"])])
        elif kind != "text":
            raise ValueError(f"{kind} is no kind of record")

    def _schema(self, id: int, found: Any, records: Mapping[str, bytes | None]) -> None:
        old = self._own("schemas").pop(id, None)
        texts = self._changed.get("texts_bytes", self._registry.texts_bytes)
        if old is not None:
            texts -= len(old.text.encode())
            self._own("ids").pop(old.identity, None)
            self._refer(old, is_gone=True)
        if found is not None:
            text = "".join(json.loads(records[text_key(id, part)] or b"null") for part in range(found["parts"]))
            references = tuple(msgspec.convert(one, _ReferenceRecord).reference() for one in found["references"])
            new = Schema(
                id=id, type=TYPES[TYPES.index(found["type"])], text=text, references=references, identity=bytes.fromhex(found["identity"])
            )
            self._own("schemas")[id] = new
            self._own("ids")[new.identity] = id
            self._refer(new, is_gone=False)
            texts += len(text.encode())
        self._changed["texts_bytes"] = texts

    def _refer(self, schema: Schema, *, is_gone: bool) -> None:
        for one in schema.references:
            self._mark("referring", (one.subject, one.version), schema.id, is_gone=is_gone)

    def _mark(self, name: str, key: Any, value: Any, *, is_gone: bool) -> None:
        """Add to one of the sets of a mapping, or take from it; they are frozen at the end, for a schema may have thousands of users."""
        marked = self._marks.get((name, key))
        if marked is None:
            marked = self._marks[name, key] = set(getattr(self._registry, name).get(key, ()))
        (marked.discard if is_gone else marked.add)(value)

    def _version(self, subject: str, number: int, found: Any) -> None:
        subjects = self._own("subjects")
        if subject not in self._touched:
            self._touched.add(subject)
            subjects[subject] = dict(subjects.get(subject, {}))
        versions = subjects[subject]
        old = versions.pop(number, None)
        if old is not None:
            self._mark("users", old.id, (subject, number), is_gone=True)
        if found is not None:
            versions[number] = Version(id=int(found["id"]), is_deleted=bool(found["deleted"]))
            self._mark("users", versions[number].id, (subject, number), is_gone=False)
        count = self._changed.get("versions_count", self._registry.versions_count)
        self._changed["versions_count"] = count + (found is not None) - (old is not None)

    def result(self) -> Registry:
        for (name, key), marked in self._marks.items():
            _put(self._own(name), key, frozenset(marked) or None)
        for subject in self._touched:
            versions = self._own("subjects").pop(subject)
            if versions:
                self._own("subjects")[subject] = dict(sorted(versions.items()))
        return replace(self._registry, **self._changed)


class _ReferenceRecord(msgspec.Struct, frozen=True):
    name: str
    subject: str
    version: int

    def reference(self) -> Reference:
        return Reference(name=self.name, subject=self.subject, version=self.version)


def _put(mapping: dict[Any, Any], key: Any, value: Any) -> None:
    if value is None:
        mapping.pop(key, None)
    else:
        mapping[key] = value


# ---------------------------------------------------------------- records


def schema_key(id: int) -> str:
    return f"schema/{id:010}"


def text_key(id: int, part: int) -> str:
    return f"text/{id:010}/{part:04}"


def version_key(subject: str, version: int) -> str:
    return f"version/{subject}\0{version:010}"


def records_of(schema: Schema) -> dict[str, Any]:
    """Return the records of a new schema."""
    parts = [schema.text[at : at + _PART_CHARACTERS] for at in range(0, len(schema.text), _PART_CHARACTERS)]
    references = [{"name": one.name, "subject": one.subject, "version": one.version} for one in schema.references]
    head = {"type": schema.type, "references": references, "parts": len(parts), "identity": schema.identity.hex()}
    return {schema_key(schema.id): head} | {text_key(schema.id, number): part for number, part in enumerate(parts)}


def removal_of(schema: Schema) -> dict[str, Any]:
    """Return the records that remove a schema."""
    return dict.fromkeys(records_of(schema))


def encoded(records: Records) -> dict[str, bytes | None]:
    """Return records as they are stored."""
    return {key: None if value is None else msgspec.json.encode(value) for key, value in records.items()}


# ---------------------------------------------------------------- schemas and those they need


def closure(registry: Registry, references: Iterable[Reference]) -> Iterator[Schema]:
    """Yield the schemas that references lead to, each once, and those that they need before them.

    Raises:
        InvalidArgument: there is none of a subject and version, or they are more than `SCHEMA_REFERENCES_MAX`.
    """
    done: set[int] = set()

    def needed(references: Iterable[Reference]) -> Iterator[Schema]:  # as deep as there may be schemas: none needs itself
        for one in references:
            schema = _referred(registry, one)
            if schema.id in done:
                continue
            if len(done) >= SCHEMA_REFERENCES_MAX:
                raise InvalidArgument(why=f"a schema needs at most {SCHEMA_REFERENCES_MAX} others, those that they need included")
            done.add(schema.id)
            yield from needed(schema.references)
            yield schema

    return needed(references)


def _referred(registry: Registry, reference: Reference) -> Schema:
    if reference.version not in registry.subjects.get(reference.subject, {}):
        raise InvalidArgument(why=f"there is no version {reference.version} of subject {reference.subject!r}, which is referred to")
    return registry.schema_of(reference.subject, reference.version)


def read_schema(registry: Registry, type: SchemaType, text: str, references: tuple[Reference, ...]) -> AvroTypes | JsonTypes | None:
    """Return a schema taken apart, with those that it needs; None for Protobuf, which nobody looks into.

    Raises:
        InvalidArgument: it is no schema, or needs what is not there.
    """
    needed = list(closure(registry, references))
    if type == "PROTOBUF":
        return None
    read: dict[int, AvroTypes | JsonTypes] = {}

    def read_one(text: str, references: tuple[Reference, ...]) -> AvroTypes | JsonTypes:
        others: dict[str, Any] = {one.name: read[registry.schema_of(one.subject, one.version).id] for one in references}
        return read_avro(text, others.values()) if type == "AVRO" else read_json_schema(text, others)

    for schema in needed:
        if schema.type != type:
            raise InvalidArgument(why=f"a schema of type {type} cannot need one of type {schema.type}")
        read[schema.id] = read_one(schema.text, schema.references)
    return read_one(text, references)


def identity_of(type: SchemaType, normal: str, references: tuple[Reference, ...]) -> bytes:
    """Return 16 bytes that are the same for what is the same schema, needing the same others."""
    named = sorted((one.name, one.subject, one.version) for one in references)
    return blake2b(json.dumps([type, normal, named]).encode(), digest_size=16).digest()
