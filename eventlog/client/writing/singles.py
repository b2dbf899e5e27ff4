"""The calls of a cache that write one event: what is given is checked and encoded here, how it is sent is the caller's."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from eventlog.client.formats import headers_bytes, lifespan
from eventlog.client.values import Removed, Stored
from eventlog.client.wording import checked_id
from eventlog.client.writing.acknowledging import CacheAcknowledging, Expecting, OnWaitTimeout
from eventlog.errors import InvalidArgument
from eventlog.wire import eventlog_pb2 as pb

Written = TypeVar("Written", bound=Stored | Removed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """What must hold for a key: `version` is the id of its entry, 0 for no entry, None for any entry."""

    key: bytes
    version: int | None


class CacheSingles(CacheAcknowledging):
    """Puts and removals of one. They are durable when they return."""

    async def put(
        self,
        key: str | bytes,
        value: Any,
        *,
        headers: Mapping[str, bytes] | None = None,
        lifespan_ms: int | None = None,
        if_version: int | None = None,
        if_absent: bool = False,
        previous: bool = False,
        timeout_ms: int | None = None,
        wait_listeners: Sequence[str] | str = (),
        wait_ms: int | None = None,
        on_wait_timeout: OnWaitTimeout | None = None,
    ) -> Stored:
        """Store `value` under `key` and return what became of it, once it is durable.

        Cancelling leaves open whether it is written. With `wait_listeners`, and those that the cache waits for, it returns when they have
        acknowledged the event too, by polling for what comes behind it, but within `wait_ms` (1 s): then with `on_wait_timeout="error"`
        LISTENER_TIMEOUT is raised, though the event is written, and with `"proceed"` the call returns.

        Raises:
            ListenerNotFound: there is no such listener; nothing was written.
            ListenerTimeout: the event is written, and a listener has not acknowledged it, or was removed (`gone`) before it had.
            KeyExists: `if_absent`, and there is an entry.
            VersionMismatch: `if_version`, and the entry has another version, or there is none.
            BadValue, InvalidArgument, TooLarge: nothing was sent.
            TimedOut: `outcome` tells whether it may have been written.
        """
        if if_absent and if_version is not None:
            raise InvalidArgument(why="if_absent and if_version exclude each other")
        form = self._form or (await self._found())[1]
        stored_key = form.key(key)
        condition = None
        if if_absent or if_version is not None:
            condition = Condition(key=stored_key, version=0 if if_version is None else _version(if_version))
        return await self._write_one(
            stored_key,
            form.value(key, value),
            becomes=Stored,
            condition=condition,
            headers=headers_bytes(headers),
            lifespan_ms=lifespan(lifespan_ms),
            wants_previous=previous,
            timeout_ms=timeout_ms,
            expecting=await self._expecting(wait_listeners, wait_ms, on_wait_timeout) if self._may_wait(wait_listeners) else None,
        )

    async def replace(
        self,
        key: str | bytes,
        value: Any,
        *,
        if_version: int | None = None,
        headers: Mapping[str, bytes] | None = None,
        lifespan_ms: int | None = None,
        previous: bool = False,
        timeout_ms: int | None = None,
        wait_listeners: Sequence[str] | str = (),
        wait_ms: int | None = None,
        on_wait_timeout: OnWaitTimeout | None = None,
    ) -> Stored:
        """As `put`, but only if there is an entry, with `if_version` that one.

        Raises:
            VersionMismatch: there is none, or another.
        """
        form = self._form or (await self._found())[1]
        stored_key = form.key(key)
        return await self._write_one(
            stored_key,
            form.value(key, value),
            becomes=Stored,
            condition=Condition(key=stored_key, version=None if if_version is None else _version(if_version)),
            headers=headers_bytes(headers),
            lifespan_ms=lifespan(lifespan_ms),
            wants_previous=previous,
            timeout_ms=timeout_ms,
            expecting=await self._expecting(wait_listeners, wait_ms, on_wait_timeout) if self._may_wait(wait_listeners) else None,
        )

    async def remove(
        self,
        key: str | bytes,
        *,
        headers: Mapping[str, bytes] | None = None,
        if_version: int | None = None,
        previous: bool = False,
        timeout_ms: int | None = None,
        wait_listeners: Sequence[str] | str = (),
        wait_ms: int | None = None,
        on_wait_timeout: OnWaitTimeout | None = None,
    ) -> Removed:
        """Remove the entry of `key`. Where there is none, nothing happens and the result's `id` is None.

        Raises:
            VersionMismatch: `if_version`, and the entry has another version, or there is none.
        """
        form = self._form or (await self._found())[1]
        stored_key = form.key(key)
        return await self._write_one(
            stored_key,
            b"",
            becomes=Removed,
            condition=None if if_version is None else Condition(key=stored_key, version=_version(if_version)),
            headers=headers_bytes(headers),
            wants_previous=previous,
            timeout_ms=timeout_ms,
            expecting=await self._expecting(wait_listeners, wait_ms, on_wait_timeout) if self._may_wait(wait_listeners) else None,
        )

    def _may_wait(self, listeners: Sequence[str] | str) -> bool:
        """Whether a write waits for listeners; nearly never, and then it does nothing more."""
        return bool(listeners) or self._info is None or bool(self._info.wait_listeners)

    async def _write_one(
        self,
        key: bytes,
        value: bytes,
        *,
        becomes: type[Written],
        condition: Condition | None,
        headers: bytes,
        wants_previous: bool,
        timeout_ms: int | None,
        lifespan_ms: int = 0,
        expecting: Expecting | None = None,
    ) -> Written:
        """Send one event, a removal where it `becomes` Removed, and return what became of it."""
        raise NotImplementedError


def _version(number: int) -> int:
    if checked_id(number) == 0:
        raise InvalidArgument(why="if_version is 0, and no entry has that version; to write only where there is none, put with if_absent")
    return number


def condition_of(condition: Condition) -> pb.Condition:
    """Return the condition of a write of one block as the wire has it."""
    found = pb.Condition(block=0, key=condition.key)
    if condition.version is None:
        found.present = True
    elif condition.version:
        found.version = condition.version
    else:
        found.absent = True
    return found
