"""What is said of copies that hold a move up."""

import asyncio
import dataclasses
from collections import Counter
from types import SimpleNamespace

import msgspec
import pytest

from eventlog.control.records import ReplicaRecord, Versioned
from eventlog.node.copying.digests import Comparison, CopyVerifier
from tests.loops import until
from tests.node.nodes import with_node

AWAY = ReplicaRecord(node=7, incarnation="away")


def shown(node, **changes):
    """Have the node see another record of segment 0."""
    view = node.view
    record = msgspec.structs.replace(view.segments[0].record, **changes)
    node.metadata.view = dataclasses.replace(view, segments={**view.segments, 0: Versioned(record, view.segments[0].revision)})


def show_a_move(node):
    """Have the node see that segment 0 is to move, and a copy of it away."""
    own = node.view.segments[0].record.in_sync
    shown(node, owners=(node.number, 7, 8), in_sync=(*own, AWAY), target=(node.number, 7))


async def verifier_of_a_move(node):
    """Return one that has found the copy of segment 0 away to differ, while the segment is to move there."""
    show_a_move(node)
    verifier = CopyVerifier(node)
    await verifier.turn()
    return verifier


def test_a_difference_is_told_as_long_as_the_segment_is_to_move(tmp_path):
    async def act(node):
        verifier = await verifier_of_a_move(node)
        assert list(verifier.differences) == [0]
        shown(node, target=())
        assert not verifier.differences

    with_node(tmp_path, act)


class Compared:
    """A node as far as verifiers are concerned. All copies differ in `why`, and are equal where that is empty."""

    def __init__(self, view, why):
        self.view = view
        self.controller = SimpleNamespace(is_controller=True, wake=lambda: None)
        self.failures = Counter()
        self.digests = self
        self._why = why

    async def compare_all(self, wanted):
        return [Comparison(segment=segment, digests={}, why=self._why) for segment, _ in wanted]


@pytest.mark.parametrize("why", ["", "another digest"])
def test_what_was_found_as_controller_is_forgotten_by_who_is_it_no_more(tmp_path, why):
    async def act(node):
        show_a_move(node)
        ground = Compared(node.view, why)
        verifier = CopyVerifier(ground)
        await verifier.turn()
        assert (dict(verifier.differences), set(verifier.verified(ground.view))) == (({0: why}, set()) if why else ({}, {(0, AWAY)}))
        ground.controller.is_controller = False
        running = asyncio.create_task(verifier.run())
        await until(lambda: not (verifier.differences or verifier.verified(ground.view)))
        running.cancel()

    with_node(tmp_path, act)
