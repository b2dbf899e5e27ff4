"""Stories of a primary: what it appends, what it counts, and when something is committed."""

import numpy as np
import pytest

from eventlog.errors import BadMessage, NotEnoughReplicas, NotPrimary
from eventlog.replication import Message, Replica
from eventlog.replication import commands as do
from eventlog.replication.columns import FEW_ROWS_MAX
from eventlog.replication.messages import ACK, HELD, MISMATCH
from tests.replication.worlds import World, led


def appointed(nodes: int = 1, *, needed: int = 1) -> World:
    """Return a world in which node 1 knows that it is primary, and has appended nothing yet."""
    world = World(nodes)
    world.appoint(1, needed=needed)
    world.tell()
    return world


def held(world: World, segment: int, end: int, *, sender: int = 2, epoch: int = 1) -> Message:
    """Return an acknowledgement of one segment."""
    row = np.array([(segment, HELD, epoch, end, 0, 0)], ACK)
    return Message(sender=world[sender].own, recipient=world[1].own, correlation=1, rows=row.tobytes())


def test_an_old_tail_is_not_adopted_before_the_marker_of_the_new_epoch_commits():
    world = led(1)
    world[1].put(0)
    world.settle()
    world.appoint(1)
    world[1].start()
    world.appoint(1)
    world.tell()
    assert world[1].core.leads.all()
    assert not world[1].core.adopted.any()
    with pytest.raises(NotPrimary):
        world[1].put(0)
    world.settle()
    assert world[1].core.adopted.all()


def test_an_empty_tail_needs_the_marker_too():
    world = appointed(2)
    assert not world[1].core.adopted.any()
    world[1].mark()
    world[1].sync()
    assert not world[1].core.adopted.any(), "the backup has not cut what it may have"
    world.settle()
    assert world[1].core.adopted.all()


def test_the_watermark_moves_only_when_the_log_holds_the_group():
    world = led(1)
    before = world[1].core.watermark.tolist()
    [id_] = world[1].put(1)
    assert world[1].core.watermark.tolist() == before
    world[1].sync()
    assert world[1].core.watermark.tolist() == [before[0], id_]
    assert world[1].committed[1] == id_


def test_a_group_of_many_segments_commits_each_by_itself():
    world = led(2)
    first, second = world[1].put(0, 1)
    world[1].sync()
    world[1].carry_out(world[1].core.acknowledged(held(world, 1, second), now_ms=0))
    assert (world[1].committed[1], world[1].core.waits_for(0)) == (second, (world[2].own,))
    world.settle()
    assert world[1].committed[0] == first


def test_an_acknowledgement_beyond_the_end_is_a_lie():
    world = led(2)
    with pytest.raises(BadMessage, match="beyond its end"):
        world[1].core.acknowledged(held(world, 0, 10**6), now_ms=0)


def test_a_late_acknowledgement_does_not_move_the_watermark_back():
    world = led(2)
    earlier = world[1].core.ends.item(0)
    [id_] = world[1].put(0)
    world.settle()
    assert world[1].core.acknowledged(held(world, 0, earlier), now_ms=0) == []
    assert world[1].core.watermark.item(0) == id_


def test_an_acknowledgement_of_an_earlier_epoch_does_not_count():
    world = led(2)
    world.appoint(1)
    world.tell(1)
    world[1].mark()
    world[1].sync()
    end = world[1].core.ends.item(0)
    world[1].carry_out(world[1].core.acknowledged(held(world, 0, end, epoch=1), now_ms=0))
    assert not world[1].core.adopted[0]


def test_an_old_answer_takes_nothing_back_to_an_id_that_this_log_does_not_have():
    world = led(2)
    tail = world[1].core.ends.item(0)
    gone = world.next_id()  # of an event of the old epoch that node 2 alone had, and cut
    world.appoint(1)
    world.tell()
    world[1].mark()
    world.settle()
    row = np.array([(0, MISMATCH, 2, gone, 1, 0)], ACK)
    late = Message(sender=world[2].own, recipient=world[1].own, correlation=0, rows=row.tobytes())
    world[1].carry_out(world[1].core.acknowledged(late, now_ms=0))
    slot = world[1].core.roster.find(world[2].own)
    assert world[1].core.roster.acknowledged[slot, 0] == tail


