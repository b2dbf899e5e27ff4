"""What a registry answers, and which records it writes: the rules of Confluent's registry, for a registry and a request.

`Refusal` has the codes that its clients know. A question returns the answer, as what becomes JSON; what changes something returns
`Decided`, whose records the caller writes together with the head (`Head.after`), on the condition that the head is the one that was read.

Where we depart from it: a schema's identity is that of its normal form, so `normalize` changes nothing. A version number is not given
out again while its subject has any version left. Names of contexts (`:.context:subject`) are refused. A schema that another one needs is
removed for good only when that one is.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from eventlog.errors import InvalidArgument
from eventlog.limits import (
    SCHEMA_BYTES_MAX,
    SCHEMA_REFERENCES_MAX,
    SCHEMA_TEXTS_BYTES_MAX,
    SCHEMAS_MAX,
    SUBJECT_BYTES_MAX,
    SUBJECT_VERSIONS_MAX,
)
from eventlog.schema.avro_reading import why_not_read
from eventlog.schema.avro_types import AvroTypes
from eventlog.schema.json_reading import why_json_not_read
from eventlog.schema.json_types import JsonTypes
from eventlog.schema.registry import (
    LEVELS,
    MODES,
    TYPES,
    Level,
    Mode,
    Reference,
    Registry,
    Schema,
    SchemaType,
    identity_of,
    read_schema,
    records_of,
    removal_of,
    version_key,
)

LATEST = "latest"
VERSION_MAX = (1 << 31) - 1

SUBJECT_NOT_FOUND = 40401
VERSION_NOT_FOUND = 40402
SCHEMA_NOT_FOUND = 40403
SUBJECT_SOFT_DELETED = 40404
SUBJECT_NOT_SOFT_DELETED = 40405
VERSION_SOFT_DELETED = 40406
VERSION_NOT_SOFT_DELETED = 40407
LEVEL_NOT_SET = 40408
MODE_NOT_SET = 40409
INCOMPATIBLE = 409
INVALID_SCHEMA = 42201
INVALID_VERSION = 42202
INVALID_LEVEL = 42203
INVALID_MODE = 42204
NOT_PERMITTED = 42205
REFERENCE_EXISTS = 42206
INVALID_SUBJECT = 42208
FORWARDING_FAILED = 50003


class Refusal(Exception):
    """What a client is told instead of an answer."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status: the first three digits of the code."""
        return int(str(self.code)[:3])


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryBounds:
    """How much a registry holds: versions of a subject and of all, and bytes of all texts together."""

    subject_versions: int = SUBJECT_VERSIONS_MAX
    versions: int = SCHEMAS_MAX
    texts_bytes: int = SCHEMA_TEXTS_BYTES_MAX


