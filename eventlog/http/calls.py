"""One request of the API as its handler sees it: names and parameters that are checked, a body that is bounded, an answer to send.

What a browser may be made to send by a page of another origin is refused here, for every route alike.
"""

import asyncio
import re
import socket
from base64 import urlsafe_b64decode
from binascii import Error as Base64Error
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Any, Final, TypeVar
from urllib.parse import unquote_to_bytes, urlsplit

import msgspec
import orjson
from aiohttp import HttpVersion11, web

from eventlog.client.values import CacheInfo
from eventlog.errors import (
    BodyTooSlow,
    EventLogError,
    ForeignPage,
    InvalidArgument,
    MethodNotAllowed,
    NoSuchRoute,
    Overloaded,
    TooLarge,
    UnsupportedBody,
)
from eventlog.ids import ID_MAX

JSON: Final = "application/json"
Given = TypeVar("Given")
RETRY_AFTER_S: Final = 1
SAFE: Final = ("GET", "HEAD")
FORM_TYPES: Final = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
"""What a page may send to any host without asking it first (Fetch standard, "CORS-safelisted request-header")."""
FOREIGN_SITES: Final = frozenset({"cross-site", "same-site"})
"""What a browser says of a page of another origin: another port of this host is of the same site (Fetch Metadata, `Sec-Fetch-Site`)."""
IDS: Final = frozenset({"after", "at", "copy_upto", "expected", "first_id", "found", "id", "ids", "last_id", "upto", "version"})
"""Facts of errors that are ids: text, because JavaScript's and jq's numbers end at 2^53."""
_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")


@dataclass(slots=True, kw_only=True)
class BodyBounds:
    """What bodies may hold. `bytes_max` is one body's, `all_bytes_max` that of all that are being read or worked on."""

    bytes_max: int
    all_bytes_max: int
    timeout_ms: int
    used: int = 0
    peak: int = 0

    def take(self, size: int) -> None:
        """Count `size` bytes. Raises Overloaded where others hold what there is."""
        if self.used + size > self.all_bytes_max:
            raise Overloaded(what="the number of bytes in bodies", limit=self.all_bytes_max)
        self.used += size
        self.peak = max(self.peak, self.used)


@dataclass(slots=True, kw_only=True)
class Call:
    """A request. `names` are the variable parts of its path, `parameters` those behind the question mark, each once."""

    request: web.BaseRequest
    names: Mapping[str, str | bytes]
    parameters: Mapping[str, str]
    bounds: BodyBounds
    held: int = field(default=0, init=False)

    def text(self, name: str) -> str:
        """Return a part of the path as text. Raises InvalidArgument where it is none."""
        found = self.names[name]
        if isinstance(found, bytes):
            raise InvalidArgument(why=f"{name} {found!r} in the path is not UTF-8")
        return found

    def choice(self, name: str, allowed: Collection[str], default: str) -> str:
        """Return a parameter that is one of a few words."""
        found = self.parameters.get(name, default)
        if found not in allowed:
            raise InvalidArgument(why=f"{name} is {found!r}: use {' or '.join(allowed)}")
        return found

    def number(self, name: str, default: int, *, low: int, high: int) -> int:
        """Return a parameter that is a whole number in `[low, high]`."""
        found = self.parameters.get(name)
        if found is None:
            return default
        if not (found.isascii() and found.isdigit() and len(found) < 20 and low <= int(found) <= high):
            raise InvalidArgument(why=f"{name} is {found!r}: give a whole number from {low} to {high}")
        return int(found)

    def flag(self, name: str, *, default: bool) -> bool:
        """Return a parameter that is `true` or `false`."""
        return self.choice(name, ("true", "false"), "true" if default else "false") == "true"

    async def body(self) -> bytes:
        """Return the whole body; it counts until the request is answered.

        Raises:
            UnsupportedBody: it is compressed: nobody knows how large it will be.
            TooLarge: it is, or says that it will be; the rest is not read.
            Overloaded: other bodies fill the memory that there is for them.
            BodyTooSlow: it did not come in time.
        """
        request, bounds = self.request, self.bounds
        check_encoding(request)
        if (told := request.content_length) is not None and told > bounds.bytes_max:
            raise TooLarge(what="a body", size=told, limit=bounds.bytes_max)
        await invite(request)
        pieces: list[bytes] = []
        try:
            async with asyncio.timeout(bounds.timeout_ms / 1000):
                async for piece in request.content.iter_any():
                    bounds.take(len(piece))
                    self.held += len(piece)
                    if self.held > bounds.bytes_max:
                        raise TooLarge(what="a body", size=self.held, limit=bounds.bytes_max)
                    pieces.append(piece)
        except TimeoutError:
            raise BodyTooSlow(timeout_ms=bounds.timeout_ms) from None
        return b"".join(pieces)

    def release(self) -> None:
        """Count the body no more."""
        self.bounds.used -= self.held
        self.held = 0


