"""What was asked of a registry at any node and answered, and what must hold of all of it together.

Versions: each subject is one object. There has to be an order of all that was asked about it, in which each request stands between its
begin and its end and its answer is what the requests before it make it (linearizability). What is acknowledged and lost, not yet known at
another node, or given out twice or with a gap fits into no such order. The search is that of Wing and Gong, with Lowe's memory of what was
tried.

Ids: one stands for one schema for ever, one schema has one id as long as any version has it, and they have no gaps.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

SUBJECT_NOT_FOUND, VERSION_NOT_FOUND, SCHEMA_NOT_FOUND = 40401, 40402, 40403
SUBJECT_DELETED, SUBJECT_NOT_DELETED = 40404, 40405
VERSION_DELETED, VERSION_NOT_DELETED = 40406, 40407
REFUSALS = frozenset(range(SUBJECT_NOT_FOUND, VERSION_NOT_DELETED + 1))
CHANGES = frozenset({"register", "delete", "delete subject"})
CONFIGURATIONS_MAX = 200_000


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request of `kind` and what it was answered; `began` and `ended` are of one clock.

    `code` is None where nobody knows what became of it, 0 where it was done, otherwise that of the refusal. `answer` is the version of a
    register, a look up and a delete; the versions of a list and of a subject's delete; version and schema of a get; the schema of an id.
    """

    kind: str  # register, look up, list, get, delete, delete subject, id
    node: str = ""
    subject: str = ""
    schema: int = 0
    version: int = 0
    with_deleted: bool = False  # of a list and a get
    is_permanent: bool = False  # of both kinds of delete
    began: float
    ended: float
    code: int | None = 0
    answer: Any = None
    id: int = 0  # that was asked for, or that an answer names

    @property
    def seen(self) -> int:
        """The schema that an answer has with its id, 0 where it has none."""
        if self.code != 0 or not self.id:
            return 0
        return int(self.answer[1]) if self.kind == "get" else int(self.answer) if self.kind == "id" else self.schema


def violations(history: Iterable[Asked]) -> Iterator[str]:
    """Yield what does not hold, a sentence each."""
    asked = list(history)
    for one in asked:
        if one.code and one.code not in REFUSALS:
            yield f"{one} has a code that nobody may be answered"
    yield from _of_ids(asked)
    subjects: dict[str, list[Asked]] = defaultdict(list)
    for one in asked:
        if one.subject and (not one.code or one.code in REFUSALS):
            subjects[one.subject].append(one)
    for subject, own in sorted(subjects.items()):
        if why := unexplained(own):
            yield f"no order explains what was answered about {subject}: {why}"


# ---------------------------------------------------------------- ids


def _of_ids(asked: Sequence[Asked]) -> Iterator[str]:
    wiping = [one for one in asked if one.is_permanent]
    wiped = {one.subject for one in wiping}
    seen = sorted((one for one in asked if one.seen), key=lambda one: one.began)
    yield from _one_schema_an_id(seen)
    held: dict[int, Asked] = {}  # by schema: the first to be answered an id by a subject that nothing is removed from
    for one in sorted(seen, key=lambda one: one.ended):
        if one.subject and one.subject not in wiped and one.kind != "id":
            held.setdefault(one.seen, one)
    yield from _one_id_a_schema(seen, held)
    yield from _missing(asked, wiping, {one.id: one for one in held.values()})
    ids = {one.id for one in seen}
    gaps = set(range(1, max(ids, default=0) + 1)) - ids
    unseen = sum(one.kind == "register" and one.code is None and one.subject in wiped for one in asked)
    if len(gaps) > unseen:
        yield f"ids {sorted(gaps)[:10]} were given to nothing"


def _one_schema_an_id(seen: Sequence[Asked]) -> Iterator[str]:
    schemas: dict[int, int] = {}
    for one in seen:
        if schemas.setdefault(one.id, one.seen) != one.seen:
            yield f"id {one.id} is that of schema {schemas[one.id]} and of schema {one.seen}"


def _one_id_a_schema(seen: Sequence[Asked], held: dict[int, Asked]) -> Iterator[str]:
    """Compare the ids of a schema: the same once a version has it for ever, otherwise rising, for a removed one gets another."""
    latest: dict[int, int] = {}
    ended = sorted(seen, key=lambda one: one.ended)
    at = 0
    for one in seen:
        while ended[at].ended < one.began:
            latest[ended[at].seen] = max(latest.get(ended[at].seen, 0), ended[at].id)
            at += 1
        first = held.get(one.seen)
        if first is not None and first.ended < one.began and first.id != one.id:
            yield f"schema {one.seen} has the ids {first.id} and {one.id}"
        elif one.kind != "id" and one.id < latest.get(one.seen, 0):
            yield f"schema {one.seen} has id {one.id} after it had {latest[one.seen]}"


def _missing(asked: Sequence[Asked], wiping: Sequence[Asked], held: dict[int, Asked]) -> Iterator[str]:
    """Compare what is answered for ids that are not there with what was answered before, and after."""
    first_wiped = min((one.began for one in wiping), default=float("inf"))
    times: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for one in asked:
        if one.seen:
            times[one.id].append((one.began, one.ended))
    for one in asked:
        if one.kind != "id" or one.code != SCHEMA_NOT_FOUND or all(ended >= one.began for _, ended in times[one.id]):
            continue
        if one.ended < first_wiped or (one.id in held and held[one.id].ended < one.began):
            yield f"id {one.id} was answered, and then not known at {one.node}"
        elif any(began > one.ended for began, _ in times[one.id]):
            yield f"id {one.id} is there again, after it was not known at {one.node}"


