"""Members of etcd, and puts to their leader by etcd's own `Put` through gRPC's blocking client, its fastest for one call at a time."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

import grpc

from eventlog.control.metastores.etcd_pb2 import PutRequest
from tests.process.etcds import EtcdCluster

PUTS_WARM = 300
_PUT = "/etcdserverpb.KV/Put"


@contextlib.contextmanager
def members(directory: Path, count: int) -> Iterator[tuple[str, ...]]:
    """Give the endpoints of running members."""
    directory.mkdir(parents=True)
    with EtcdCluster(directory, members=count) as found:
        yield found.endpoints


def put_latencies(endpoints: Sequence[str], *, count: int) -> list[float]:
    """Return the seconds of single puts of 100 B, one in flight, to the endpoint that warmed up fastest, which is the leader."""
    warm = {endpoint: _puts(endpoint, PUTS_WARM) for endpoint in endpoints}
    return _puts(min(warm, key=lambda endpoint: median(warm[endpoint][PUTS_WARM // 3 :])), count)


def _puts(endpoint: str, count: int) -> list[float]:
    found = []
    with grpc.insecure_channel(endpoint, options=(("grpc.enable_http_proxy", 0),)) as channel:
        put = channel.unary_unary(_PUT, request_serializer=PutRequest.SerializeToString, response_deserializer=bytes)
        for number in range(count + 50):
            request = PutRequest(key=b"k%d" % (number % 1_000), value=bytes(100))
            began = time.perf_counter()
            put(request, timeout=30)
            found.append(time.perf_counter() - began)
    return found[50:]