BOUNDS = RegistryBounds()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """An answer, and the records that make it true. `next_id` is the head's from then on, 0 for the same as before."""

    answer: Any
    records: dict[str, Any] = field(default_factory=dict)
    next_id: int = 0


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a request that has a schema. `id` and `version` are for imports; what else clients send is not looked at."""

    schema: str
    schema_type: str | None = msgspec.field(default=None, name="schemaType")
    references: list[dict[str, Any]] | None = None
    id: int | None = None
    version: int | None = None

    @property
    def type(self) -> SchemaType:
        """The type that is named, else Avro."""
        found = (self.schema_type or "AVRO").upper()
        if found not in TYPES:
            raise Refusal(INVALID_SCHEMA, f"Invalid schema type {found[:100]}")
        return found


_read_given = msgspec.json.Decoder(Given).decode


def given_of(body: bytes) -> Given:
    """Return the body of a request.

    Raises:
        Refusal: it is not what it has to be.
    """
    try:
        given = _read_given(body)
    except (ValueError, RecursionError) as error:
        raise Refusal(INVALID_SCHEMA, f"Either the input schema or one its references is invalid: {error}") from error
    size = len(given.schema.encode("utf-8", "surrogatepass"))
    if not given.schema.strip() or size > SCHEMA_BYTES_MAX:
        raise Refusal(INVALID_SCHEMA, f"Invalid schema: it has {size} bytes, of 1 to {SCHEMA_BYTES_MAX}")
    return given


@dataclass(frozen=True, slots=True, kw_only=True)
class _Offered:
    """A schema of a request, taken apart."""

    type: SchemaType
    references: tuple[Reference, ...]
    types: AvroTypes | JsonTypes | None
    identity: bytes


def _offered(registry: Registry, given: Given) -> _Offered:
    try:
        references = tuple(_references(registry, given.references or []))
        types = read_schema(registry, given.type, given.schema, references)
    except InvalidArgument as error:
        raise Refusal(INVALID_SCHEMA, f"Invalid schema: {error}") from error
    normal = given.schema.strip() if types is None else types.normal
    return _Offered(type=given.type, references=references, types=types, identity=identity_of(given.type, normal, references))


def _references(registry: Registry, given: Sequence[dict[str, Any]]) -> Iterable[Reference]:
    if len(given) > SCHEMA_REFERENCES_MAX:
        raise InvalidArgument(why=f"a schema refers to at most {SCHEMA_REFERENCES_MAX} others")
    names = set()
    for one in given:
        name, subject, version = (one.get(part) for part in ("name", "subject", "version"))
        if not isinstance(name, str) or not isinstance(subject, str) or type(version) is not int:
            raise InvalidArgument(why="a reference has a name, a subject and the number of a version")
        if name in names:
            raise InvalidArgument(why=f"the name {name[:200]!r} is referred to twice")
        names.add(name)
        live = registry.live(subject)
        yield Reference(name=name, subject=subject, version=live[-1] if version == -1 and live else version)


# ---------------------------------------------------------------- schemas


def register(registry: Registry, subject: str, given: Given, *, bounds: RegistryBounds = BOUNDS) -> Decided:
    """Add a version with a schema to a subject, unless one that is there has it.

    Raises:
        Refusal: it is no schema, cannot follow those that are there, or nothing may be added.
    """
    check_subject(subject)
    offered = _offered(registry, given)
    known = registry.ids.get(offered.identity)
    for number in reversed(registry.live(subject)):
        if registry.subjects[subject][number].id == known and given.id in {None, known} and given.version in {None, number}:
            return Decided(answer=described(registry, subject, number))
    mode = registry.mode(subject)
    if mode == "READONLY":
        raise Refusal(NOT_PERMITTED, f"Subject {subject} is in read-only mode")
    if (mode == "IMPORT") != (given.id is not None):
        raise Refusal(NOT_PERMITTED, f"Subject {subject} is not in {'import' if given.id is not None else 'read-write'} mode")
    if mode != "IMPORT":
        if given.version not in {None, -1, registry.last.get(subject, 0) + 1}:
            raise Refusal(NOT_PERMITTED, f"The next version of subject {subject} is {registry.last.get(subject, 0) + 1}")
        if why := _incompatible(registry, subject, offered, registry.level(subject)):
            message = "Schema being registered is incompatible with an earlier schema for subject"
            raise Refusal(INCOMPATIBLE, f'{message} "{subject}", details: {why}')
    size = 0 if offered.identity in registry.ids else len(given.schema.encode())
    if len(registry.subjects.get(subject, ())) >= bounds.subject_versions:
        raise Refusal(NOT_PERMITTED, f"A subject has at most {bounds.subject_versions} versions, deleted ones included")
    if registry.versions_count >= bounds.versions or registry.texts_bytes + size > bounds.texts_bytes:
        raise Refusal(NOT_PERMITTED, f"The registry holds at most {bounds.versions} versions and {bounds.texts_bytes} bytes of schemas")
    return _added(registry, subject, given, offered)


def _added(registry: Registry, subject: str, given: Given, offered: _Offered) -> Decided:
    schema_id = _id_of(registry, given, offered)
    number = given.version if given.id is not None and given.version is not None else registry.last.get(subject, 0) + 1
    if not 1 <= number <= VERSION_MAX:
        raise Refusal(INVALID_VERSION, f"The specified version '{number}' is not a valid version id")
    if number in registry.subjects.get(subject, {}):
        raise Refusal(NOT_PERMITTED, f"Overwriting version {number} of subject {subject} is not permitted")
    schema = Schema(id=schema_id, type=offered.type, text=given.schema, references=offered.references, identity=offered.identity)
    records = {} if schema_id in registry.schemas else records_of(schema)
    records[version_key(subject, number)] = {"id": schema_id, "deleted": False}
    records[f"subject/{subject}"] = {"last": max(number, registry.last.get(subject, 0))}
    return Decided(answer=_description(schema, subject, number), records=records, next_id=max(registry.head.next_id, schema_id + 1))


def _id_of(registry: Registry, given: Given, offered: _Offered) -> int:
    """Return the id of a schema: the one it has, the one that an import gives it, or the next."""
    known = registry.ids.get(offered.identity)
    if given.id is None:
        return known or registry.head.next_id
    if not 1 <= given.id <= VERSION_MAX:
        raise Refusal(NOT_PERMITTED, f"{given.id} is not a valid schema id")
    if known not in {None, given.id}:
        raise Refusal(NOT_PERMITTED, f"The schema has id {known} already, not {given.id}")
    if known is None and given.id in registry.schemas:
        raise Refusal(NOT_PERMITTED, f"Overwriting the schema with id {given.id} is not permitted")
    return given.id


def look_up(registry: Registry, subject: str, given: Given, *, deleted: bool = False) -> dict[str, Any]:
    """Return the version of a subject that has a schema, the newest such."""
    versions = _versions(registry, subject, deleted=deleted)
    known = registry.ids.get(_offered(registry, given).identity)
    for number in reversed(versions):
        if registry.subjects[subject][number].id == known:
            return described(registry, subject, number)
    raise Refusal(SCHEMA_NOT_FOUND, "Schema not found")


def described(registry: Registry, subject: str, number: int) -> dict[str, Any]:
    """Return a version as clients read it."""
    found = _description(registry.schema_of(subject, number), subject, number)
    return found | {"deleted": True} if registry.subjects[subject][number].is_deleted else found


def _description(schema: Schema, subject: str, number: int) -> dict[str, Any]:
    found: dict[str, Any] = {"subject": subject, "version": number, "id": schema.id, "guid": schema.guid, "schemaType": schema.type}
    if schema.references:
        found["references"] = [{"name": one.name, "subject": one.subject, "version": one.version} for one in schema.references]
    return found | {"schema": schema.text}


def schema_by_id(registry: Registry, id: int, *, subject: str = "", with_max: bool = False) -> dict[str, Any]:
    """Return a schema; where several versions have it, one of `subject` is named if there is one."""
    schema = _schema(registry, id)
    numbers = [number for number, one in registry.subjects.get(subject, {}).items() if one.id == id]
    name, number = (subject, numbers[-1]) if numbers else min(registry.users[id])
    found = _description(schema, name, number)
    return found | {"maxId": registry.head.next_id - 1} if with_max else found


def schema_by_guid(registry: Registry, guid: str) -> dict[str, Any]:
    """Return a schema by the identity that clients know it by."""
    try:
        found = registry.ids.get(bytes.fromhex(guid.replace("-", "")))
    except ValueError:
        found = None
    if found is None:
        raise Refusal(SCHEMA_NOT_FOUND, f"Schema {guid[:100]} not found")
    return schema_by_id(registry, found)


def users_of(registry: Registry, id: int, *, deleted: bool = False) -> list[tuple[str, int]]:
    """Return the subjects and versions that have a schema, in order."""
    _schema(registry, id)
    return sorted((name, number) for name, number in registry.users[id] if deleted or not registry.subjects[name][number].is_deleted)


def _schema(registry: Registry, id: int) -> Schema:
    found = registry.schemas.get(id)
    if found is None or id not in registry.users:
        raise Refusal(SCHEMA_NOT_FOUND, f"Schema {id} not found")
    return found


# ---------------------------------------------------------------- subjects and versions


def check_subject(subject: str) -> None:
    """Refuse what cannot name a subject.

    Raises:
        Refusal: says so.
    """
    is_plain = subject and subject.isprintable() and not subject.startswith((":.", ":*:"))
    if not is_plain or len(subject.encode("utf-8", "surrogatepass")) > SUBJECT_BYTES_MAX:
        raise Refusal(INVALID_SUBJECT, f"The specified subject {subject[:100]!r} is not a valid subject")


def subjects(registry: Registry, *, prefix: str = "", deleted: bool = False, deleted_only: bool = False) -> list[str]:
    """Return the names of subjects with versions that are not deleted, with `deleted` of all, or of those that have deleted ones only."""
    found = []
    for name in sorted(registry.subjects):
        is_live = bool(registry.live(name))
        if name.startswith(prefix) and (not is_live if deleted_only else deleted or is_live):
            found.append(name)
    return found


def versions(registry: Registry, subject: str, *, deleted: bool = False, deleted_only: bool = False) -> list[int]:
    """Return the numbers of a subject's versions."""
    if deleted_only:
        return [number for number in _versions(registry, subject, deleted=True) if registry.subjects[subject][number].is_deleted]
    return _versions(registry, subject, deleted=deleted)


