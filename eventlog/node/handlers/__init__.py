"""One table: request kind -> its handler, what right it needs, and whether it may be repeated without harm.

A handler is a plain function that may keep the exchange and answer later, or a coroutine function, which the node runs in a task
that it owns. Whatever error of ours it raises becomes the answer.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from eventlog.node.consumers import near
from eventlog.node.handlers import (
    admin,
    cluster_admin,
    entries,
    events,
    groups,
    iteration,
    listeners,
    peers,
    transactions,
    write,
)
from eventlog.node.node import Node
from eventlog.node.state import freshness
from eventlog.transport.connection import Exchange

Right = Literal["none", "read", "write", "admin", "peer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Handler:
    """How one kind of request is served. `repeatable`: doing it twice is doing it once. `has_body`: else one that comes is refused.

    `is_operators`: what operators look after a cluster with, asked by few and seldom, so that connections are kept for it.
    `takes_long`: milliseconds of the loop for a few bytes, so that one is begun in each turn of a connection, and not hundreds.
    """

    function: Callable[..., Any]
    right: Right
    repeatable: bool
    has_body: bool
    takes_long: bool
    is_operators: bool

    @property
    def is_async(self) -> bool:
        """Whether it needs a task."""
        return inspect.iscoroutinefunction(self.function)


def _row(function: Callable[[Node, Exchange], object], right: Right, **differs: bool) -> Handler:
    usual = {"repeatable": True, "has_body": False, "takes_long": False, "is_operators": False}
    return Handler(function=function, right=right, **usual | differs)


_operators = partial(_row, is_operators=True)


TABLE: dict[str, Handler] = {
    "hello": _operators(admin.hello, "none"),
    "ping": _operators(admin.ping, "none"),
    "get_topology": _operators(admin.get_topology, "none"),
    "write": _row(write.write, "write", repeatable=False, has_body=True),
    "clear": _row(write.clear, "write", takes_long=True),
    "stage": _row(transactions.stage, "write", has_body=True, takes_long=True),
    "publish": _row(transactions.publish, "write", has_body=True, takes_long=True),
    "publish_segment": _row(transactions.publish_segment, "peer"),
    "check_staged": _row(transactions.check_staged, "peer"),
    "get": _row(entries.get, "read"),
    "get_many": _row(entries.get_many, "read", has_body=True),
    "keys": _row(entries.keys, "read"),
    "size": _row(entries.size, "read"),
    "poll": _row(events.poll, "read"),
    "watch": _row(events.watch, "read"),
    "iteration_start": _row(iteration.iteration_start, "read", takes_long=True),
    "iteration_next": _row(iteration.iteration_next, "read", repeatable=False),
    "for_each": _row(iteration.for_each, "write", takes_long=True),
    "iteration_end": _row(iteration.iteration_end, "read"),
    "log_ends": _operators(events.log_ends, "read", takes_long=True),
    "last_events": _row(events.last_events, "read", takes_long=True),
    "plan_events": _row(events.plan_events, "read", takes_long=True),
    "list_filters": _row(listeners.list_filters, "read", takes_long=True),
    "near_watch": _row(near.near_watch, "read", has_body=True),
    "near_interest": _row(near.near_interest, "read", has_body=True),
    "group_beat": _row(groups.group_beat, "read", takes_long=True),
    "leave_group": _row(groups.leave_group, "read"),
    "commit_group": _row(groups.commit_group, "read", has_body=True),
    "take_tasks": _row(groups.take_tasks, "read", has_body=True),
    "settle_tasks": _row(groups.settle_tasks, "read", has_body=True),
    "list_groups": _operators(groups.list_groups, "read", takes_long=True),
    "describe_group": _operators(groups.describe_group, "read", takes_long=True),
    "reset_group": _operators(groups.reset_group, "admin", takes_long=True),
    "delete_group": _operators(groups.delete_group, "admin", takes_long=True),
    "register_listener": _row(listeners.register_listener, "read", repeatable=False, takes_long=True),
    "list_listeners": _operators(listeners.list_listeners, "read", takes_long=True),
    "alter_listener": _operators(listeners.alter_listener, "read", takes_long=True),
    "acknowledge_listener": _operators(listeners.acknowledge_listener, "read"),
    "remove_listener": _operators(listeners.remove_listener, "read", repeatable=False),
    "await_listeners": _row(listeners.await_listeners, "read"),
    "use_listeners": _row(listeners.use_listeners, "peer"),
    "listener_changed": _row(listeners.listener_changed, "peer"),
    "retention_steps": _row(peers.retention_steps, "peer"),
    "retention_cut": _row(peers.retention_cut, "peer"),
    "trim_copies": _row(peers.trim_copies, "peer"),
    "count_after": _row(listeners.count_after, "peer"),
    "create_cache": _row(admin.create_cache, "admin", repeatable=False, takes_long=True),
    "describe_cache": _operators(admin.describe_cache, "read"),
    "alter_cache": _operators(admin.alter_cache, "admin", takes_long=True),
    "drop_cache": _operators(admin.drop_cache, "admin", repeatable=False, takes_long=True),
    "list_caches": _operators(admin.list_caches, "read", takes_long=True),
    "status": _operators(admin.status, "read", takes_long=True),
    "list_segments": _operators(cluster_admin.list_segments, "read", takes_long=True),
    "run_retention": _operators(peers.run_retention, "admin", takes_long=True),
    "check_data": _operators(admin.check_data, "admin", takes_long=True),
    "list_nodes": _operators(cluster_admin.list_nodes, "read", takes_long=True),
    "change_cluster": _operators(cluster_admin.change_cluster, "admin", repeatable=False, takes_long=True),
    "plan_rebalance": _operators(cluster_admin.plan_rebalance, "read", takes_long=True),
    "rebalance_status": _operators(cluster_admin.rebalance_status, "read", takes_long=True),
    "digest_segments": _operators(cluster_admin.digest_segments, "admin", takes_long=True),
    "compare_copies": _operators(cluster_admin.compare_copies, "read", takes_long=True),
    "force_primary": _operators(cluster_admin.force_primary, "admin", repeatable=False, takes_long=True),
    "cluster_info": _row(peers.cluster_info, "none"),
    "read_state": _row(iteration.read_state, "peer"),
    "confirm_epochs": _row(freshness.confirm_epochs, "peer"),
    "peer_hello": _row(peers.peer_hello, "none"),
    "peer_proof": _row(peers.peer_proof, "none"),
    "beat": _row(peers.beat, "peer"),
    "see_revision": _row(peers.see_revision, "peer"),
    "close_up": _row(events.close_up, "peer"),
    "fetch": _row(events.fetch, "peer"),
    "member_closed": _row(groups.member_closed, "peer"),
    "group_lag": _row(groups.group_lag, "peer", has_body=True),
    "shift_places": _row(groups.shift_places, "peer"),
    "replicate": _row(peers.replicate, "peer", has_body=True),
    "acknowledge": _row(peers.acknowledge, "peer", has_body=True),
}


def operators_of(table: Mapping[str, Handler]) -> frozenset[str]:
    """Return the kinds of requests that connections are kept for."""
    return frozenset(kind for kind, handler in table.items() if handler.is_operators)
