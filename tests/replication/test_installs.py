"""Stories of replicas that are not wanted any more while something is done to them, and then wanted again."""

from dataclasses import replace

import numpy as np

from eventlog.replication import Replication
from eventlog.replication import commands as do
from eventlog.replication.messages import BEGIN, CHUNK, END, MISMATCH, UNKNOWN
from tests.replication.test_backup import answers, cutting, end, plain, send
from tests.replication.worlds import Node, World, led


def own(world: World, node: Node, *owners: int) -> do.Commands:
    """Have a node learn that others own segment 0; return what it makes of that."""
    now = world.metadata.records[0]
    in_sync = tuple(replica for replica in now.in_sync if replica.node in owners)
    term = world.metadata.put(replace(now, owners=owners, in_sync=in_sync))
    return node.core.learn([term], now_ms=world.now_ms)


def given_up(commands: do.Commands) -> list[do.Command]:
    return [command for command in commands if isinstance(command, do.Recheck | do.Release)]


def test_a_replica_is_deleted_when_a_cut_under_way_has_ended():
    world = cutting()
    node = world[1]
    assert not given_up(own(world, node, 2, 3))
    [late] = node.pending
    commands = late()
    assert given_up(commands) == [do.Recheck(segments=(0,))]
    assert node.core.columns.busy[0]
    node.carry_out(commands)
    world.settle()
    assert (end(node), node.logs[0]) == (0, [])
    assert not node.core.columns.busy[0]


def test_what_was_on_its_way_to_the_disk_is_not_acknowledged_once_the_replica_is_given_up():
    node = led(3)[2]
    [write] = send(node, plain(node, previous=end(node), last=10**6))
    assert isinstance(write, do.Write)
    assert given_up(own(node.world, node, 1, 3))
    assert answers(node.core.stored(write)) == []


def test_who_is_an_owner_again_while_it_is_deleted_takes_rows_only_when_that_is_done():
    world = cutting()
    node = world[1]
    node.carry_out(own(world, node, 2, 3))
    node.carry_out(own(world, node, 1, 2, 3))
    world.settle()
    assert node.logs[0] == world[2].logs[0] == world[3].logs[0]

    node.carry_out(own(world, node, 2, 3))
    assert node.core.columns.busy[0], "nothing else was under way"
    node.sync(1)
    assert len(node.pending) == 1, "the record was read anew, and the copy goes"
    node.carry_out(own(world, node, 1, 2, 3))
    at = end(node)
    assert answers(send(node, (0, 0, node.core.epochs.item(0), at, at + 5, 0, 1, 0), sender=2)) == []
    assert end(node) == at
    node.sync()
    assert (end(node), node.logs[0]) == (0, [])


def test_a_record_of_an_epoch_before_the_one_that_the_own_log_ends_in_deletes_nothing():
    world = led(3)
    node, now = world[2], world.metadata.records[0]
    without = replace(now, owners=(1, 3), in_sync=tuple(replica for replica in now.in_sync if replica.node != 2))
    old = world.metadata.put(without)
    world.metadata.put(now)
    world.appoint(1)
    world.tell()
    world.settle()
    node.crash()
    core = Replication(world.segments, own=node.own)
    core.open(np.array(node.disk.ends), histories=node.disk.histories, applied=np.zeros(2, np.int64))
    assert not given_up(core.learn([old], now_ms=world.now_ms)), "it may be in sync by now"
    gone = world.metadata.put(replace(without, epoch=2))
    assert given_up(core.learn([gone], now_ms=world.now_ms))


def test_an_old_record_of_this_epoch_deletes_nothing_of_who_was_named_again():
    world = led(3)
    node, now, before = world[2], world.metadata.records[0], list(world[2].logs[0])
    old = world.metadata.put(replace(now, owners=(1, 3), in_sync=tuple(replica for replica in now.in_sync if replica.node != 2)))
    again = world.metadata.put(replace(now, owners=(1, 2, 3), in_sync=old.in_sync))
    world.tell(1, 3)
    world.pass_time(600)
    assert node.own in world.metadata.records[0].in_sync, "its own view lags behind both records"
    node.learn([old])
    assert node.core.columns.busy[0]
    [(_, status, _)] = answers(send(node, plain(node, previous=end(node), last=end(node), epoch=again.epoch)))
    assert status == UNKNOWN, "it acknowledges nothing meanwhile"
    node.sync()
    assert not node.core.columns.busy[0]
    assert node.logs[0] == before
    world.settle()
    assert end(node) == end(world[1])


