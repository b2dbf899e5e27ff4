"""Metadata in an etcd cluster: for clusters over several hosts.

All keys lie under a prefix of their own, so that an etcd which serves others as well can be used. etcd's first revision is 1 before
anything was put; ours is 0, so one is taken off wherever a revision leaves this module.

A watch goes on across lost streams and members. A stream resumes after the last *event* it delivered: the revision in the header of an
answer is the store's, which may be far ahead of the events that are still to come, and resuming there loses them.

`Endpoints` calls the members: short tries, the next endpoint when one does not answer, and grpc's words turned into ours. Without a leader
a request waits seven seconds inside the server; tries of half a second bring a change of leader down to one and a half. What a try that
timed out did is unknown: reads are simply made again here, commits by `ResolvingStore`, which can tell.
"""

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, Generic, Protocol, TypeVar

import grpc
import grpc.aio

from eventlog.control.metastore import Item, ItemChange, Lease, Listing, RevisionChanges, check_commit
from eventlog.control.metastores import etcd_pb2 as pb
from eventlog.errors import BadConfig, InvalidArgument, MetadataConflict, MetadataLost, MetadataUnavailable

log = logging.getLogger("eventlog.metadata")

LEASE_TTL_S_MIN = 2  # below that etcd lengthens it by itself
PAGE_ITEMS = 500
OPEN_MS_MAX = 10_000
RENEW_MS_MAX = 1_000
_PATTERN = re.compile(r"(\d+)\.(\d+)\.(\d+)")
_CORRUPTING = ((3, 5, 0), (3, 5, 5)), ((3, 4, 20), (3, 4, 21))  # first and last version of each range
_WARNED_BELOW = (3, 5, 14)
Seen = tuple[int, list[Callable[[int], ItemChange]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdOptions:
    """Where the store is: `host:port` of members, in the order in which they are tried, and what all keys begin with."""

    endpoints: tuple[str, ...]
    prefix: str = "eventlog/"
    tls: "EtcdTls | None" = None


async def open_etcd(options: EtcdOptions, *, wait_ms_max: int = OPEN_MS_MAX) -> "EtcdStore":
    """Return the store, after a look at the version of every endpoint that answers.

    Raises:
        BadConfig: no endpoint is given, or one runs a version that is known to corrupt what it stores.
        MetadataUnavailable: none answers.
    """
    if not options.endpoints:
        raise BadConfig(option="meta", why="an etcd needs at least one endpoint, as in etcd://host:2379")
    endpoints = Endpoints(options.endpoints, tls=options.tls)
    try:
        await _check_versions(endpoints, wait_ms_max)
    except BaseException:
        await endpoints.close()
        raise
    return EtcdStore(endpoints, options.prefix)


async def _check_versions(endpoints: "Endpoints", wait_ms_max: int) -> None:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + wait_ms_max / 1000
    is_said = False
    while not (answers := await endpoints.ask_each(STATUS, pb.StatusRequest())):
        if not is_said:
            log.info("etcd_waits endpoints=%s ms_max=%d", ",".join(endpoints.addresses), wait_ms_max)
            is_said = True
        if loop.time() > deadline:
            raise MetadataUnavailable(why=f"no answer from etcd at {', '.join(endpoints.addresses)}")
        await asyncio.sleep(0.1)
    for address, answer in answers.items():
        check_version(answer.version, address)


def check_version(version: str, address: str) -> None:
    """Refuse versions that corrupt data, warn of old ones.

    Raises:
        BadConfig: says why.
    """
    found = _PATTERN.match(version)
    if found is None:
        log.warning("etcd_version_unknown endpoint=%s version=%s", address, version)
        return
    number = tuple(map(int, found.groups()))
    if any(low <= number <= high for low, high in _CORRUPTING):
        why = f"etcd {version} at {address} can corrupt its data when it is killed or compacts; upgrade it to 3.4.22, 3.5.14 or newer"
        raise BadConfig(option="meta", why=why)
    if number < _WARNED_BELOW:
        log.warning("etcd_version_old endpoint=%s version=%s advice=%s", address, version, "3.5.14 or newer")


class EtcdStore:
    """An etcd cluster as a `MetaStore`; its commits may have unknown outcomes, so put a `ResolvingStore` over it."""

    def __init__(self, endpoints: "Endpoints", prefix: str) -> None:
        self._endpoints = endpoints
        self._prefix = prefix.encode()
        self._closing = asyncio.Event()

    async def get(self, key: str) -> Item | None:
        answer = await self._endpoints.ask(RANGE, pb.RangeRequest(key=self._prefix + key.encode()))
        return self._item(answer.kvs[0]) if answer.kvs else None

    async def list(self, prefix: str) -> Listing:
        start = self._prefix + prefix.encode()
        items: list[Item] = []
        revision, end, more = 0, after_prefix(start), True
        while more:
            request = pb.RangeRequest(key=start, range_end=end, limit=PAGE_ITEMS, revision=revision)
            answer = await self._endpoints.ask(RANGE, request)
            revision = revision or answer.header.revision  # all pages are of the first one's revision
            items += map(self._item, answer.kvs)
            more = answer.more
            if more:
                start = answer.kvs[-1].key + b"\0"
        return Listing(items=tuple(items), revision=revision - 1)

    def _item(self, found: pb.KeyValue) -> Item:
        return Item(key=found.key[len(self._prefix) :].decode(), value=found.value, revision=found.mod_revision - 1)

    async def commit(self, expect: Mapping[str, int], *, puts: Mapping[str, bytes], deletes: Sequence[str] = (), lease: int = 0) -> int:
        check_commit(expect, puts, deletes)
        request = pb.TxnRequest(
            compare=[self._compare(key, revision) for key, revision in expect.items()],
            success=[*(self._put(key, value, lease) for key, value in puts.items()), *map(self._delete, deletes)],
            failure=[pb.RequestOp(request_range=pb.RangeRequest(key=self._prefix + key.encode(), keys_only=True)) for key in expect],
        )
        answer = await self._endpoints.call(TXN, request)
        if not answer.succeeded:
            raise MetadataConflict(key=self._conflict(expect, answer))
        return answer.header.revision - 1

    def _compare(self, key: str, revision: int) -> pb.Compare:
        expected = revision + 1 if revision else 0
        return pb.Compare(target=pb.Compare.MOD, result=pb.Compare.EQUAL, key=self._prefix + key.encode(), mod_revision=expected)

    def _put(self, key: str, value: bytes, lease: int) -> pb.RequestOp:
        return pb.RequestOp(request_put=pb.PutRequest(key=self._prefix + key.encode(), value=value, lease=lease))

    def _delete(self, key: str) -> pb.RequestOp:
        return pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=self._prefix + key.encode()))

    @staticmethod
    def _conflict(expect: Mapping[str, int], answer: pb.TxnResponse) -> str:
        for (key, revision), found in zip(expect.items(), answer.responses, strict=True):
            kvs = found.response_range.kvs
            if (kvs[0].mod_revision - 1 if kvs else 0) != revision:
                return key
        raise AssertionError("a transaction failed although all it expects holds")

    async def watch(self, prefix: str, from_revision: int) -> AsyncGenerator[RevisionChanges, None]:
        start = max(1, from_revision + 1)
        async with aclosing(watch_prefix(self._endpoints, self._prefix + prefix.encode(), start, closing=self._closing)) as found:
            async for revision, changes in found:
                yield RevisionChanges(revision=revision - 1, changes=tuple(change(len(self._prefix)) for change in changes))

    async def lease(self, ttl_s: int) -> Lease:
        if ttl_s < 1:
            raise InvalidArgument(why=f"a lease of {ttl_s} s; 1 is the least")
        answer = await self._endpoints.ask(LEASE_GRANT, pb.LeaseGrantRequest(TTL=max(LEASE_TTL_S_MIN, ttl_s)))
        return _EtcdLease(self._endpoints, answer.ID)

    async def close(self) -> None:
        self._closing.set()
        await self._endpoints.close()


