"""Calls to the members of an etcd cluster: short tries, the next endpoint when one does not answer, and grpc's words turned into ours.

Without a leader a request waits seven seconds inside the server; tries of half a second bring a change of leader down to one and a
half. What a try that timed out did is unknown: reads are simply made again here, commits by `ResolvingStore`, which can tell.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import grpc
import grpc.aio

from eventlog.control.metastores import etcd_pb2
from eventlog.errors import InvalidArgument, MetadataLost, MetadataUnavailable

log = logging.getLogger("eventlog.metadata")


class Request(Protocol):
    """A protobuf message."""

    def SerializeToString(self) -> bytes: ...  # noqa: N802 -- protobuf's name


Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Method(Generic[Answer]):
    """One of etcd's remote procedures."""

    path: str
    answer: type[Answer]


RANGE = Method("/etcdserverpb.KV/Range", etcd_pb2.RangeResponse)
TXN = Method("/etcdserverpb.KV/Txn", etcd_pb2.TxnResponse)
COMPACT = Method("/etcdserverpb.KV/Compact", etcd_pb2.CompactionResponse)
WATCH = Method("/etcdserverpb.Watch/Watch", etcd_pb2.WatchResponse)
LEASE_GRANT = Method("/etcdserverpb.Lease/LeaseGrant", etcd_pb2.LeaseGrantResponse)
LEASE_REVOKE = Method("/etcdserverpb.Lease/LeaseRevoke", etcd_pb2.LeaseRevokeResponse)
LEASE_KEEP_ALIVE = Method("/etcdserverpb.Lease/LeaseKeepAlive", etcd_pb2.LeaseKeepAliveResponse)
MEMBER_ADD = Method("/etcdserverpb.Cluster/MemberAdd", etcd_pb2.MemberAddResponse)
MEMBER_REMOVE = Method("/etcdserverpb.Cluster/MemberRemove", etcd_pb2.MemberRemoveResponse)
MEMBER_PROMOTE = Method("/etcdserverpb.Cluster/MemberPromote", etcd_pb2.MemberPromoteResponse)
MEMBER_LIST = Method("/etcdserverpb.Cluster/MemberList", etcd_pb2.MemberListResponse)
STATUS = Method("/etcdserverpb.Maintenance/Status", etcd_pb2.StatusResponse)

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