def _versions(registry: Registry, subject: str, *, deleted: bool) -> list[int]:
    found = list(registry.subjects.get(subject, ())) if deleted else registry.live(subject)
    if not found:
        raise Refusal(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")
    return found


def number_of(word: str) -> int:
    """Return the number of a version, -1 for the latest."""
    if word in {LATEST, "-1"}:
        return -1
    if not (word.isascii() and word.isdigit()) or len(word) > 10 or not 1 <= int(word) <= VERSION_MAX:
        message = 'is not a valid version id. Allowed values are between [1, 2^31-1] and the string "latest"'
        raise Refusal(INVALID_VERSION, f"The specified version '{word[:100]}' {message}")
    return int(word)


def version(registry: Registry, subject: str, word: str, *, deleted: bool = False) -> dict[str, Any]:
    """Return a version of a subject."""
    number = number_of(word)
    found = _versions(registry, subject, deleted=deleted)
    if number == -1:
        number = found[-1]
    if number not in found:
        raise Refusal(VERSION_NOT_FOUND, f"Version {number} not found.")
    return described(registry, subject, number)


def referring(registry: Registry, subject: str, word: str) -> list[int]:
    """Return the ids of schemas that need a version."""
    number = version(registry, subject, word, deleted=True)["version"]
    return sorted(registry.referring.get((subject, number), ()))


def delete_subject(registry: Registry, subject: str, *, permanent: bool = False) -> Decided:
    """Delete the versions of a subject; with `permanent` remove those that are deleted, and the subject.

    Raises:
        Refusal: there is nothing to delete, or something needs it.
    """
    _check_writable(registry, subject)
    everything = _versions(registry, subject, deleted=True)
    live = registry.live(subject)
    if permanent and live:
        raise Refusal(SUBJECT_NOT_SOFT_DELETED, f"Subject '{subject}' was not deleted first before being permanently deleted")
    if not permanent and not live:
        raise Refusal(SUBJECT_SOFT_DELETED, f"Subject '{subject}' was soft deleted.Set permanent=true to delete permanently")
    chosen = everything if permanent else live
    _check_unneeded(registry, subject, chosen, permanent=permanent)
    records = _removed(registry, subject, chosen) if permanent else _deleted(registry, subject, chosen)
    for kind, settings in (("config", registry.levels), ("mode", registry.modes)):
        if subject in settings:
            records[f"{kind}/{subject}"] = None
    return Decided(answer=chosen, records=records)


def delete_version(registry: Registry, subject: str, word: str, *, permanent: bool = False) -> Decided:
    """Delete a version; with `permanent` remove one that is deleted.

    Raises:
        Refusal: there is none, or something needs it.
    """
    number = number_of(word)
    _check_writable(registry, subject)
    everything = _versions(registry, subject, deleted=True)
    if number == -1:
        number = (everything if permanent else registry.live(subject) or everything)[-1]
    if number not in everything:
        raise Refusal(VERSION_NOT_FOUND, f"Version {number} not found.")
    is_deleted = registry.subjects[subject][number].is_deleted
    if is_deleted and not permanent:
        message = f"Subject '{subject}' Version {number} was soft deleted.Set permanent=true to delete permanently"
        raise Refusal(VERSION_SOFT_DELETED, message)
    if permanent and not is_deleted:
        message = f"Subject '{subject}' Version {number} was not deleted first before being permanently deleted"
        raise Refusal(VERSION_NOT_SOFT_DELETED, message)
    _check_unneeded(registry, subject, [number], permanent=permanent)
    records = _removed(registry, subject, [number]) if permanent else _deleted(registry, subject, [number])
    return Decided(answer=number, records=records)


def _check_unneeded(registry: Registry, subject: str, numbers: Iterable[int], *, permanent: bool) -> None:
    """Refuse to delete what a schema needs that stays and is not deleted; to remove it, what any schema needs that stays."""
    gone = {(subject, number) for number in numbers}
    for _, number in sorted(gone):
        for needing in registry.referring.get((subject, number), ()):
            staying = registry.users[needing] - gone
            if any(permanent or not registry.subjects[name][other].is_deleted for name, other in staying):
                message = f"One or more references exist to the schema {{subject={subject},version={number}}}."
                raise Refusal(REFERENCE_EXISTS, message)


def _deleted(registry: Registry, subject: str, numbers: Iterable[int]) -> dict[str, Any]:
    found = registry.subjects[subject]
    return {version_key(subject, number): {"id": found[number].id, "deleted": True} for number in numbers}


def _removed(registry: Registry, subject: str, numbers: Sequence[int]) -> dict[str, Any]:
    """Return the records that remove versions, and schemas that no version has any more."""
    records: dict[str, Any] = {version_key(subject, number): None for number in numbers}
    gone = {(subject, number) for number in numbers}
    for schema_id in {registry.subjects[subject][number].id for number in numbers}:
        if registry.users[schema_id] <= gone:
            records |= removal_of(registry.schemas[schema_id])
    if len(numbers) == len(registry.subjects[subject]):
        records[f"subject/{subject}"] = None
    return records


def _check_writable(registry: Registry, subject: str) -> None:
    if registry.mode(subject) == "READONLY":
        what = f"Subject {subject}" if subject else "The registry"
        raise Refusal(NOT_PERMITTED, f"{what} is in read-only mode")


# ---------------------------------------------------------------- compatibility


def compatibility(registry: Registry, subject: str, word: str | None, given: Given) -> list[str]:
    """Return why a schema cannot follow a version of a subject (None: those that its level asks for), nothing if it can."""
    check_subject(subject)
    offered = _offered(registry, given)
    level = registry.level(subject)
    if word is None:
        why = _incompatible(registry, subject, offered, level)
        return [why] if why else []
    number = number_of(word)
    live = registry.live(subject)
    if number == -1 and not live:
        return []
    if number != -1 and number not in live:  # where there is no subject, too: so do Confluent's say it
        raise Refusal(VERSION_NOT_FOUND, f"Version {number} not found.")
    why = _why_incompatible(registry, offered, registry.schema_of(subject, number if number != -1 else live[-1]), level)
    return [why] if why else []


def _incompatible(registry: Registry, subject: str, offered: _Offered, level: Level) -> str:
    """Return why a schema cannot be the next version of a subject, empty if it can."""
    live = registry.live(subject)
    numbers = reversed(live) if level.endswith("_TRANSITIVE") else live[-1:]
    for number in numbers:
        if why := _why_incompatible(registry, offered, registry.schema_of(subject, number), level):
            return f"version {number}: {why}"
    return ""


def _why_incompatible(registry: Registry, offered: _Offered, old: Schema, level: Level) -> str:
    if level == "NONE":
        return ""
    if old.type != offered.type:
        return f"it is of type {old.type}, and the new schema of type {offered.type}"
    new_types, old_types = offered.types, read_schema(registry, old.type, old.text, old.references)
    if level.startswith(("BACKWARD", "FULL")) and (why := _why_not(reader=new_types, writer=old_types)):
        return f"the new schema cannot read what the old one wrote: {why}"
    if level.startswith(("FORWARD", "FULL")) and (why := _why_not(reader=old_types, writer=new_types)):
        return f"the old schema cannot read what the new one writes: {why}"
    return ""


def _why_not(*, reader: AvroTypes | JsonTypes | None, writer: AvroTypes | JsonTypes | None) -> str:
    if isinstance(reader, AvroTypes) and isinstance(writer, AvroTypes):
        return why_not_read(reader=reader, writer=writer)
    if isinstance(reader, JsonTypes) and isinstance(writer, JsonTypes):
        return why_json_not_read(reader=reader, writer=writer)
    return ""  # Protobuf


# ---------------------------------------------------------------- settings


def level_of(registry: Registry, subject: str, *, default_to_global: bool = False) -> Level:
    """Return the level of a subject, or of all."""
    if subject and subject not in registry.levels and not default_to_global:
        raise Refusal(LEVEL_NOT_SET, f"Subject '{subject}' does not have subject-level compatibility configured")
    return registry.level(subject)


def mode_of(registry: Registry, subject: str, *, default_to_global: bool = False) -> Mode:
    """Return the mode of a subject, or of all."""
    if subject and subject not in registry.modes and not default_to_global:
        raise Refusal(MODE_NOT_SET, f"Subject '{subject}' does not have subject-level mode configured")
    return registry.mode(subject)


def set_level(registry: Registry, subject: str, level: Any) -> Decided:
    """Set the level of a subject, or of all.

    Raises:
        Refusal: there is no such level, or nothing may be changed.
    """
    if subject:
        check_subject(subject)
    word = level.upper() if isinstance(level, str) else level
    if word not in LEVELS:
        raise Refusal(INVALID_LEVEL, f"Invalid compatibility level. Valid values are {', '.join(LEVELS)}")
    _check_writable(registry, subject)
    return _changed_setting(f"config/{subject}", registry.levels.get(subject), word, answer={"compatibility": word})


def set_mode(registry: Registry, subject: str, mode: Any, *, force: bool = False) -> Decided:
    """Set the mode of a subject, or of all.

    Raises:
        Refusal: there is no such mode, or there are versions, beside which none can be imported; `force` does so all the same.
    """
    if subject:
        check_subject(subject)
    word = mode.upper() if isinstance(mode, str) else mode
    if word not in MODES:
        raise Refusal(INVALID_MODE, f"Invalid mode. Valid values are {', '.join(MODES)}")
    is_used = subject in registry.subjects if subject else bool(registry.subjects)
    if word == "IMPORT" and is_used and not force and registry.mode(subject) != "IMPORT":
        raise Refusal(NOT_PERMITTED, "Cannot import since found existing subjects")
    return _changed_setting(f"mode/{subject}", registry.modes.get(subject), word, answer={"mode": word})


def remove_level(registry: Registry, subject: str) -> Decided:
    """Remove what is set, of a subject or of all; the answer is what it was.

    Raises:
        Refusal: nothing is set of the subject; Confluent's registry names the subject then, and the setting where it is read.
    """
    _check_set(registry.levels, subject)
    found = level_of(registry, subject)
    _check_writable(registry, subject)
    return _changed_setting(f"config/{subject}", registry.levels.get(subject), None, answer={"compatibilityLevel": found})


def remove_mode(registry: Registry, subject: str) -> Decided:
    """Remove what is set, of a subject or of all; the answer is what it was. Raises Refusal: as `remove_level` does."""
    _check_set(registry.modes, subject)
    found = mode_of(registry, subject)
    return _changed_setting(f"mode/{subject}", registry.modes.get(subject), None, answer={"mode": found})


def _check_set(settings: Mapping[str, str], subject: str) -> None:
    if subject and subject not in settings:
        raise Refusal(SUBJECT_NOT_FOUND, f"Subject '{subject}' not found.")


def _changed_setting(key: str, old: Any, new: Any, *, answer: Any) -> Decided:
    if old == new:
        return Decided(answer=answer)
    return Decided(answer=answer, records={key: None if new is None else {"is": new}})
