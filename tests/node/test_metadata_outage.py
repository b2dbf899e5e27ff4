"""Metadata that cannot be asked for a while: whoever needs them waits, and the node goes on."""

import asyncio

import msgspec
import numpy as np

from eventlog.control.records import Versioned
from eventlog.errors import EventLogError, MetadataLost, MetadataUnavailable
from eventlog.replication.commands import Lead, Recheck
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


def begin_next_term(node, segment):
    """Have a record arrive that says that this node leads anew."""
    found = node.view.segments[segment]
    later = msgspec.structs.replace(found.record, epoch=found.record.epoch + 1)
    node.replicas.learn_now([Versioned(later, found.revision + 1)])


async def first_of_next_term(node):
    """Have the first segment led anew; return the id of the marker of its new term."""
    begin_next_term(node, 0)
    assert await node.takeover.served(np.array([0]), wait_ms=10_000)
    return node.core.ends.item(0)


def test_a_takeover_waits_for_its_ids(tmp_path):
    async def act(node):
        node.clock.observe(node.clock.ceiling)
        ended = node.core.ends.item(0)
        node.lease.renew = failing(OUTAGE, node.lease.renew)
        return ended, await first_of_next_term(node)

    ended, first = with_node(tmp_path, act)
    assert first > ended


def test_a_copy_that_is_given_up_waits_for_its_record(tmp_path):
    async def act(node):
        seen = []
        node.records.segments_now = rereading(OUTAGE, node.records.segments_now, seen)
        core = node.replicas.core
        core.rechecked = lambda segments: seen.append(("rechecked", list(segments))) or []
        node.replicas.carry_out([Recheck(segments=(0, 1))])
        async with asyncio.timeout(10):
            while not seen or seen[-1][0] != "rechecked":  # noqa: ASYNC110 -- the core has no event for it
                await asyncio.sleep(0.01)
        return seen

    assert with_node(tmp_path, act) == [("read", [0, 1]), ("rechecked", [0, 1])]


def rereading(errors, real, seen):
    left = list(errors)

    async def read(segments):
        if left:
            raise left.pop(0)
        seen.append(("read", list(segments)))
        return await real(segments)

    return read


def test_a_term_begins_above_the_floor_of_the_latest_record_be_it_ahead_of_the_view(tmp_path):
    async def act(node):
        found = node.view.segments[0]
        floor = node.clock.last + (10 << 22)
        later = msgspec.structs.replace(found.record, floor=floor, epoch=found.record.epoch + 1)
        node.replicas.learn_now([Versioned(later, found.revision + 1)])
        assert await node.takeover.served(np.array([0]), wait_ms=10_000)
        return floor, node.core.ends.item(0)

    floor, first = with_node(tmp_path, act)
    assert first > floor


def test_a_term_that_the_lease_says_is_over_is_not_served(tmp_path):
    async def act(node):
        takeover = node.takeover
        takeover.stop([0])
        node.records.lead = lambda terms: frozenset({0}) & terms.keys()
        takeover.commands()[Lead](Lead(segments=np.array([0, 1])))
        return node.replicas.serving[:2].tolist()

    assert with_node(tmp_path, act) == [False, True]


def test_a_term_that_the_lease_says_is_over_is_not_begun(tmp_path):
    async def act(node):
        node.records.lead = lambda terms: frozenset({0}) & terms.keys()
        ended = node.core.ends[:2].tolist()
        for segment in (0, 1):
            begin_next_term(node, segment)
        assert await node.takeover.served(np.array([1]), wait_ms=10_000)
        return [end > before for end, before in zip(node.core.ends[:2].tolist(), ended, strict=True)]

    assert with_node(tmp_path, act) == [False, True]


def test_who_follows_a_log_waits_for_the_caches_that_it_names(tmp_path):
    async def act(node):
        cache = await cache_of(node)
        told = []
        node.refresh_caches = failing(OUTAGE, node.refresh_caches, done=lambda: told.append(cache.name))
        await node.learn_caches()
        return told

    assert with_node(tmp_path, act) == ["c"]
