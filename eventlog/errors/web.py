"""Errors that HTTP alone has: what is wrong with a request before anybody looks at what it asks, and a path that names nothing."""

from eventlog.errors.tree import Misuse, Refused

__all__ = ["BodyTooSlow", "ForeignPage", "MethodNotAllowed", "NoEntry", "NoSuchRoute", "UnsupportedBody"]


class NoSuchRoute(Misuse):
    code = "NO_SUCH_ROUTE"
    http_status = 404
    sentence = "there is nothing at {path}; docs/http.md lists what there is"
    path: str


class MethodNotAllowed(Misuse):
    code = "METHOD_NOT_ALLOWED"
    http_status = 405
    sentence = "{method} is not for {path}; use {allowed}"
    method: str
    path: str
    allowed: str


class UnsupportedBody(Misuse):
    code = "UNSUPPORTED_BODY"
    http_status = 415
    sentence = "a body with {found} is not taken; {instead}"
    found: str
    instead: str


class BodyTooSlow(Misuse):
    code = "BODY_TOO_SLOW"
    http_status = 408
    sentence = "the rest of the request's body did not arrive within {timeout_ms} ms; nothing of that was done"
    timeout_ms: int


class NoEntry(Refused):
    code = "NO_ENTRY"
    http_status = 404
    sentence = "key {key!r} has no entry in cache {cache!r}"
    key: str
    cache: str


class ForeignPage(Refused):
    """Pages of other origins may make a browser send requests: none of these changes anything here."""

    code = "FOREIGN_PAGE"
    http_status = 403
    sentence = "a page of {origin} may not write to {host}; let its own server ask"
    origin: str
    host: str
