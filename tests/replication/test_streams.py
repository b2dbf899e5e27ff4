"""Stories of catching up: from the log, from a snapshot, and joining the live stream without a gap."""

from dataclasses import replace

import numpy as np
import pytest

from eventlog.replication import Message
from eventlog.replication.links import LIVE, SNAPSHOT
from eventlog.replication.messages import ACK, APPEND, BEGIN, END, MISMATCH, UNKNOWN
from tests.replication.worlds import World, led


def behind(count: int, *, nodes: int = 2, trim: bool = False) -> World:
    """Return a world in which node 2 was away while `count` values were appended to segment 0; all but the last are trimmed."""
    world = led(nodes)
    world[2].crash()
    world.pass_time(1100)
    for _ in range(count):
        world[1].put(0)
        world.settle()
    if trim:
        upto = world[1].logs[0][-2][0]
        world[1].core.trimmed(np.array([0]), np.array([upto]))
    return world


def sent_bytes(world: World) -> int:
    """Return the bytes of values that node 1 has sent or is about to send to node 2, and that are not acknowledged."""
    link = world[1].core.streams.links[world[2].own]
    return link.used_bytes


def test_what_a_backup_lacks_comes_from_the_log_in_pieces_and_it_follows_live_afterwards():
    world = behind(30)
    world[2].start()
    world.settle()
    assert world[2].logs == world[1].logs
    link = world[1].core.streams.links[world[2].own]
    assert (link.modes == LIVE).all()
    assert not link.streams
    assert link.used_bytes == 0


def test_no_more_than_the_window_is_under_way_to_one_peer():
    world = behind(60)
    world[2].start()
    most = 0
    for _ in range(2_000):
        if world.letters:
            world.deliver()
        elif world[1].reads:
            reads, world[1].reads = world[1].reads, []
            for read in reads:
                world[1].carry_out(read())
        else:
            world[2].sync()
        most = max(most, sent_bytes(world))
        if world[2].logs[0] == world[1].logs[0]:
            break
    options = world.options
    assert world[2].logs[0] == world[1].logs[0]
    assert options.chunk_bytes < most <= options.window_bytes + options.chunk_bytes


def test_appends_while_a_backup_catches_up_leave_no_gap_and_come_once():
    world = behind(12)
    world[2].start()
    for _ in range(200):
        if not world[1].core.waits_for(0):
            world[1].put(0)
            world[1].sync()
        if world.letters:
            world.deliver()
        for node in (world[1], world[2]):
            reads, node.reads = node.reads, []
            for read in reads:
                node.carry_out(read())
        world[2].sync(1)
    world.settle()
    assert world[2].logs[0] == world[1].logs[0]


def test_a_read_that_comes_back_for_a_stream_that_has_turned_is_thrown_away():
    world = behind(12)
    world[2].start()
    while not world[1].reads:
        world.deliver()
    world[2].crash()
    world[2].start()
    world.letters.clear()
    reads, world[1].reads = world[1].reads, []
    for read in reads:
        world[1].carry_out(read())
    assert not any(len(letter.message.rows) and letter.values and letter.values[0] for letter in world.letters)
    world.pass_time(1000)
    assert world[2].logs == world[1].logs


def test_a_lost_piece_is_asked_for_again():
    world = behind(12)
    world[2].start()
    while not any(letter.values and letter.values[0] for letter in world.letters):
        go_on(world)
    world.letters.clear()
    world.pass_time(3000)
    assert world[2].logs == world[1].logs


def test_a_lost_append_is_found_by_the_next_question_though_nothing_else_is_written():
    world = led(3)
    world[1].put(0)
    world.letters = [letter for letter in world.letters if letter.to != world[2].own]
    world.pass_time(600, decide=False)
    assert world[2].logs[0] == world[1].logs[0]
    assert world[1].core.watermark.item(0) == world[1].core.ends.item(0)