def check_encoding(request: web.BaseRequest) -> None:
    """Refuse a body that is compressed. Raises UnsupportedBody."""
    for what, plain in (("Content-Encoding", ""), ("Transfer-Encoding", "chunked")):
        if (found := request.headers.get(what, plain)).lower() != plain:
            raise UnsupportedBody(found=f"{what.lower().replace('-', ' ')} {found!r}", instead="send it as it is")


async def invite(request: web.BaseRequest) -> None:
    """Tell a client that waits to be told so that its body is wanted (RFC 9110, 10.1.1): curl waits a second, where that is large."""
    if request.headers.get("Expect", "").lower() == "100-continue" and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0  # none of it is of the answer


Handler = Callable[[Call], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A path, whose parts in braces are variable, what is done for each method, and the parameters that each takes."""

    path: str
    handlers: Mapping[str, Handler]
    parameters: Mapping[str, frozenset[str]]

    def match(self, parts: Sequence[str]) -> dict[str, str] | None:
        """Return the variable parts of a path, as they came, where it is this route's."""
        own = self.path.split("/")
        if len(own) != len(parts):
            return None
        names: dict[str, str] = {}
        for mine, theirs in zip(own, parts, strict=True):
            if mine.startswith("{"):
                names[mine[1:-1]] = theirs
            elif mine != theirs:
                return None
        return names


def path_of(request: web.BaseRequest) -> str:
    """Return what a request asks for, as it came. Proxies are sent whole addresses, and some pass these on (RFC 9112, 3.2.2)."""
    found = request.raw_path
    if found.startswith("/"):
        return found
    _, host, rest = found.partition("://")
    return f"/{rest.partition('/')[2]}" if host else found


def called(request: web.BaseRequest, routes: Sequence[Route], bounds: BodyBounds) -> tuple[Handler, Call]:
    """Return the handler of a request, and the request as that sees it.

    Raises:
        NoSuchRoute, MethodNotAllowed: nobody does.
        InvalidArgument: a part of the path, or a parameter, means nothing.
    """
    path, _, query = path_of(request).partition("?")
    parts = path.split("/")
    for route in routes:
        names = route.match(parts)
        if names is None:
            continue
        method = "GET" if request.method == "HEAD" else request.method
        handler = route.handlers.get(method)
        if handler is None:
            allowed = [*route.handlers, *(["HEAD"] if "GET" in route.handlers else [])]
            raise MethodNotAllowed(method=request.method, path=path, allowed=", ".join(sorted(allowed)))
        parameters = _parameters(query, route.parameters.get(method, frozenset()))
        return handler, Call(
            request=request, names={name: _unescaped(part) for name, part in names.items()}, parameters=parameters, bounds=bounds
        )
    raise NoSuchRoute(path=path)


def _unescaped(part: str) -> str | bytes:
    """Return what a part of a path stands for, bytes where that is no text."""
    if _ESCAPE.search(part):
        raise InvalidArgument(why=f"{part!r} in the path has a % that two hexadecimal digits do not follow; write %25")
    data = unquote_to_bytes(part)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _parameters(query: str, known: Collection[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in filter(None, query.split("&")):
        name, _, value = pair.replace("+", " ").partition("=")
        name_, value_ = _unescaped(name), _unescaped(value)
        if isinstance(name_, bytes) or isinstance(value_, bytes):
            raise InvalidArgument(why=f"parameter {pair!r} is not UTF-8")
        if name_ not in known:
            raise InvalidArgument(why=f"there is no parameter {name_!r} here; use {', '.join(sorted(known)) or 'none'}")
        if name_ in found:
            raise InvalidArgument(why=f"parameter {name_!r} is given twice")
        found[name_] = value_
    return found


def check_page(request: web.BaseRequest, own_names: Collection[str], *, moves: bool = False) -> None:
    """Refuse a change that a page of another origin has a browser send. `moves`: what is asked for changes something though it is a read.

    A browser names the page's origin with every change. A name that somebody else's DNS points to this host is such a page's, too: so
    the host has to be an address, this machine, or one of `own_names`. With what a page embeds, as an image, a browser names no origin: to
    hosts that it trusts, loopback among them, it says that the site is another one.

    Raises:
        ForeignPage, UnsupportedBody: it may be one.
    """
    is_read = request.method in SAFE
    if is_read and not moves:
        return
    if not is_read and request.headers.get("Content-Type") is not None and (found := request.content_type) in FORM_TYPES:
        raise UnsupportedBody(found=f"content type {found!r}", instead="say what it is with Content-Type, such as application/json")
    host = request.headers.get("Host", "")
    origin = request.headers.get("Origin")
    if origin is None and is_read and request.headers.get("Sec-Fetch-Site") in FOREIGN_SITES:
        raise ForeignPage(origin="another origin", host=host[:200])
    if origin is not None and not _is_own(origin, host, own_names):
        raise ForeignPage(origin=origin[:200], host=host[:200])


def _is_own(origin: str, host: str, own_names: Collection[str]) -> bool:
    try:
        page, name = urlsplit(origin).netloc, urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if page != host:
        return False
    if name in {"localhost", socket.gethostname().lower(), *own_names}:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def base64_key(key: str | bytes) -> bytes:
    """Return a key that is written as base64url. Raises InvalidArgument: it is not."""
    try:
        data = key.encode("ascii") if isinstance(key, str) else key
        if re.fullmatch(rb"[A-Za-z0-9_-]*={0,2}", data) is None:
            raise InvalidArgument(why=f"key {key!r} is not base64url")
        return urlsafe_b64decode(data.rstrip(b"=") + b"=" * (-len(data.rstrip(b"=")) % 4))
    except (UnicodeEncodeError, Base64Error) as error:
        raise InvalidArgument(why=f"key {key!r} is not base64url") from error


def given_key(key: str | bytes, info: CacheInfo) -> str | bytes:
    """Return a key in base64url as the cache has its keys. Raises InvalidArgument: it is not, or is no text where keys are."""
    data = base64_key(key)
    if info.key_format == "bytes":
        return data
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise InvalidArgument(why=f"key {key!r} holds no text in UTF-8, and keys of this cache are text") from error


def condition_of(given: Mapping[str, str]) -> dict[str, Any]:
    """Return what parameters say that is wanted: `where`, its `parameters`, which are JSON, and `select`.

    Raises:
        InvalidArgument: the values of placeholders are neither a list nor an object.
    """
    wanted: dict[str, Any] = {name: given[name] for name in ("where", "select") if name in given}
    if "parameters" in given:
        try:
            wanted["parameters"] = orjson.loads(given["parameters"])
        except ValueError as error:
            raise InvalidArgument(why=f"parameters are no JSON: {error}") from error
        if not isinstance(wanted["parameters"], list | dict):
            raise InvalidArgument(why="parameters are neither a list nor an object")
    return wanted


def is_number(given: int | str) -> bool:
    """Whether it is an id as a number, or as text because the numbers of JavaScript end at 2^53; else it is a word or a token."""
    return isinstance(given, int) or (given.isascii() and given.isdigit())


def id_of(given: int | str) -> int:
    """Return an id that is given as a number or as text. Raises InvalidArgument: it is none."""
    if not is_number(given) or not 0 <= (found := int(given) if len(str(given)) < 20 else -1) <= ID_MAX:
        raise InvalidArgument(why=f"{given!r:.60} is no id: give a whole number from 0 to {ID_MAX}")
    return found


async def json_body(call: Call, decode: Callable[[bytes], Given], *, what: str) -> Given:
    """Return what a body of JSON describes.

    Raises:
        UnsupportedBody: it is sent as something else.
        InvalidArgument: it describes none of `what`.
    """
    if call.request.headers.get("Content-Type") is None or call.request.content_type != JSON:
        raise UnsupportedBody(found="another content type", instead=f"send {JSON}")
    try:
        return decode(await call.body())
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidArgument(why=f"the body describes no {what}: {error}") from error


def answer(status: int, content: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> web.Response:
    """Return an answer in JSON."""
    return web.Response(status=status, body=orjson.dumps(content), content_type=JSON, headers=headers)


def refusal(error: EventLogError, **place: int) -> web.Response:
    """Return the answer that tells of an error: its code, its sentence, its facts, and where in a body it is.

    An unknown outcome is told by its status, too.
    """
    status = 504 if error.outcome == "unknown" else error.http_status
    headers = {"Retry-After": str(RETRY_AFTER_S)} if error.retry and error.outcome == "none" else {}
    if isinstance(error, MethodNotAllowed):
        headers["Allow"] = error.allowed
    if found := getattr(error, "version", getattr(error, "found", None)) if status == web.HTTPPreconditionFailed.status_code else None:
        headers["ETag"] = f'"{found}"'
    return answer(status, told(error) | place, headers)


def told(error: EventLogError) -> dict[str, Any]:
    """Return what is told of an error wherever it is: its code, its sentence, its outcome, its facts."""
    facts = {name: _fact(name, fact) for name, fact in error.facts().items()}
    return facts | {"error": error.code, "message": _readable(str(error)), "outcome": error.outcome}


def _fact(name: str, fact: Any) -> Any:
    if name not in IDS:
        return _readable(fact) if isinstance(fact, str) else fact
    return [str(one) for one in fact] if isinstance(fact, list | tuple) else str(fact)


def _readable(text: str) -> str:
    """Return text that JSON can hold: a header that is not UTF-8 came as half characters."""
    return text.encode(errors="backslashreplace").decode()