def test_who_was_named_again_and_appointed_while_its_record_is_read_anew_leads():
    world = led(3)
    node, now = world[2], world.metadata.records[0]
    old = world.metadata.put(replace(now, owners=(1, 3), in_sync=tuple(replica for replica in now.in_sync if replica.node != 2)))
    world.metadata.put(replace(now, owners=(1, 2, 3)))
    node.learn([old])
    world.appoint(2, segments=[0])
    world.tell(2)
    assert not node.marks, "nothing is done to a log that may have to go"
    node.sync()
    assert [mark.segments for mark in node.marks] == [(0,)]


def test_what_a_replica_said_before_it_was_named_again_does_not_count():
    world = led(3)
    node, now = world[2], world.metadata.records[0]
    world[1].put(0)
    written = [letter for letter in world.letters if letter.to == node.own]
    assert len(written) == 1
    world.deliver(world.letters.index(written[0]))
    node.sync()
    [late] = [letter for letter in world.letters if letter.is_ack]
    world.letters.clear()
    without = replace(now, owners=(1, 3), in_sync=tuple(replica for replica in now.in_sync if replica.node != 2))
    world.metadata.put(without)
    world.tell(2)
    node.sync()
    node.sync()
    assert node.logs[0] == []
    world.metadata.put(replace(without, owners=(1, 2, 3)))
    world.tell(1)  # it need not have seen the record in between
    world[1].take(late)
    assert world[1].core.roster.acknowledged[world[1].core.roster.find(node.own), 0] == -1
    assert not world[1].proposals
    world.tell()
    world.pass_time(1_200)
    assert node.logs[0] == world[1].logs[0]
    assert node.own in world.metadata.records[0].in_sync


def test_a_replica_that_was_installed_while_it_was_given_up_is_told_to_nobody():
    node = led(3)[2]
    epoch, at = node.core.epochs.item(0), end(node)
    begin = (0, BEGIN, epoch, 7, at + 9, at, 0, 0)
    [begun] = send(node, begin)
    assert answers(node.core.installed(begun))
    [part] = send(node, (0, CHUNK, epoch, 7, 0, 0, 1, 0))
    assert answers(node.core.installed(part))
    [ended] = send(node, (0, END, epoch, 7, at + 9, 0, 1, 0))
    world = node.world
    [given] = given_up(own(world, node, 1, 3))
    assert isinstance(given, do.Release), "a copy that is not whole is nobody's"
    own(world, node, 1, 2, 3)
    assert node.core.installed(ended) == []
    assert not node.core.columns.matched[0]
    node.core.discarded(np.array([0]))
    assert end(node) == 0


def test_a_replica_whose_install_is_left_while_its_end_is_written_is_told_to_nobody():
    node = led(3)[2]
    epoch, at = node.core.epochs.item(0), end(node)
    [begun] = send(node, (0, BEGIN, epoch, 7, at + 9, at, 0, 0))
    node.core.installed(begun)
    [ended] = send(node, (0, END, epoch, 7, at + 9, 0, 0, 0))
    [cut] = send(node, plain(node, previous=at, last=at, epoch=epoch), correlation=100)
    assert cut.discard
    assert node.core.installed(ended) == []
    assert not node.core.columns.matched[0]
    assert answers(node.core.cut_done(cut, end=0)) == [(0, MISMATCH, 0)]


def test_a_replica_is_deleted_when_the_begin_of_an_install_is_done():
    node = led(3)[2]
    world, at = node.world, end(node)
    [begun] = send(node, (0, BEGIN, node.core.epochs.item(0), 7, at + 9, at, 0, 0))
    assert not given_up(own(world, node, 1, 3))
    assert given_up(node.core.installed(begun)) == [do.Release(segments=(0,))]
    assert node.core.columns.busy[0]
