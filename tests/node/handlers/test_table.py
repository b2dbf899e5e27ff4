"""What the table of handlers says of each kind, and what a lost answer is told as."""

from eventlog.node.handlers import TABLE
from eventlog.wire.kinds import CHANGES, SHAPES, ExchangeShape

LASTS = {
    # goes with its connection, its session or a minute of silence, and is begun anew then
    *("hello", "ping", "topology_changed", "near_watch", "near_interest", "group_beat"),
    *("iteration_start", "iteration_next", "iteration_end"),
}
READS = {
    *("get_topology", "get", "get_many", "keys", "size", "poll", "watch", "log_ends", "last_events", "plan_events", "list_filters"),
    *("list_groups", "describe_group", "list_listeners", "await_listeners", "describe_cache", "list_caches", "status", "list_segments"),
    *("check_data", "list_nodes", "plan_rebalance", "rebalance_status", "digest_segments", "compare_copies"),
    *("list_mirrors", "mirror_status", "verify_mirror"),
}
GREETINGS = {"cluster_info", "peer_hello", "peer_proof"}  # between members, before they know each other


def test_of_every_request_of_a_client_it_is_known_whether_it_changes_something():
    asked = {kind for kind, shape in SHAPES.items() if shape in (ExchangeShape.REQUEST, ExchangeShape.STREAM, ExchangeShape.PING)}
    of_members = GREETINGS | {kind for kind, handler in TABLE.items() if handler.right == "peer"}
    assert asked - of_members - LASTS - READS == CHANGES
    assert not CHANGES & (of_members | LASTS | READS)


def test_what_is_not_repeatable_changes_something_and_so_does_what_needs_the_right_to_write():
    once = {kind for kind, handler in TABLE.items() if not handler.repeatable or handler.right == "write"}
    assert once - {"iteration_next"} <= CHANGES
