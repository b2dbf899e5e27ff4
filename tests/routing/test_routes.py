from eventlog.hashing import hash_key, segment_of
from eventlog.routing.routes import NOBODY, Routes


def test_a_key_goes_to_the_primary_of_its_segment() -> None:
    segment = segment_of(hash_key(b"key"), 256)
    routes = Routes(segments=256, primaries=[7 if number == segment else 3 for number in range(256)])
    assert routes.segment(b"key") == segment
    assert routes.primary(segment) == 7
    assert routes.primary(segment ^ 1) == 3


def test_without_a_topology_nobody_is_known_to_be_primary() -> None:
    assert Routes(segments=8).primary(5) == NOBODY


def test_segments_are_grouped_by_primary_in_their_order() -> None:
    assert Routes(segments=4, primaries=[2, 1, 2, 1]).by_primary([0, 1, 2, 3]) == {2: [0, 2], 1: [1, 3]}


def test_keys_with_one_prefix_share_a_segment_where_the_cache_is_routed_by_prefix() -> None:
    routes = Routes(segments=4096)
    assert {routes.segment(b"group\0%d" % n, by_prefix=True) for n in range(100)} == {routes.segment(b"group")}
    assert len({routes.segment(b"group\0%d" % n) for n in range(100)}) > 50
