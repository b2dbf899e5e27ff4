"""The schema registry over HTTP, under the paths of Confluent's, with its answers and its codes: its clients come with no change of theirs.

A page is found by method and path; it asks `Registrar` for the registry, or to change it, and returns what becomes JSON. Bodies are bounded
by the server. A body of a content type that a form of a foreign web page can send is refused.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote

import msgspec

from eventlog.errors import EventLogError, Unavailable
from eventlog.schema import requests
from eventlog.schema.registry import EVERYWHERE, TYPES, Registry
from eventlog.schema.requests import (
    FORWARDING_FAILED,
    INVALID_LEVEL,
    INVALID_MODE,
    INVALID_SCHEMA,
    SCHEMA_NOT_FOUND,
    Decided,
    Refusal,
    given_of,
)

log = logging.getLogger("eventlog.http")
CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
TAKEN = frozenset({"", CONTENT_TYPE, "application/vnd.schemaregistry+json", "application/json", "application/octet-stream"})
FAILED = 50001
PARAMETER = 422
_COUNT_MAX = 1 << 31


class Registrar(Protocol):
    """The registry of the cluster; `node.schemas.Schemas` is one."""

    async def read(self) -> Registry: ...

    async def change(self, decide: Callable[[Registry], Decided]) -> Any: ...

    async def judge(self, decide: Callable[[Registry], Any], registry: Registry) -> Any: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpAnswer:
    """An answer: its status, its headers without the length, and its body."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A request as a page sees it: `parts` are those of the path that stand for a name or a number."""

    registrar: Registrar
    parts: tuple[str, ...]
    query: Mapping[str, str]
    body: bytes

    def flag(self, name: str) -> bool:
        """Return whether a parameter says true; clients write it in capitals, too."""
        return self.query.get(name, "").lower() == "true"

    def count(self, name: str, default: int) -> int:
        """Return a number, below 0 standing for the default."""
        text = self.query.get(name, "")
        digits = text.removeprefix("-")
        if text and not (digits.isascii() and digits.isdigit() and len(digits) <= 10):
            raise Refusal(PARAMETER, f"{name} is a number")
        return min(number, _COUNT_MAX) if text and (number := int(text)) >= 0 else default

    def page(self, found: list[Any]) -> list[Any]:
        """Return the part of a list that `offset` and `limit` ask for."""
        offset = self.count("offset", 0)
        return found[offset : offset + self.count("limit", _COUNT_MAX)]

    @property
    def schema_id(self) -> int:
        """The id that is part of the path."""
        text = self.parts[0]
        if not (text.isascii() and text.isdigit()) or len(text) > 10:
            raise Refusal(SCHEMA_NOT_FOUND, f"Schema {text[:100]} not found")
        return int(text)

    def word(self, name: str, *, code: int) -> Any:
        """Return a field of the body, which is an object, None where it has none."""
        try:
            found = msgspec.json.decode(self.body)
        except (ValueError, RecursionError) as error:
            raise Refusal(code, f"The body is no JSON: {error}") from error
        if not isinstance(found, dict):
            raise Refusal(code, "The body is a JSON object")
        return found.get(name)