class _EtcdLease:
    def __init__(self, endpoints: "Endpoints", number: int) -> None:
        self._endpoints = endpoints
        self._number = number

    @property
    def number(self) -> int:
        return self._number

    async def renew(self) -> None:
        async def once() -> AsyncGenerator[Request, None]:
            yield pb.LeaseKeepAliveRequest(ID=self._number)

        at, call = self._endpoints.stream(LEASE_KEEP_ALIVE, once())
        try:
            async with asyncio.timeout(RENEW_MS_MAX / 1000):
                async for answer in call:
                    if answer.TTL <= 0:
                        raise LookupError(f"lease {self._number} has ended")
                    return
        except (TimeoutError, OSError) as error:
            self._endpoints.failed(at)
            raise MetadataUnavailable(why=f"a lease could not be renewed: {error!r}") from None
        finally:
            call.cancel()

    async def end(self) -> None:
        try:
            await self._endpoints.ask(LEASE_REVOKE, pb.LeaseRevokeRequest(ID=self._number))
        except NotThere:
            return


async def watch_prefix(endpoints: "Endpoints", prefix: bytes, start: int, *, closing: asyncio.Event) -> AsyncGenerator[Seen, None]:
    """Yield (revision, changes) of keys that begin with `prefix`, from etcd's revision `start` on, until `closing` is set.

    A change is called with the number of characters to leave out of the front of its key.

    Raises:
        LookupError: revisions that were asked for are forgotten.
    """
    while not closing.is_set():
        answers = _one_stream(endpoints, prefix, start, closing)
        try:
            async for answer in answers:
                if answer.compact_revision:
                    raise LookupError(f"revisions up to {answer.compact_revision - 1} are forgotten")
                if answer.canceled:
                    break
                for revision, events in groupby(answer.events, key=lambda event: event.kv.mod_revision):
                    yield revision, [partial(_change, event) for event in events]
                    start = revision + 1
        finally:
            await answers.aclose()
        with suppress(TimeoutError):
            async with asyncio.timeout(PAUSE_MS / 1000):
                await closing.wait()


