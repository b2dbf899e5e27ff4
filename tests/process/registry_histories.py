"""What was asked of a registry and answered, at which node and when; and what must hold of all of it together."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Asked:
    """A request. `answer` is None where nobody knows what became of it; `began` and `ended` are of one clock."""

    kind: str  # register, delete or list
    subject: str
    began: float
    ended: float
    schema: str = ""
    version: int = 0  # of a delete
    answer: Any = None


def violations(history: Iterable[Asked], final: dict[str, dict[int, int]]) -> Iterator[str]:
    """Yield what does not hold. `final` has the id of each version of each subject, deleted ones included."""
    asked = list(history)
    registered = [one for one in asked if one.kind == "register" and one.answer is not None]
    yield from _ids(registered, final)
    for one in registered:
        if final.get(one.subject, {}).get(one.answer["version"]) != one.answer["id"]:
            yield f"version {one.answer['version']} of {one.subject} was answered with id {one.answer['id']}, and is not there"
    for one in asked:
        if one.kind == "list" and one.answer is not None:
            yield from _listed(one, asked)


def _ids(registered: list[Asked], final: dict[str, dict[int, int]]) -> Iterator[str]:
    ids: dict[str, int] = {}
    for one in registered:
        if ids.setdefault(one.schema, one.answer["id"]) != one.answer["id"]:
            yield f"a schema has the ids {ids[one.schema]} and {one.answer['id']}"
    if len(set(ids.values())) < len(ids):
        yield "two schemas have one id"
    given = {schema_id for versions in final.values() for schema_id in versions.values()}
    if given != set(range(1, len(given) + 1)):
        yield f"ids have gaps: {sorted(given)}"
    for subject, versions in final.items():
        if list(versions) != list(range(1, len(versions) + 1)):
            yield f"versions of {subject} have gaps: {list(versions)}"


def _listed(listed: Asked, asked: list[Asked]) -> Iterator[str]:
    """Compare a list of versions with what was answered before it was asked for, and what was begun before it was answered."""
    same = [one for one in asked if one.subject == listed.subject]
    deleting = {one.version for one in same if one.kind == "delete" and one.began < listed.ended}
    deleted = {one.version for one in same if one.kind == "delete" and one.answer is not None and one.ended < listed.began}
    known = {one.answer["version"] for one in same if one.kind == "register" and one.answer is not None and one.ended < listed.began}
    for version in sorted(known - deleting - set(listed.answer)):
        yield f"version {version} of {listed.subject} was answered, and then not known"
    for version in sorted(deleted & set(listed.answer)):
        yield f"version {version} of {listed.subject} was deleted, and then known"