Page = Callable[[Question], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _PlainText:
    """An answer that is text as it is."""

    text: str


async def answer(registrar: Registrar, *, method: str, path: str, query: str, content_type: str, body: bytes) -> HttpAnswer:
    """Return the answer to a request. `path` is as it was sent, percent-encoded; `query` is what follows the question mark."""
    try:
        page, parts = _find(method, path)
        if method in {"POST", "PUT"} and content_type.partition(";")[0].strip().lower() not in TAKEN:
            raise Refusal(415, f"HTTP 415 Unsupported Media Type: send {CONTENT_TYPE}")
        asked = parse_qs(query, keep_blank_values=True, max_num_fields=100) if query else {}
        words = {name: values[-1] for name, values in asked.items()}
        found = await page(Question(registrar=registrar, parts=parts, query=words, body=body))
    except Refusal as refusal:
        return _refused(refusal.status, refusal.code, refusal.message, method=method, path=path)
    except ValueError as error:
        return _refused(422, PARAMETER, f"The query is none: {error}", method=method, path=path)
    except Unavailable as error:
        return _refused(500, FORWARDING_FAILED, f"The registry does not answer: {error}", method=method, path=path)
    except EventLogError as error:
        log.warning("registry_failed error=%s", error)
        return _refused(500, FAILED, str(error), method=method, path=path)
    content = found.text.encode() if isinstance(found, _PlainText) else msgspec.json.encode(found)
    return HttpAnswer(status=200, headers={"Content-Type": CONTENT_TYPE}, body=content)


def is_registry_path(path: str) -> bool:
    """Return whether a path is one that this module answers, be it with 404."""
    steps = path.split("/", 2)
    return len(steps) > 1 and steps[1] in _FIRST


def _refused(status: int, code: int, message: str, *, method: str, path: str) -> HttpAnswer:
    headers = {"Content-Type": CONTENT_TYPE}
    if status == 405:
        headers["Allow"] = ", ".join(sorted(_matching(path)[0]))
    content = (
        b""
        if method == "HEAD"
        else msgspec.json.encode({"error_code": code, "message": message.encode(errors="backslashreplace").decode()})
    )
    return HttpAnswer(status=status, headers=headers, body=content)


def _find(method: str, path: str) -> tuple[Page, tuple[str, ...]]:
    pages, parts = _matching(path)
    if not pages:
        raise Refusal(404, "HTTP 404 Not Found")
    page = pages.get("GET" if method == "HEAD" else method)
    if page is None:
        raise Refusal(405, "HTTP 405 Method Not Allowed")
    return page, parts


def _matching(path: str) -> tuple[Mapping[str, Page], tuple[str, ...]]:
    steps = [unquote(step, errors="surrogateescape") for step in path.strip("/").split("/")]  # else names that are no text are one
    for pattern, pages in _BY_SHAPE.get((steps[0], len(steps)), ()):
        if all(wanted in {ANY, step} for wanted, step in zip(pattern, steps, strict=True)):
            return pages, tuple(step for wanted, step in zip(pattern, steps, strict=True) if wanted == ANY)
    return {}, ()


# ---------------------------------------------------------------- subjects


async def _subjects(question: Question) -> list[str]:
    asked = partial(
        requests.subjects,
        prefix=question.query.get("subjectPrefix", ""),
        deleted=question.flag("deleted"),
        deleted_only=question.flag("deletedOnly"),
    )
    return question.page(await question.registrar.judge(asked, await question.registrar.read()))  # a hundred thousand take a while


async def _versions(question: Question) -> list[int]:
    registry = await question.registrar.read()
    deleted, only = question.flag("deleted"), question.flag("deletedOnly")
    return question.page(requests.versions(registry, question.parts[0], deleted=deleted, deleted_only=only))


async def _version(question: Question) -> dict[str, Any]:
    registry = await question.registrar.read()
    return requests.version(registry, question.parts[0], question.parts[1], deleted=question.flag("deleted"))


async def _version_text(question: Question) -> _PlainText:
    return _PlainText(text=(await _version(question))["schema"])


async def _referring(question: Question) -> list[int]:
    return requests.referring(await question.registrar.read(), question.parts[0], question.parts[1])


async def _look_up(question: Question) -> dict[str, Any]:
    given = given_of(question.body)
    asked = partial(requests.look_up, subject=question.parts[0], given=given, deleted=question.flag("deleted"))
    found: dict[str, Any] = await question.registrar.judge(asked, await question.registrar.read())
    return found


async def _register(question: Question) -> Any:
    given = given_of(question.body)
    return await question.registrar.change(partial(requests.register, subject=question.parts[0], given=given))


async def _delete_subject(question: Question) -> Any:
    permanent = question.flag("permanent")
    return await question.registrar.change(partial(requests.delete_subject, subject=question.parts[0], permanent=permanent))


async def _delete_version(question: Question) -> Any:
    subject, word = question.parts
    permanent = question.flag("permanent")
    return await question.registrar.change(partial(requests.delete_version, subject=subject, word=word, permanent=permanent))


async def _compatible(question: Question) -> dict[str, Any]:
    subject, word = question.parts if len(question.parts) == 2 else (question.parts[0], None)
    asked = partial(requests.compatibility, subject=subject, word=word, given=given_of(question.body))
    is_verbose = question.flag("verbose")
    try:
        why = await question.registrar.judge(asked, await question.registrar.read())
    except Refusal as refusal:
        if not is_verbose or refusal.code != INVALID_SCHEMA:
            raise
        why = [refusal.message]  # what is no schema is one that does not fit, to who wants to hear why
    return {"is_compatible": not why} | ({"messages": why} if is_verbose else {})


# ---------------------------------------------------------------- schemas


async def _schema(question: Question) -> dict[str, Any]:
    registry = await question.registrar.read()
    subject, with_max = question.query.get("subject", ""), question.flag("fetchMaxId")
    return requests.schema_by_id(registry, question.schema_id, subject=subject, with_max=with_max)


async def _schema_text(question: Question) -> _PlainText:
    return _PlainText(text=(await _schema(question))["schema"])


async def _schema_by_guid(question: Question) -> dict[str, Any]:
    return requests.schema_by_guid(await question.registrar.read(), question.parts[0])


async def _subjects_of(question: Question) -> list[str]:
    registry = await question.registrar.read()
    users = requests.users_of(registry, question.schema_id, deleted=question.flag("deleted"))
    return question.page(list(dict.fromkeys(subject for subject, _ in users)))


async def _versions_of(question: Question) -> list[dict[str, Any]]:
    registry = await question.registrar.read()
    users = requests.users_of(registry, question.schema_id, deleted=question.flag("deleted"))
    return question.page([{"subject": subject, "version": number} for subject, number in users])


async def _types(question: Question) -> list[str]:  # noqa: ARG001 -- a page like the others
    return list(TYPES)


# ---------------------------------------------------------------- settings


def _place(question: Question) -> str:
    return question.parts[0] if question.parts else EVERYWHERE


async def _level(question: Question) -> dict[str, str]:
    default = question.flag("defaultToGlobal")
    return {"compatibilityLevel": requests.level_of(await question.registrar.read(), _place(question), default_to_global=default)}


async def _set_level(question: Question) -> Any:
    level = question.word("compatibility", code=INVALID_LEVEL)
    return await question.registrar.change(partial(requests.set_level, subject=_place(question), level=level))


async def _remove_level(question: Question) -> Any:
    return await question.registrar.change(partial(requests.remove_level, subject=_place(question)))


async def _mode(question: Question) -> dict[str, str]:
    default = question.flag("defaultToGlobal")
    return {"mode": requests.mode_of(await question.registrar.read(), _place(question), default_to_global=default)}


async def _set_mode(question: Question) -> Any:
    mode, force = question.word("mode", code=INVALID_MODE), question.flag("force")
    return await question.registrar.change(partial(requests.set_mode, subject=_place(question), mode=mode, force=force))


async def _remove_mode(question: Question) -> Any:
    return await question.registrar.change(partial(requests.remove_mode, subject=_place(question)))


ANY = "*"
PAGES: Mapping[tuple[str, ...], Mapping[str, Page]] = {
    ("subjects",): {"GET": _subjects},
    ("subjects", ANY): {"POST": _look_up, "DELETE": _delete_subject},
    ("subjects", ANY, "versions"): {"GET": _versions, "POST": _register},
    ("subjects", ANY, "versions", ANY): {"GET": _version, "DELETE": _delete_version},
    ("subjects", ANY, "versions", ANY, "schema"): {"GET": _version_text},
    ("subjects", ANY, "versions", ANY, "referencedby"): {"GET": _referring},
    ("schemas", "types"): {"GET": _types},
    ("schemas", "ids", ANY): {"GET": _schema},
    ("schemas", "ids", ANY, "schema"): {"GET": _schema_text},
    ("schemas", "ids", ANY, "subjects"): {"GET": _subjects_of},
    ("schemas", "ids", ANY, "versions"): {"GET": _versions_of},
    ("schemas", "guids", ANY): {"GET": _schema_by_guid},
    ("compatibility", "subjects", ANY, "versions"): {"POST": _compatible},
    ("compatibility", "subjects", ANY, "versions", ANY): {"POST": _compatible},
    ("config",): {"GET": _level, "PUT": _set_level, "DELETE": _remove_level},
    ("config", ANY): {"GET": _level, "PUT": _set_level, "DELETE": _remove_level},
    ("mode",): {"GET": _mode, "PUT": _set_mode, "DELETE": _remove_mode},
    ("mode", ANY): {"GET": _mode, "PUT": _set_mode, "DELETE": _remove_mode},
    ("associations", ANY): {},
}
"""The pages by path; what `associations` are is not known here, but clients ask for them first and take a 404 for an answer."""
_FIRST = frozenset(first for first, *_ in PAGES)
_BY_SHAPE = {
    shape: [(pattern, pages) for pattern, pages in PAGES.items() if (pattern[0], len(pattern)) == shape]
    for shape in {(pattern[0], len(pattern)) for pattern in PAGES}
}