async def _one_stream(endpoints: "Endpoints", prefix: bytes, start: int, closing: asyncio.Event) -> AsyncGenerator[pb.WatchResponse, None]:
    """Yield the answers of one stream until it breaks, the store closes, or calls went on to another endpoint.

    A member that was stopped keeps its streams open and silent; a call to it that was not answered tells sooner than its keepalive.
    """

    async def requests() -> AsyncGenerator[Request, None]:
        yield pb.WatchRequest(create_request=pb.WatchCreateRequest(key=prefix, range_end=after_prefix(prefix), start_revision=start))
        await closing.wait()  # a stream whose requests have ended is ended by the server

    at, call = endpoints.stream(WATCH, requests())
    ends = {asyncio.ensure_future(closing.wait()), asyncio.ensure_future(endpoints.moved.wait())}
    try:
        while True:
            reading = asyncio.ensure_future(call.read())
            await asyncio.wait({reading, *ends}, return_when=asyncio.FIRST_COMPLETED)
            if any(end.done() for end in ends):
                reading.cancel()
                return
            answer = reading.result()
            if answer is grpc.aio.EOF:
                endpoints.failed(at)
                return
            endpoints.check_cluster(at, answer)
            yield answer
    except (grpc.aio.AioRpcError, grpc.aio.UsageError):
        endpoints.failed(at)
    except MetadataUnavailable:
        return  # an endpoint of another cluster
    finally:
        for end in ends:
            end.cancel()
        call.cancel()


def _change(event: pb.Event, skip: int) -> ItemChange:
    return ItemChange(key=event.kv.key[skip:].decode(), value=None if event.type == pb.Event.DELETE else event.kv.value)


class Request(Protocol):
    """A protobuf message."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802 -- protobuf's name


Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Method(Generic[Answer]):
    """One of etcd's remote procedures."""

    path: str
    answer: type[Answer]


