"""Requests about the node: greetings, where requests go, caches, status, checks."""

import logging
import secrets
from typing import Protocol

from eventlog.control.caches import check_name
from eventlog.control.records import CacheOptions
from eventlog.errors import BadMessage
from eventlog.ids import ID_MAX, FlakeClock
from eventlog.limits import FRAME_BYTES_MAX
from eventlog.node.cluster.health import ClusterHealth
from eventlog.node.cluster.leaders import Leaders
from eventlog.node.cluster.serving import Availability
from eventlog.node.data_check import DataCheck
from eventlog.node.state.cache_changes import CacheChanges
from eventlog.state.caches import Caches, CacheState
from eventlog.transport.connection import Exchange
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

log = logging.getLogger("eventlog.node")
_NAME_SHOWN_MAX = 100
_FORMATS = {pb.JSON: "json", pb.BYTES: "bytes", pb.AVRO: "avro"}
_NUMBERS = {name: number for number, name in _FORMATS.items()}


class AdminHandlersGround(Protocol):
    """What this module needs of the node."""

    cluster: str
    name: str
    number: int
    clock: FlakeClock
    caches: Caches
    leaders: Leaders
    availability: Availability
    health: ClusterHealth
    cache_changes: CacheChanges
    data_check: DataCheck


def hello(node: AdminHandlersGround, exchange: Exchange) -> None:
    """Greet: which node this is, how many segments there are, and, if asked for, a producer id that nobody had before."""
    request = exchange.message.hello
    message = Message()
    answer = message.hello_answer
    answer.cluster, answer.node, answer.segments = node.cluster, node.name, node.leaders.topology.segments
    answer.topology_epoch, answer.number = node.leaders.topology.epoch, node.number
    answer.frame_bytes_max = FRAME_BYTES_MAX
    answer.now_id = node.clock.last
    if request.producer or request.producer_id:
        # By chance, not by the clock: whose lease of ids is used up goes on greeting readers while the metadata store is away.
        answer.producer_id = request.producer_id or 1 + secrets.randbelow(ID_MAX)
    node.leaders.greeted(exchange.connection)
    if request.client:
        log.info("client_connected name=%r peer=%s", request.client[:_NAME_SHOWN_MAX], exchange.connection.peer)
    exchange.answer(message)


def ping(_: AdminHandlersGround, exchange: Exchange) -> None:
    """Answer."""
    message = Message()
    message.done.SetInParent()
    exchange.answer(message)


def given_options(options: pb.CacheOptions) -> dict[str, object]:
    """Return the options that a request names, as keyword arguments of CacheOptions."""
    given: dict[str, object] = {field.name: value for field, value in options.ListFields()}
    if "format" in given:
        if options.format not in _FORMATS:
            raise BadMessage(why=f"cache format {options.format} is unknown")
        given["format"] = _FORMATS[options.format]
    return given


def describe(cache: CacheState) -> pb.CacheDescription:
    """Return a cache as the wire shows it, every option set."""
    found = pb.CacheDescription(name=cache.name, id=cache.cache_id, from_id=cache.from_id)
    for name in CacheOptions.__struct_fields__:
        value = getattr(cache.options, name)
        setattr(found.options, name, _NUMBERS[value] if name == "format" else "" if value is None else value)
    return found


async def create_cache(node: AdminHandlersGround, exchange: Exchange) -> None:
    """Create a cache, or with `use_existing` answer with the one of that name."""
    request = exchange.message.create_cache
    cache, created = await node.cache_changes.create(request.name, given_options(request.options), use_existing=request.use_existing)
    message = Message()
    message.cache_answer.cache.CopyFrom(describe(cache))
    message.cache_answer.created = created
    exchange.answer(message)


def describe_cache(node: AdminHandlersGround, exchange: Exchange) -> None:
    """Answer with a cache's options."""
    message = Message()
    message.cache_answer.cache.CopyFrom(describe(node.caches.named(exchange.message.describe_cache.name)))
    exchange.answer(message)


async def alter_cache(node: AdminHandlersGround, exchange: Exchange) -> None:
    """Change the options that the request names."""
    request = exchange.message.alter_cache
    check_name(request.name)
    cache = await node.cache_changes.alter(request.name, given_options(request.options))
    message = Message()
    message.cache_answer.cache.CopyFrom(describe(cache))
    exchange.answer(message)


async def drop_cache(node: AdminHandlersGround, exchange: Exchange) -> None:
    """Drop a cache with all its events."""
    check_name(exchange.message.drop_cache.name)
    await node.cache_changes.drop(exchange.message.drop_cache.name)
    message = Message()
    message.done.SetInParent()
    exchange.answer(message)


def list_caches(node: AdminHandlersGround, exchange: Exchange) -> None:
    """Answer with all caches, by name; the cluster's own where they are asked for."""
    message = Message()
    message.list_caches_answer.SetInParent()
    for cache in sorted(node.caches, key=lambda cache: cache.name):
        if exchange.message.list_caches.internal or not cache.is_internal:
            message.list_caches_answer.caches.append(describe(cache))
    exchange.answer(message)


async def status(node: AdminHandlersGround, exchange: Exchange) -> None:
    """Answer with the health of the cluster, or with what this node leads."""
    message = Message()
    if exchange.message.status.local:
        message.status_answer.serving.CopyFrom(node.availability.own())
    else:
        message.status_answer.CopyFrom(await node.health.status())
    exchange.answer(message)


async def check_data(node: AdminHandlersGround, exchange: Exchange) -> None:
    """Read everything stored and say what is damaged."""
    name = exchange.message.check_data.cache
    caches = [node.caches.named(name)] if name else list(node.caches)
    message = Message()
    message.check_data_answer.CopyFrom(await node.data_check.run(caches))
    exchange.answer(message)


def get_topology(node: AdminHandlersGround, exchange: Exchange) -> None:
    """Answer with the primaries of all segments and the addresses of all members."""
    topology, message = node.leaders.topology, Message()
    answer = message.topology_answer
    answer.epoch, answer.number = topology.epoch, node.number
    answer.primaries.extend(topology.primaries)
    for number, address in sorted(topology.addresses.items()):
        answer.nodes.add(number=number, address=address)
    if exchange.message.get_topology.copies:
        answer.copies.extend(pb.SegmentCopies(nodes=nodes) for nodes in node.leaders.copies())
    exchange.answer(message)
