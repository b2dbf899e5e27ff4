"""Many connections with one large request each: what they hold together stays bounded, and members are heard all the same."""

import asyncio
from pathlib import Path

import numpy as np

from eventlog.batch.build import Columns, build_write
from eventlog.errors import Overloaded
from eventlog.limits import KIB, MIB
from eventlog.transport.connect import connect
from eventlog.transport.connection import Connection
from eventlog.transport.server import Server, ServerOptions
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import Reply
from tests.process.one_loop.clients import cache_id, cluster_of, run, until
from tests.process.one_loop.cluster import SEGMENTS, Cluster

LIMIT = 4 * MIB
WRITERS = 24
MOST = 2 * LIMIT + 2 * (MIB + 64 * KIB)  # where refusals begin, the write that went above it, and one that is being refused


def peak(server: Server) -> int:
    return server.figures()["bytes_in_flight"][2]


def large_write(connection: Connection, cluster: Cluster, number: int) -> "asyncio.Future[Reply]":
    keys = [b"%d-%d" % (number, index) for index in range(8)]
    columns = Columns(kinds=np.zeros(len(keys), np.uint8), keys=keys, values=[bytes(128 * KIB)] * len(keys))
    built = build_write(columns, segments=SEGMENTS)
    return connection.send(Message(write=pb.Write(cache_id=cache_id(cluster), blocks=len(built.table))), *built.buffers)


def test_large_writes_of_many_connections_are_refused_when_they_fill_the_memory(tmp_path: Path) -> None:
    async def main() -> None:
        async with cluster_of(tmp_path, server_options=ServerOptions(process_bytes_in_flight_max=LIMIT)) as cluster:
            await cluster.create_cache()
            server = cluster.nodes[0].server
            connections = [await connect("127.0.0.1", cluster.nodes[0].port) for _ in range(WRITERS)]
            async with cluster.up[0].writer.exclusive(), cluster.up[1].writer.exclusive(), cluster.up[2].writer.exclusive():
                asked = [large_write(connection, cluster, number) for number, connection in enumerate(connections)]
                await until(lambda: any(future.done() for future in asked) or peak(server) > MOST)
            ends = await asyncio.gather(*asked, return_exceptions=True)
            refused = [end for end in ends if isinstance(end, Overloaded)]
            assert 0 < len(refused) < WRITERS, ends
            assert all(isinstance(end, Reply | Overloaded) for end in ends), "whatever was taken is written"
            assert peak(server) <= MOST
            for connection in connections:
                connection.close()
                await connection.wait_closed()

    run(main())