RANGE = Method("/etcdserverpb.KV/Range", pb.RangeResponse)
TXN = Method("/etcdserverpb.KV/Txn", pb.TxnResponse)
COMPACT = Method("/etcdserverpb.KV/Compact", pb.CompactionResponse)
WATCH = Method("/etcdserverpb.Watch/Watch", pb.WatchResponse)
LEASE_GRANT = Method("/etcdserverpb.Lease/LeaseGrant", pb.LeaseGrantResponse)
LEASE_REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", pb.LeaseRevokeResponse)
LEASE_KEEP_ALIVE = Method("/etcdserverpb.Lease/LeaseKeepAlive", pb.LeaseKeepAliveResponse)
MEMBER_ADD = Method("/etcdserverpb.Cluster/MemberAdd", pb.MemberAddResponse)
MEMBER_REMOVE = Method("/etcdserverpb.Cluster/MemberRemove", pb.MemberRemoveResponse)
MEMBER_PROMOTE = Method("/etcdserverpb.Cluster/MemberPromote", pb.MemberPromoteResponse)
MEMBER_LIST = Method("/etcdserverpb.Cluster/MemberList", pb.MemberListResponse)
STATUS = Method("/etcdserverpb.Maintenance/Status", pb.StatusResponse)

TRY_MS = 500
PAUSE_MS = 20
READ_MS_MAX = 10_000
ANSWER_BYTES_MAX = 64 << 20  # a page of a listing; grpc's default of 4 MiB would break it