# ---------------------------------------------------------------- a subject


@dataclass(frozen=True, slots=True)
class Subject:
    """The model: a subject's versions, each with its schema and whether it is deleted, and the last number that was given out."""

    versions: tuple[tuple[int, int, bool], ...] = ()
    last: int = 0

    @property
    def live(self) -> tuple[int, ...]:
        """The versions that are not deleted."""
        return tuple(number for number, _, is_deleted in self.versions if not is_deleted)

    def after(self, one: Asked) -> tuple["Subject", int, Any]:
        """Return the subject after a request, with the code and the answer of it."""
        if one.kind == "register":
            return self._registered(one.schema)
        listed = tuple(number for number, _, _ in self.versions) if one.with_deleted or one.kind in CHANGES else self.live
        if not listed:
            return self, SUBJECT_NOT_FOUND, None
        match one.kind:
            case "list":
                return self, 0, listed
            case "look up":
                return self._found(one.schema)
            case "delete subject":
                return self._subject_deleted(is_permanent=one.is_permanent)
        return self._of_version(one, listed)

    def _of_version(self, one: Asked, listed: tuple[int, ...]) -> tuple["Subject", int, Any]:
        """Return the same for a get and a delete."""
        row = next((row for row in self.versions if row[0] == one.version and one.version in listed), None)
        if row is None:
            return self, VERSION_NOT_FOUND, None
        if one.kind == "get":
            return self, 0, row[:2]
        if row[2] != one.is_permanent:
            return self, VERSION_DELETED if row[2] else VERSION_NOT_DELETED, None
        return self._without({one.version}, is_permanent=one.is_permanent), 0, one.version

    def _registered(self, schema: int) -> tuple["Subject", int, Any]:
        found, code, number = self._found(schema)
        if code == 0:
            return found, code, number
        number = self.last + 1
        return Subject((*self.versions, (number, schema, False)), number), 0, number

    def _found(self, schema: int) -> tuple["Subject", int, Any]:
        numbers = [number for number, other, is_deleted in self.versions if other == schema and not is_deleted]
        return (self, 0, numbers[-1]) if numbers else (self, SCHEMA_NOT_FOUND, None)

    def _subject_deleted(self, *, is_permanent: bool) -> tuple["Subject", int, Any]:
        if is_permanent == bool(self.live):
            return self, SUBJECT_NOT_DELETED if is_permanent else SUBJECT_DELETED, None
        chosen = tuple(number for number, _, _ in self.versions) if is_permanent else self.live
        return self._without(set(chosen), is_permanent=is_permanent), 0, chosen

    def _without(self, numbers: set[int], *, is_permanent: bool) -> "Subject":
        if not is_permanent:
            return Subject(tuple((number, schema, was or number in numbers) for number, schema, was in self.versions), self.last)
        left = tuple(row for row in self.versions if row[0] not in numbers)
        return Subject(left, self.last if left else 0)


# ---------------------------------------------------------------- the search


@dataclass(frozen=True, slots=True)
class _Placed:
    """Requests that have places in the order so far: all answered ones before `base`, some `ahead` of it, and unanswered ones `used`."""

    base: int = 0
    ahead: frozenset[int] = frozenset()
    used: frozenset[int] = frozenset()
    subject: Subject = field(default_factory=Subject)

    def has(self, at: int) -> bool:
        return at < self.base or at in self.ahead

    def with_answered(self, at: int, subject: Subject) -> "_Placed":
        ahead = self.ahead | {at}
        base = self.base
        while base in ahead:
            base += 1
        return _Placed(base, frozenset(other for other in ahead if other > base), self.used, subject)


def unexplained(asked: Iterable[Asked]) -> str:
    """Return why there is no order of requests about one subject, empty where there is one.

    What nobody was answered may have been done at any time from its begin on, or never. A question without an answer says nothing.
    """
    rows = sorted(asked, key=lambda one: one.began)
    answered = [one for one in rows if one.code is not None]
    unanswered = [one for one in rows if one.code is None and one.kind in CHANGES]
    open_, tried, furthest = [_Placed()], {_Placed()}, _Placed()
    while open_:
        placed = open_.pop()
        if placed.base == len(answered):
            return ""
        if (placed.base, len(placed.ahead)) > (furthest.base, len(furthest.ahead)):
            furthest = placed
        following = [one for one in _following(placed, answered, unanswered) if one not in tried]
        tried.update(following)
        open_ += reversed(following)
        if len(tried) > CONFIGURATIONS_MAX:
            return f"no order was found in {CONFIGURATIONS_MAX} steps"
    return f"with {furthest.subject}, {answered[furthest.base]}"


def _following(placed: _Placed, answered: Sequence[Asked], unanswered: Sequence[Asked]) -> list[_Placed]:
    """Return what may come next, the likeliest first."""
    within, end = [], float("inf")
    for at in range(placed.base, len(answered)):
        if answered[at].began > end:
            break
        if not placed.has(at):
            within.append(at)
            end = min(end, answered[at].ended)
    found = []
    for at in sorted(within, key=lambda at: answered[at].ended):
        one = answered[at]
        subject, code, answer = placed.subject.after(one)
        if one.began <= end and (code, answer) == (one.code, one.answer):
            following = placed.with_answered(at, subject)
            if subject == placed.subject:
                return [following]  # it changes nothing and may stand here: no other order does better
            found.append(following)
    for at, one in enumerate(unanswered):
        subject = placed.subject.after(one)[0]
        if one.began <= end and at not in placed.used and subject != placed.subject:
            found.append(_Placed(placed.base, placed.ahead, placed.used | {at}, subject))
    return found