def test_all_is_quiet_once_every_write_is_committed_and_told_and_not_while_a_member_is_away():
    world = led(3)
    world.pass_time(100)
    assert all(node.core.is_quiet for node in world.nodes.values())
    world[1].put(0)
    world.settle()
    assert not world[1].core.is_quiet, "the others have not heard the watermark"
    world.pass_time(100)
    assert world[1].core.is_quiet
    world[3].crash()
    world.settle()
    assert not world[1].core.is_quiet


def test_a_refusal_from_before_the_stream_turned_is_old_news():
    world = behind(12)
    world[2].start()
    while not world[1].reads:
        world.deliver()
    row = np.array([(0, MISMATCH, 1, 0, 0, 0)], ACK)
    late = Message(sender=world[2].own, recipient=world[1].own, correlation=0, rows=row.tobytes())
    assert world[1].core.acknowledged(late, now_ms=world.now_ms) == []
    assert len(world[1].reads) == 1


def test_a_refusal_from_before_a_backup_followed_live_does_not_take_it_from_there():
    world = behind(3)
    world[2].start()
    world.settle()
    link = world[1].core.streams.links[world[2].own]
    assert link.modes.item(0) == LIVE
    row = np.array([(0, MISMATCH, 1, 0, 0, 0)], ACK)
    late = Message(sender=world[2].own, recipient=world[1].own, correlation=1, rows=row.tobytes())
    assert world[1].core.acknowledged(late, now_ms=world.now_ms) == []
    assert link.modes.item(0) == LIVE


def test_who_does_not_hold_the_segment_yet_is_asked_again_later():
    world = led(2)
    row = np.array([(0, UNKNOWN, 1, 0, 0, 0)], ACK)
    world[1].carry_out(
        world[1].core.acknowledged(Message(sender=world[2].own, recipient=world[1].own, correlation=9, rows=row.tobytes()), now_ms=0)
    )
    [id_] = world[1].put(0)
    assert not world.letters, "no values before it is known to take them"
    world.pass_time(600, decide=False)
    assert world[1].committed[0] == id_


def test_a_new_owner_gets_everything_and_joins():
    world = World(3)
    world.appoint(1, owners=(1, 2), in_sync=(1, 2))
    world.tell()
    world.settle()
    for _ in range(5):
        world[1].put(0, 1)
        world.settle()
    for record in list(world.metadata.records.values()):
        world.metadata.put(replace(record, owners=(1, 2, 3)))
    world.tell()
    world.pass_time(200)
    assert world[3].logs == world[1].logs
    assert {replica.node for replica in world.metadata.records[0].in_sync} == {1, 2, 3}


# ---------------------------------------------------------------- snapshots


def test_where_the_log_does_not_reach_back_a_snapshot_comes_first():
    world = behind(9, trim=True)
    world[2].start()
    world.pass_time(500)
    assert world[2].logs[0] == world[1].logs[0]
    assert world[2].core.history(0) == world[1].core.history(0)
    assert world[2].core.watermark.item(0) == world[1].core.watermark.item(0)
    assert {replica.node for replica in world.metadata.records[0].in_sync} == {1, 2}
    assert not world[1].snapshots, "the pin is let go"
    assert not world[1].core.streams.links[world[2].own].streams


def go_on(world: World, *synced: int) -> None:
    """Deliver a letter if there is one, sync some disks, and read what node 1 was to read."""
    if world.letters:
        world.deliver()
    for number in synced:
        world[number].sync()
    reads, world[1].reads = world[1].reads, []
    for read in reads:
        world[1].carry_out(read())


def installing() -> World:
    """Return a world in which node 2 has dropped what it had, and has part of a snapshot."""
    world = behind(9, trim=True)
    world[2].start()
    while len(world[2].parts.get(0, [])) < 2:
        go_on(world, 2)
    return world


