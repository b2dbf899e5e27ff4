"""Metadata that cannot be asked for a while: whoever needs them waits, and the node goes on."""

import numpy as np

from eventlog.errors import EventLogError, MetadataLost, MetadataUnavailable
from tests.node.nodes import cache_of, with_node

OUTAGE = [MetadataUnavailable(outcome="none", why="locked"), MetadataLost(where="here", why="moved away")]


def failing(errors: list[EventLogError], real, done=lambda: None):
    """Return `real` with errors before it works again."""
    left = list(errors)

    async def act():
        if left:
            raise left.pop(0)
        done()
        return await real()

    return act


def test_a_takeover_waits_for_its_ids(tmp_path):
    async def act(node):
        node.clock.observe(node.clock.ceiling)
        node.renew_lease = failing(OUTAGE, node.renew_lease)
        return await node.replicas.takeover._ids(np.array([0]))

    assert with_node(tmp_path, act) > 0


def test_who_follows_a_log_waits_for_the_caches_that_it_names(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        told = []
        node.refresh_caches = failing(OUTAGE, node.refresh_caches, done=lambda: told.append(cache.name))
        await node.learn_caches()
        return told

    assert with_node(tmp_path, act) == ["c"]