def test_an_acknowledgement_for_another_incarnation_or_of_one_does_not_count():
    world = led(2)
    [id_] = world[1].put(0)
    world[1].sync()
    genuine = held(world, 0, id_)
    foreign = Message(sender=genuine.sender, recipient=Replica(1, "b"), correlation=1, rows=genuine.rows)
    other = Message(sender=Replica(2, "b"), recipient=genuine.recipient, correlation=1, rows=genuine.rows)
    assert world[1].core.acknowledged(foreign, now_ms=0) == []
    assert world[1].core.acknowledged(other, now_ms=0) == []
    world[1].carry_out(world[1].core.acknowledged(genuine, now_ms=0))
    assert world[1].committed[0] == id_


def test_an_epoch_that_is_not_higher_is_not_led():
    world = led(1)
    term = world[1].core.term(0)
    assert term is not None
    commands = world[1].core.learn([term], now_ms=0)
    assert commands == []


def test_who_resigned_appends_nothing():
    world = led(2)
    world.appoint(2, segments=[1])
    world.tell(1)
    assert world[1].led == {0}
    with pytest.raises(NotPrimary):
        world[1].put(1)
    world[1].put(0)


def test_terms_that_end_together_end_at_once_before_all_else():
    world = led(2)
    world.appoint(2)
    commands = world[1].core.learn(tuple(world.metadata.records.values()), now_ms=world.now_ms)
    assert [command.segments.tolist() for command in commands if isinstance(command, do.Resign)] == [[0, 1]]
    assert isinstance(commands[0], do.Resign)


def test_the_watermark_waits_for_every_member_in_sync():
    world = led(3)
    [id_] = world[1].put(0)
    world[1].sync()
    world[1].carry_out(world[1].core.acknowledged(held(world, 0, id_, sender=2), now_ms=0))
    assert world[1].core.watermark.item(0) < id_
    assert world[1].core.waits_for(0) == (world[3].own,)
    world[1].carry_out(world[1].core.acknowledged(held(world, 0, id_, sender=3), now_ms=0))
    assert world[1].core.watermark.item(0) == id_


def test_fewer_in_sync_than_needed_refuses_the_append_and_registers_nothing():
    world = led(2)
    world.appoint(1, in_sync=(1,))
    world.tell()
    world.settle(decide=False)
    core = world[1].core
    core.primary.set_sizes(1, size=1, needed=2)
    before = core.ends.tolist()
    with pytest.raises(NotEnoughReplicas) as caught:
        core.append(np.array([0, 1]), np.array([10**6, 10**6 + 1]), now_ms=0)
    assert (caught.value.segment, caught.value.have, caught.value.need) == (1, 1, 2)
    assert core.ends.tolist() == before


@pytest.mark.parametrize("segments", [(0,), (0, 1)])
def test_nothing_is_committed_while_fewer_are_in_sync_than_needed(segments: tuple[int, ...]):
    world = led(2)
    core = world[1].core
    before = core.watermark.tolist()
    ids = world[1].put(*segments)
    for segment in segments:
        core.primary.set_sizes(segment, size=1, needed=2)
    world.settle(decide=False)
    assert [world[2].core.durable.item(segment) for segment in segments] == list(ids), "everybody has it"
    assert core.watermark.tolist() == before
    for segment in segments:
        core.primary.set_sizes(segment, size=2, needed=2)
    world[1].carry_out(core.primary.advance(np.array(segments)))
    assert [core.watermark.item(segment) for segment in segments] == list(ids)


def test_a_marker_that_comes_after_the_term_is_over_is_not_registered():
    world = appointed(2)
    world.appoint(2, segments=[0])
    world.tell(1)
    world[1].mark()
    assert world[1].core.marked.tolist() == [1]
    assert world[1].core.ends.item(0) == 0


@pytest.mark.parametrize("segments", [2, FEW_ROWS_MAX, FEW_ROWS_MAX + 1])
def test_a_single_segment_few_and_many_take_the_same_steps(segments: int):
    alone, together = led(3, segments=segments), led(3, segments=segments)
    for world, groups in ((alone, [(segment,) for segment in range(segments)]), (together, [tuple(range(segments))])):
        for group in groups:
            world[1].put(*group, text="same")
        world.settle()
        world.pass_time(100)
    for segment in range(segments):
        assert alone[1].logs[segment] == together[1].logs[segment] == alone[3].logs[segment]
    assert alone[1].core.watermark.tolist() == together[1].core.watermark.tolist() == together[2].core.watermark.tolist()
