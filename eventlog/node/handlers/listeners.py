"""Requests about listeners and the filters they name: registered, shown, altered, removed at their homes; used and waited for anywhere."""

import asyncio
import secrets
from functools import partial
from typing import Protocol

import msgspec

from eventlog.errors import EventLogError, InvalidArgument, ListenerNotFound, NoEvents, NotPrimary, OperationRefused, Unavailable
from eventlog.groups.listeners import FilterFrom, ListenerRecord, altered, checked_listener, listener_name
from eventlog.ids import ID_MAX
from eventlog.limits import (
    CLOSE_UP_MS_MAX,
    LISTENER_EXPIRE_MS_DEFAULT,
    LISTENER_WAIT_MS_DEFAULT,
    LISTENERS_AWAITED_MAX,
    POLL_WAIT_MS_MAX,
)
from eventlog.node.cluster.peers import Peers
from eventlog.node.cluster.primaries import Led, Primaries, time_to_ask
from eventlog.node.consumers.inner import Inner
from eventlog.node.consumers.listener_lag import ListenerLag
from eventlog.node.consumers.listeners import Listeners, described, spec_in
from eventlog.node.reading.answers import Reads
from eventlog.node.reading.ends import limit_once_seen
from eventlog.node.reading.installed import InstalledFilters
from eventlog.predicate.spec import FilterSpec
from eventlog.state.caches import Caches, CacheState
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

_SPREAD_MS_MAX = 1_000
_SEEN_MS_MAX = 5 * CLOSE_UP_MS_MAX  # for other nodes to promise what is committed


class ListenersHandlersGround(Protocol):
    """What this module needs of the node."""

    peers: Peers
    segments: int
    primaries: Primaries
    caches: Caches
    reads: Reads
    inner: Inner
    listeners: Listeners
    listener_lag: ListenerLag
    installed_filters: InstalledFilters


async def register_listener(node: ListenersHandlersGround, exchange: Exchange) -> None:
    """Register a filter under a name, at its home; the answer says where to begin."""
    request = exchange.message.register_listener
    # By chance and not by the clock, like the number of a producer: a lease of ids that is used up for a moment is no reason to refuse.
    request.id = checked_listener(request.id or listener_name(1 + secrets.randbelow(ID_MAX)))
    if await _sent_home(node, exchange, request.id):
        return
    cache = node.caches.find(request.cache_id)
    if not cache.options.events:
        raise NoEvents(cache=cache.name)
    _check_kept(durable=request.durable, holds=bool(request.hold_bytes or request.hold_ms), expires=bool(request.expire_ms))
    spec = await _checked(node, cache, spec_in(request.filter))
    with node.listeners.home.registering(cache.cache_id, hold_bytes=request.hold_bytes, hold_ms=request.hold_ms):
        last_id = await limit_once_seen(node.reads, cache, owner=exchange.connection, wait_ms=_SEEN_MS_MAX)
        first_id = await _first_id(node, cache, exchange)
        record = ListenerRecord(
            id=request.id,
            cache_id=cache.cache_id,
            cache=cache.name,
            filters=(FilterFrom(from_id=0, spec=spec),),
            durable=request.durable,
            hold_bytes=request.hold_bytes,
            hold_ms=request.hold_ms,
            expire_ms=0 if request.durable else request.expire_ms or LISTENER_EXPIRE_MS_DEFAULT,
            last_id=_beginning(request, first_id=first_id, last_id=last_id),
            first_id=first_id,
        )
        kept = await node.listeners.home.register(record)
    exchange.answer(Message(listener_answer=pb.ListenerAnswer(listener=described(kept))))


def _beginning(request: pb.RegisterListener, *, first_id: int, last_id: int) -> int:
    """Return the id behind which a listener is to begin. Raises InvalidArgument for one beyond the end."""
    if request.earliest:
        return first_id - 1 if first_id else last_id
    if not request.HasField("after"):
        return last_id
    if request.after > last_id:
        raise InvalidArgument(why=f"a listener is to begin behind id {request.after}, and the log ends at {last_id}")
    return request.after


async def list_listeners(node: ListenersHandlersGround, exchange: Exchange) -> None:
    """Answer with one listener, or with all, or those of a cache; with how far they lag, unless a node asks."""
    request = exchange.message.list_listeners
    if exchange.message.forwarded and not request.id:
        await node.primaries.answer(exchange, partial(_listed_here, node, request.cache_id))
        return
    if request.id and exchange.message.forwarded:
        found = [described(await node.listeners.home.find(request.id))]
    else:
        timeout_ms = time_to_ask(exchange)
        found = [await node.listeners.describe(request.id)] if request.id else await _listed(node, request.cache_id, timeout_ms=timeout_ms)
        await node.listener_lag.fill_in(found, timeout_ms=timeout_ms)
    exchange.answer(Message(list_listeners_answer=pb.ListListenersAnswer(listeners=found)))