def test_a_replica_that_is_not_whole_matches_nothing_joins_nothing_and_leads_nothing():
    world = installing()
    core = world[2].core
    assert 0 in world[2].disk.partial
    assert not core.matched[0]
    assert not any(proposal.joined for proposal in world[1].proposals if proposal.segment == 0)
    assert core.watermark.item(0) == 0


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_replica_that_is_not_whole_and_is_forced_to_lead_begins_with_nothing_and_keeps_what_it_gets(has_begun):
    world = installing() if has_begun else behind(9, trim=True)
    if not has_begun:
        world[2].start()
        while not world[2].core.backup.installs.is_partial(0):
            world.deliver()
            reads, world[1].reads = world[1].reads, []
            for read in reads:
                world[1].carry_out(read())
    world[1].crash()
    world.acknowledged[0] = []  # all of it is given up
    world.appoint(2, segments=[0], owners=(2,), in_sync=(2,))
    world.tell(2)
    world.settle()
    assert 0 in world[2].led
    [id_] = world[2].put(0)
    world.settle()
    assert world[2].committed[0] == id_
    world[2].crash()
    world[2].start()
    assert [value[0] for value in world[2].logs[0]][-1] == id_


def test_a_crash_in_the_middle_of_a_snapshot_begins_it_anew():
    world = installing()
    world[2].crash()
    world[2].start()
    assert world[2].logs[0] == []
    world.pass_time(500)
    assert world[2].logs[0] == world[1].logs[0]


def test_a_new_primary_in_the_middle_of_a_snapshot_begins_it_anew():
    world = behind(9, nodes=3, trim=True)
    world[2].start()
    while len(world[2].parts.get(0, [])) < 2:
        go_on(world, 2, 3)
    world[3].core.trimmed(np.array([0]), np.array([world[3].logs[0][-2][0]]))
    world.appoint(3, segments=[0])
    world.tell()
    world.pass_time(500)
    assert world[2].logs[0] == world[3].logs[0] == world[1].logs[0]


def test_a_lost_part_begins_the_snapshot_anew_after_a_while():
    world = installing()
    world.letters.clear()
    world.pass_time(11_500)
    assert world[2].logs[0] == world[1].logs[0]


def test_a_snapshot_that_is_read_slowly_is_gone_on_with():
    world = installing()
    [transfer] = world[1].snapshots
    reads, world[1].reads = world[1].reads, []
    world.pass_time(11_500)
    world[1].reads = reads
    assert list(world[1].snapshots) == [transfer]
    world.pass_time(500)
    assert world[2].logs[0] == world[1].logs[0]


def test_a_late_beginning_of_a_snapshot_drops_nothing():
    world = behind(9, trim=True)
    world[2].start()
    while not any(np.frombuffer(letter.message.rows, APPEND)["flags"][0] == BEGIN for letter in world.letters if not letter.is_ack):
        go_on(world)
    late = next(letter for letter in world.letters if not letter.is_ack)
    world.pass_time(500)
    before = list(world[2].logs[0])
    assert world[2].core.receive(late.message, now_ms=0) == []
    assert world[2].logs[0] == before == world[1].logs[0]


def test_the_end_of_a_snapshot_that_comes_twice_is_taken_once():
    world = installing()
    while not (world.letters and not world.letters[0].is_ack and np.frombuffer(world.letters[0].message.rows, APPEND)["flags"][-1] == END):
        go_on(world, 2)
    end = world.letters[0]
    world.deliver()
    assert world[2].core.receive(end.message, now_ms=0) == [], "what makes it whole is on its way to the disk"
    world.pass_time(500)
    assert world[2].logs[0] == world[1].logs[0]


def test_a_member_of_the_in_sync_set_is_never_told_to_drop_what_it_has():
    world = led(2, needed=2)
    world[2].crash()
    [id_] = world[1].put(0)
    world[1].sync()
    world[1].core.trimmed(np.array([0]), np.array([id_]))
    world[2].start()
    world.settle()
    assert world[1].core.streams.links[world[2].own].modes[0] != SNAPSHOT
    assert world[2].logs[0]
