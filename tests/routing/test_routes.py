from eventlog.hashing import hash_key, segment_of
from eventlog.routing.addresses import Address
from eventlog.routing.routes import Routes

GATEWAY, PRIMARY = Address(host="gateway", port=1), Address(host="primary", port=1)


def test_a_key_goes_to_the_primary_of_its_segment_and_else_to_the_gateway() -> None:
    segment = segment_of(hash_key(b"key"), 256)
    routes = Routes(segments=256, gateway=GATEWAY, primaries={segment: PRIMARY})
    assert routes.segment(b"key") == segment
    assert routes.address(segment) == PRIMARY
    assert routes.address(segment ^ 1) == GATEWAY


def test_keys_with_one_prefix_share_a_segment_where_the_cache_is_routed_by_prefix() -> None:
    routes = Routes(segments=4096, gateway=GATEWAY)
    assert {routes.segment(b"group\0%d" % n, by_prefix=True) for n in range(100)} == {routes.segment(b"group")}
    assert len({routes.segment(b"group\0%d" % n) for n in range(100)}) > 50
