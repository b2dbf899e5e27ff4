"""Which node takes the requests of each segment, as far as this one knows; and word to clients when that changes."""

import asyncio
from functools import partial
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from eventlog.errors import EventLogError
from eventlog.node.cluster.metadata import Metadata, ViewChange
from eventlog.node.cluster.peers import is_of_member
from eventlog.topology import Topology
from eventlog.transport.connection import Connection
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import Reply

TELL_AFTER_MS = 10  # changes of one moment are told once: a dead node's segments come in several commits


class Leaders:
    """The topology of the newest view."""

    def __init__(self, segments: int) -> None:
        self.topology = Topology(epoch=0, primaries=(0,) * segments, addresses={})
        self.numbers: npt.NDArray[np.int64] = np.zeros(segments, np.int64)
        self._clients: WeakKeyDictionary[Connection, None] = WeakKeyDictionary()  # in the order in which they came
        self._segments = segments
        self._is_telling = False
        self._told = 0
        self._metadata: Metadata | None = None

    def copies(self) -> list[list[int]]:
        """Return of each segment the nodes that have everything committed of it, as far as this one knows."""
        found = {} if self._metadata is None else self._metadata.view.segments
        return [[one.node for one in found[segment].record.in_sync] if segment in found else [] for segment in range(self._segments)]

    def join(self, metadata: Metadata) -> None:
        """Follow the metadata from now on."""
        self._metadata = metadata
        self._learn(metadata.view.topology(self._segments))
        metadata.hooks.append(self._changed)

    def greeted(self, connection: Connection) -> None:
        """Tell the other end of changes from now on."""
        self._clients[connection] = None

    def _changed(self, change: ViewChange) -> None:
        if change.segments or change.members:
            self._learn(change.view.topology(self._segments))

    def _learn(self, topology: Topology) -> None:
        self.topology = topology
        self.numbers = np.array(topology.primaries, np.int64)
        if topology.epoch > self._told and not self._is_telling:
            self._is_telling = True
            asyncio.get_running_loop().call_later(TELL_AFTER_MS / 1000, self._tell)

    def _tell(self) -> None:
        self._is_telling = False
        self._told = self.topology.epoch
        for connection in list(self._clients):
            self._tell_one(connection)

    def _tell_one(self, connection: Connection) -> None:
        """Tell a client of the newest epoch; one that has yet to answer what it was told before is told when it does."""
        if connection.is_closed:
            self._clients.pop(connection, None)
        elif not connection.session.outgoing and not is_of_member(connection):
            try:
                told = partial(self._heard, connection, self._told)
                connection.post(told, Message(topology_changed=pb.TopologyChanged(epoch=self._told)))
            except EventLogError:
                self._clients.pop(connection, None)  # it reads nothing any more

    def _heard(self, connection: Connection, epoch: int, outcome: Reply | EventLogError) -> None:
        """Tell a client that knows of `epoch` what has changed meanwhile."""
        if isinstance(outcome, Reply) and epoch < self._told:
            self._tell_one(connection)