_CHANNEL_OPTIONS = (
    ("grpc.keepalive_time_ms", 6000),  # etcd ends connections that ping more often than every 5 s unless it is told otherwise
    ("grpc.keepalive_timeout_ms", 1000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.max_receive_message_length", ANSWER_BYTES_MAX),
    ("grpc.enable_http_proxy", 0),
)
_WITH_LEADER = (("hasleader", "true"),)  # a member that is cut off from the others ends its streams instead of keeping them silent
_NO_ANSWER = frozenset({grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED, grpc.StatusCode.UNKNOWN})


@dataclass(frozen=True, slots=True, kw_only=True)
class EtcdTls:
    """Certificates in PEM: the authority's, and this process's own with its key where the servers ask for one."""

    authority: bytes
    certificate: bytes | None = None
    key: bytes | None = None


class Compacted(LookupError):
    """Revisions that were asked for are forgotten."""


class NotThere(LookupError):
    """What the request names does not exist."""


class Endpoints:
    """The members of one etcd cluster, `host:port` each; calls go to one of them until it fails to answer."""

    def __init__(self, addresses: Sequence[str], *, tls: EtcdTls | None = None) -> None:
        self.addresses = tuple(addresses)
        self._channels = {address: _channel(address, tls) for address in self.addresses}
        self._current = 0
        self._cluster = 0  # etcd's number of the cluster that answered first; 0 before
        self._is_closed = False
        self.moved = asyncio.Event()  # set, and another in its place, when calls go on to another endpoint

    async def call(self, method: Method[Answer], request: Request, *, timeout_ms: int = 0) -> Answer:
        """Make one try, of `TRY_MS` unless told.

        Raises:
            MetadataUnavailable: no answer came; with `outcome` "unknown", because it may have been carried out.
            NotThere, Compacted, InvalidArgument, MetadataLost: what etcd answered.
        """
        if self._is_closed:
            raise MetadataUnavailable(why="it is closed")
        at = self._current
        address = self.addresses[at]
        call = self._channels[address].unary_unary(
            method.path,
            request_serializer=_serialize,
            response_deserializer=method.answer.FromString,  # type: ignore[attr-defined]
        )
        try:
            answer: Answer = await call(request, timeout=(timeout_ms or TRY_MS) / 1000)
        except grpc.aio.AioRpcError as error:
            self.failed(at)
            raise translated(error, address) from None
        self.check_cluster(at, answer)
        return answer

    def check_cluster(self, at: int, answer: Any) -> None:
        """Take an answer of the cluster that answered first, and go on to the next endpoint at one of another.

        Raises:
            MetadataUnavailable: it is of another; what it did there is nothing that happened here.
        """
        found = answer.header.cluster_id
        self._cluster = self._cluster or found
        if found not in (0, self._cluster):
            self.failed(at)
            log.warning("etcd_foreign endpoint=%s cluster=%x expected=%x", self.addresses[at], found, self._cluster)
            raise MetadataUnavailable(outcome="unknown", why=f"etcd at {self.addresses[at]} is of another etcd cluster than the others")

    async def ask(self, method: Method[Answer], request: Request) -> Answer:
        """Make tries until one is answered; for requests that may be carried out twice.

        Raises:
            MetadataUnavailable: nobody answered in time.
            NotThere, Compacted, InvalidArgument, MetadataLost: what etcd answered.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + READ_MS_MAX / 1000
        while True:
            try:
                return await self.call(method, request)
            except MetadataUnavailable as error:
                if self._is_closed or loop.time() > deadline:
                    raise MetadataUnavailable(why=error.why) from None
            await asyncio.sleep(PAUSE_MS / 1000)

    async def ask_each(self, method: Method[Answer], request: Request) -> dict[str, Answer]:
        """Ask every endpoint once; return the answers of those that gave one."""
        answers = {}
        for at, address in enumerate(self.addresses):
            self._current = at
            try:
                answers[address] = await self.call(method, request)
            except MetadataUnavailable:
                continue
        self._current = next((at for at, address in enumerate(self.addresses) if address in answers), 0)
        return answers

    def stream(self, method: Method[Answer], requests: AsyncIterator[Request]) -> "tuple[int, grpc.aio.StreamStreamCall[Any, Answer]]":
        """Open a stream to the present endpoint; return its place, for `failed`, and the call."""
        if self._is_closed:
            raise MetadataUnavailable(why="it is closed")
        at = self._current
        call = self._channels[self.addresses[at]].stream_stream(
            method.path,
            request_serializer=_serialize,
            response_deserializer=method.answer.FromString,  # type: ignore[attr-defined]
        )
        return at, call(requests, metadata=_WITH_LEADER)

    def failed(self, at: int) -> None:
        """Go on to the next endpoint, unless somebody has already."""
        if at == self._current:
            self._current = (at + 1) % len(self.addresses)
            self.moved.set()
            self.moved = asyncio.Event()

    async def close(self) -> None:
        """Close every connection; calls in flight end."""
        self._is_closed = True
        for channel in self._channels.values():
            await channel.close()


def _channel(address: str, tls: EtcdTls | None) -> grpc.aio.Channel:
    if tls is None:
        return grpc.aio.insecure_channel(address, options=_CHANNEL_OPTIONS)
    credentials = grpc.ssl_channel_credentials(tls.authority, tls.key, tls.certificate)
    return grpc.aio.secure_channel(address, credentials, options=_CHANNEL_OPTIONS)


def _serialize(request: Request) -> bytes:
    return request.SerializeToString()


def translated(error: grpc.aio.AioRpcError, address: str) -> Exception:
    """Return what a failed call means in our words."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.OUT_OF_RANGE:  # "required revision has been compacted"
        return Compacted(details)
    if code is grpc.StatusCode.NOT_FOUND:
        return NotThere(details)
    if code is grpc.StatusCode.INVALID_ARGUMENT:
        return InvalidArgument(why=f"etcd at {address}: {details}")
    if code is grpc.StatusCode.DATA_LOSS:
        return MetadataLost(where=f"etcd at {address}", why=details)
    why = f"etcd at {address}: {details or code.name}"
    if code in _NO_ANSWER:
        return MetadataUnavailable(outcome="unknown", why=why)
    return MetadataUnavailable(why=why)  # a refusal: no space, no permission, wrong state


def after_prefix(prefix: bytes) -> bytes:
    """Return the first key after all that begin with `prefix`: the end of a range as etcd takes it, where a zero byte is no end."""
    for index in range(len(prefix) - 1, -1, -1):
        if prefix[index] < 0xFF:
            return prefix[:index] + bytes([prefix[index] + 1])
    return b"\0"
