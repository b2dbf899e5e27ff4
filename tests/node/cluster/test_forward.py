"""Who answers a request."""

from tests.node.nodes import cache_of, submit, with_node


def test_a_copy_that_is_read_elsewhere_is_no_copy_to_read_here(tmp_path):
    async def act(node):
        await submit(node, await cache_of(node), [(b"key", b"value")])
        assert node.forwarding.has_state(0)
        node.low.here[0] = False
        assert not node.forwarding.has_state(0)
        node.low.here[0] = True

    with_node(tmp_path, act)