async def _listed(node: ListenersHandlersGround, cache_id: int, *, timeout_ms: int) -> list[pb.Listener]:
    """Return the listeners as they were at one moment. Raises PrimariesMissing, TimedOut."""
    answers = await node.primaries.ask_as_of_one_moment(
        Message(list_listeners=pb.ListListeners(cache_id=cache_id)),
        partial(_listed_here, node, cache_id),
        changes=lambda one: one.list_listeners_answer.changes,
        timeout_ms=timeout_ms,
    )
    found = [listener for one in answers for listener in one.list_listeners_answer.listeners]
    return sorted(found, key=lambda listener: (listener.cache, listener.id))


async def _listed_here(node: ListenersHandlersGround, cache_id: int, led: Led) -> Message:
    kept, changes = await node.listeners.home.of(led.segments)
    found = [described(one) for one in kept if cache_id in (0, one.record.cache_id)]
    return Message(list_listeners_answer=pb.ListListenersAnswer(listeners=found, changes=changes))


async def alter_listener(node: ListenersHandlersGround, exchange: Exchange) -> None:
    """Change what a listener wants from an id on, or what it may hold back; every node hears of it."""
    request = exchange.message.alter_listener
    if await _sent_home(node, exchange, request.id):
        return
    record = (await node.listeners.home.find(request.id)).record
    given = {name: getattr(request, name) for name in ("hold_bytes", "hold_ms", "expire_ms") if request.HasField(name)}
    _check_kept(durable=record.durable, holds=bool(given.get("hold_bytes") or given.get("hold_ms")), expires=bool(given.get("expire_ms")))
    if "expire_ms" in given and not record.durable:
        given["expire_ms"] = given["expire_ms"] or LISTENER_EXPIRE_MS_DEFAULT
    change = partial(msgspec.structs.replace, **given)
    if request.HasField("filter"):
        cache = node.caches.find(record.cache_id)
        spec = await _checked(node, cache, spec_in(request.filter))
        from_id = request.from_id or await limit_once_seen(node.reads, cache, owner=exchange.connection, wait_ms=_SEEN_MS_MAX)
        kept = await node.listeners.home.alter(request.id, lambda found: altered(change(found), spec, from_id=from_id))
    else:
        kept = await node.listeners.home.alter(request.id, change)
    await _spread(node, request.id)
    exchange.answer(Message(listener_answer=pb.ListenerAnswer(listener=described(kept))))


def _check_kept(*, durable: bool, holds: bool, expires: bool) -> None:
    if holds and not durable:
        raise InvalidArgument(why="a listener that holds retention back is durable")
    if expires and durable:
        raise InvalidArgument(why="a durable listener stays until it is removed: only an ephemeral one has an expire_ms")


async def acknowledge_listener(node: ListenersHandlersGround, exchange: Exchange) -> None:
    """Move the position of a durable listener on, and answer when that is written down."""
    request = exchange.message.acknowledge_listener
    if await _sent_home(node, exchange, request.id):
        return
    kept = await node.listeners.acknowledge(request)
    exchange.answer(Message(listener_answer=pb.ListenerAnswer(listener=described(kept))))


async def remove_listener(node: ListenersHandlersGround, exchange: Exchange) -> None:
    """Remove a listener; polls for it are refused from now on."""
    listener = exchange.message.remove_listener.id
    if await _sent_home(node, exchange, listener):
        return
    _check_not_awaited(node, (await node.listeners.home.find(listener)).record)
    await node.listeners.home.remove(listener)
    await _spread(node, listener)
    exchange.answer(_done())


def _check_not_awaited(node: ListenersHandlersGround, record: ListenerRecord) -> None:
    """Refuse to remove a listener that each write of its cache would miss."""
    cache = node.caches.get(record.cache_id)
    if cache is not None and record.id in cache.options.wait_listeners.split(","):
        why = f"writes of cache {cache.name} wait for it: first leave it out of eventlog cache alter {cache.name} --wait-listeners"
        raise OperationRefused(what=f"removing listener {record.id}", why=why)


async def use_listeners(node: ListenersHandlersGround, exchange: Exchange) -> None:
    """Take in where listeners that are kept here were polled at another node."""
    await node.listeners.used(exchange)


async def listener_changed(node: ListenersHandlersGround, exchange: Exchange) -> None:
    """Ask anew for a listener with its next poll."""
    node.listeners.forget(exchange.message.listener_changed.id)
    exchange.answer(_done())


async def count_after(node: ListenersHandlersGround, exchange: Exchange) -> None:
    """Count what the segments led here keep above some ids."""
    request = exchange.message.count_after
    await node.primaries.answer(exchange, partial(node.listener_lag.count_after, node.caches.find(request.cache_id), request))


