"""Writes and reads that were understood and declined: names, limits, conditions."""

from eventlog.errors.tree import Refused


class CacheNotFound(Refused):
    code = "CACHE_NOT_FOUND"
    http_status = 404
    sentence = "there is no cache {cache!r}; create it with: eventlog cache create {cache}"
    cache: str


class CacheExists(Refused):
    code = "CACHE_EXISTS"
    sentence = "cache {cache!r} exists already; use it, or drop it first"
    cache: str


class CacheDiffers(Refused):
    code = "CACHE_DIFFERS"
    sentence = "cache {cache!r} exists with {option} {found}, not {wanted}; leave {option} out to use it as it is, or choose another name"
    cache: str
    option: str
    found: str
    wanted: str


class CacheDropped(Refused):
    code = "CACHE_DROPPED"
    http_status = 410
    sentence = "cache {cache!r} was dropped; its events are gone"
    cache: str


class CacheRecreated(Refused):
    code = "CACHE_RECREATED"
    http_status = 410
    sentence = "cache {cache!r} was dropped and created again; the position belongs to the old one: begin at earliest"
    cache: str


class Unalterable(Refused):
    code = "UNALTERABLE"
    sentence = "{option} of a cache is fixed at creation; create another cache"
    option: str


class BadValue(Refused):
    code = "BAD_VALUE"
    http_status = 400
    sentence = "value of key {key!r}: {why}"
    key: str
    why: str


class TooLarge(Refused):
    code = "TOO_LARGE"
    http_status = 413
    sentence = "{what} has {size} bytes, the limit is {limit}; make it smaller"
    what: str
    size: int
    limit: int

    def __str__(self) -> str:
        return super().__str__() + (", or start the nodes with a larger --value-max" if self.what == "a value" else "")


class KeyExists(Refused):
    code = "KEY_EXISTS"
    sentence = "key {key!r} exists with version {version}"
    key: str
    version: int


class VersionMismatch(Refused):
    """`expected` is -1 where any entry would have done, and there is none."""

    code = "VERSION_MISMATCH"
    sentence = "key {key!r} has version {found} (0: none), not {expected}; read it again and decide"
    key: str
    expected: int
    found: int

    def __str__(self) -> str:
        return super().__str__() if self.expected >= 0 else f"key {self.key!r} has no entry to replace; put one"


class NoState(Refused):
    code = "NO_STATE"
    sentence = "cache {cache!r} keeps no state; read its events instead"
    cache: str


class NoEvents(Refused):
    code = "NO_EVENTS"
    sentence = "cache {cache!r} keeps no events; to keep those to come: eventlog cache alter {cache} --events"
    cache: str


class SequenceGap(Refused):
    code = "SEQUENCE_GAP"
    sentence = "producer {producer}, segment {segment}: sequence {found} does not follow {last}; resend from the oldest unanswered block"
    producer: int
    segment: int
    found: int
    last: int


class ProducerUnknown(Refused):
    code = "PRODUCER_UNKNOWN"
    sentence = "producer {producer} is not known in segment {segment} (forgotten after 24 hours, or its cache was trimmed away); begin anew"
    producer: int
    segment: int


class ClockSkew(Refused):
    code = "CLOCK_SKEW"
    http_status = 400
    sentence = "id {id} is {ahead_ms} ms ahead of this cluster's clock; it was not made here"
    id: int
    ahead_ms: int
