"""Pacing of copies."""

import asyncio
import dataclasses

import msgspec
import pytest

from eventlog.control.records import RebalanceRecord, Versioned
from eventlog.control.view import ClusterView
from eventlog.node.copying.replicate import CopyThrottle
from tests.control.worlds import node, replicas, segment, view


class Story:
    """A throttle over a view and a clock that moves when something sleeps."""

    def __init__(self, *, throttle_bytes=1_000, state="running", moving=((0, 1),)):
        in_sync = replicas(1, 2, 3)
        owners = {number: (primary, *({1, 2, 3} - {primary}), 4) for number, primary in moving}
        records = [msgspec.structs.replace(segment(number, owners=of, in_sync=in_sync), target=(2, 3, 4)) for number, of in owners.items()]
        found = view([node(number) for number in (1, 2, 3, 4)], [*records, segment(9, owners=(1, 2, 3, 4), in_sync=in_sync)])
        running = RebalanceRecord(state=state, moves_total=1, bytes_total=1, throttle_bytes=throttle_bytes, started_ms=1, nonce="n")
        self.view = ClusterView(nodes=found.nodes, segments=found.segments, rebalance=Versioned(running, 1))
        self.now = 100.0
        self.throttle = CopyThrottle(lambda: self.view, seconds=lambda: self.now, sleep=self.wait)
        self.sleeping = self.sleep  # what happens meanwhile

    async def wait(self, seconds):
        await self.sleeping(seconds)

    async def sleep(self, seconds):
        self.now += seconds

    def taken(self, *asked, to=4):
        """Return how long it took to take these (segment, bytes) one after the other."""

        async def take():
            for number, nbytes in asked:
                await self.throttle.take(number, nbytes, to=to)

        began = self.now
        asyncio.run(take())
        return self.now - began

    def change(self, **changes):
        """Give segment 0 another record."""
        found = self.view.segments
        changed = msgspec.structs.replace(found[0].record, **changes)
        self.view = dataclasses.replace(self.view, segments={**found, 0: Versioned(changed, 11)})


def test_a_copy_goes_as_fast_as_was_allowed():
    assert Story().taken((0, 500), (0, 1_500)) == pytest.approx(2.0)


def test_nodes_that_are_read_from_share_what_was_allowed():
    assert Story(moving=((0, 1), (1, 2))).taken((0, 500)) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "story", [Story(throttle_bytes=0), Story(state="cancelled"), Story(state="done")], ids=["no limit", "cancelled", "done"]
)
def test_without_a_limit_nothing_waits(story):
    assert story.taken((0, 1 << 30)) == 0


def test_a_segment_that_does_not_move_is_not_slowed_down():
    assert Story().taken((9, 1 << 30)) == 0


def test_a_replica_that_fell_behind_gets_what_it_lacks_at_once_while_its_segment_moves():
    story = Story()
    story.change(in_sync=replicas(1, 3))
    assert story.taken((0, 1 << 30), to=2) == 0
    assert story.throttle.sent == {}


def test_a_new_copy_that_is_in_sync_is_not_slowed_down_any_more():
    story = Story()
    story.change(in_sync=replicas(1, 2, 3, 4))
    assert story.taken((0, 1 << 30)) == 0


def test_a_copy_that_takes_the_place_of_a_lost_one_is_not_slowed_down():
    story = Story()
    story.change(owners=(1, 3, 4), in_sync=replicas(1, 3))
    assert story.taken((0, 1 << 30)) == 0


def test_time_in_which_nothing_was_sent_is_not_saved_up():
    story = Story()
    story.taken((0, 1_000))
    story.now += 60
    assert story.taken((0, 1_000)) == pytest.approx(1.0)


def test_what_was_sent_of_moving_segments_is_counted_until_they_have_arrived():
    story = Story(throttle_bytes=0, moving=((0, 1), (1, 1)))
    story.taken((0, 300), (0, 200), (1, 40), (9, 1_000))
    assert story.throttle.sent == {0: 500, 1: 40}
    story.view = Story(moving=((1, 1),)).view
    story.taken((1, 2))
    assert story.throttle.sent == {1: 42}


def test_a_limit_that_is_lifted_lets_go_of_what_waits():
    story = Story()

    async def cancelled(seconds):
        story.now += seconds
        story.view = ClusterView(nodes=story.view.nodes, segments=story.view.segments)

    story.sleeping = cancelled
    assert story.taken((0, 1 << 30)) == pytest.approx(0.5)


def test_a_copy_that_is_needed_meanwhile_waits_no_longer():
    story = Story()

    async def one_lost(seconds):
        story.now += seconds
        story.change(owners=(1, 3, 4), in_sync=replicas(1, 3))

    story.sleeping = one_lost
    assert story.taken((0, 1 << 30)) == pytest.approx(0.5)
    assert story.throttle.sent == {}


def test_what_waits_under_a_rebalancing_that_ended_holds_up_nothing_of_the_next():
    story = Story()

    async def begun_anew(seconds):
        story.now += seconds
        story.view = dataclasses.replace(
            story.view, rebalance=Versioned(msgspec.structs.replace(story.view.rebalance.record, nonce="m"), 2)
        )

    story.sleeping = begun_anew
    assert story.taken((0, 1 << 30)) == pytest.approx(0.5)
    story.sleeping = story.sleep
    assert story.taken((0, 1_000)) == pytest.approx(1.0)