async def await_listeners(node: ListenersHandlersGround, exchange: Exchange) -> None:
    """Answer when listeners have acknowledged an id in each of some segments, or time is up: then with those that have not."""
    request = exchange.message.await_listeners
    if len(request.segments) != len(request.ids) or any(segment >= node.segments for segment in request.segments):
        raise InvalidArgument(why="give the id of each segment")
    names = list(dict.fromkeys(request.listeners))
    if len(names) > LISTENERS_AWAITED_MAX:
        raise InvalidArgument(why=f"a write waits for at most {LISTENERS_AWAITED_MAX} listeners, not for {len(names)}")
    answer = pb.AwaitListenersAnswer()
    for found in await asyncio.gather(*(_awaited(node, exchange.message, name) for name in names)):
        answer.MergeFrom(found)
    exchange.answer(Message(await_listeners_answer=answer))


async def _awaited(node: ListenersHandlersGround, message: Message, listener: str) -> pb.AwaitListenersAnswer:
    """Return whether one listener is missing when it is or time is up, wherever it is kept, and wherever it moves meanwhile."""
    request = message.await_listeners
    loop = asyncio.get_running_loop()
    deadline = loop.time() + min(request.wait_ms or LISTENER_WAIT_MS_DEFAULT, POLL_WAIT_MS_MAX) / 1000
    route = listener.encode()
    while True:
        left_ms = max(int((deadline - loop.time()) * 1000), 0)
        try:
            if message.forwarded or node.inner.leads(route):
                is_done = await node.listeners.home.acknowledged(
                    listener, cache_id=request.cache_id, segments=request.segments, ids=request.ids, wait_ms=left_ms
                )
                return pb.AwaitListenersAnswer(missing=() if is_done else (listener,))
            asked = Message(timeout_ms=left_ms + 500)
            asked.await_listeners.CopyFrom(request)
            del asked.await_listeners.listeners[:]
            asked.await_listeners.listeners.append(listener)
            asked.await_listeners.wait_ms = max(left_ms, 1)
            return (await node.inner.ask(route, asked, deadline_ms=left_ms)).message.await_listeners_answer
        except ListenerNotFound:
            return pb.AwaitListenersAnswer(missing=[listener], gone=[listener])
        except Unavailable:
            if message.forwarded:
                raise
            if loop.time() >= deadline:
                return pb.AwaitListenersAnswer(missing=[listener])
            await asyncio.sleep(0.02)


async def _sent_home(node: ListenersHandlersGround, exchange: Exchange, listener: str) -> bool:
    """Have the home of a listener answer; False where that is this node. Raises NotPrimary."""
    route = listener.encode()
    while not node.inner.leads(route):
        if exchange.message.forwarded:
            raise NotPrimary(segment=node.inner.segment(route))
        try:
            reply = await node.inner.ask(route, exchange.message)
        except NotPrimary:
            if not node.inner.leads(route):
                raise
        else:
            reply.message.ClearField("opaque")
            exchange.answer(reply.message)
            return True
    return False


async def _checked(node: ListenersHandlersGround, cache: CacheState, spec: FilterSpec) -> FilterSpec:
    """Return a filter with the version of its factory that it stays with.

    Raises:
        BadPredicate, FilterNotFound, BadFilterParameters: it cannot be used on this cache; says why.
    """
    if spec == FilterSpec():
        return spec
    if spec.name:
        await node.installed_filters.check(spec.name, spec.version)  # first: it names the node that lacks it, be it this one
    found = (await node.reads.filters.compile(cache, spec)).spec
    if found.version != spec.version:
        await node.installed_filters.check(found.name, found.version)
    return found


async def _first_id(node: ListenersHandlersGround, cache: CacheState, exchange: Exchange) -> int:
    """Return the first id kept, 0 when nothing is."""
    found: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def say(first_id: int | EventLogError) -> None:
        if isinstance(first_id, EventLogError):
            found.set_exception(first_id)
        else:
            found.set_result(first_id)

    node.reads.kept.first_id(cache, say, owner=exchange.connection)
    return await found


async def _spread(node: ListenersHandlersGround, listener: str) -> None:
    """Tell everybody that a listener is another one now, and wait until they know, but not for long."""
    node.listeners.forget(listener)
    message = Message(listener_changed=pb.ListenerChanged(id=listener))
    answers = []
    for number in node.peers.incarnations:
        try:
            answers.append(node.peers.send(number, message, timeout_ms=_SPREAD_MS_MAX))
        except EventLogError:
            continue  # it hears of it with the answer to the next position
    await asyncio.gather(*answers, return_exceptions=True)


def _done() -> Message:
    message = Message()
    message.done.SetInParent()
    return message


async def list_filters(node: ListenersHandlersGround, exchange: Exchange) -> None:
    """Answer with what is installed here, or at every member that is reached."""
    found = await (node.installed_filters.here() if exchange.message.list_filters.local else node.installed_filters.everywhere())
    message = Message()
    message.list_filters_answer.SetInParent()
    message.list_filters_answer.filters.extend(found)
    exchange.answer(message)
