"""Stories of nodes that say what is not theirs to say: terms that no record names, cuts, snapshots, promises, refusals."""

import numpy as np
import pytest

from eventlog.errors import BadMessage
from eventlog.replication import Message, Replica
from eventlog.replication import commands as do
from eventlog.replication.messages import ACK, APPEND, BEGIN, CUT, HELD, STALE
from tests.replication.test_backup import Row, end, plain, send
from tests.replication.worlds import Letter, Node, World, led

ABSURD = (1 << 32) - 2


def say(node: Node, *rows: Row, sender: Replica) -> None:
    """Have rows arrive as if `sender` had sent them, and everything happen that comes of it."""
    message = Message(sender=sender, recipient=node.own, correlation=7, rows=np.array(list(rows), APPEND).tobytes())
    try:
        node.take(Letter(node.own, False, message, [[] for _ in rows]))
    except BadMessage:
        return
    node.world.settle()


def acknowledge(node: Node, status: int, *, sender: Replica, epoch: int, end: int = 0, correlation: int = 10**6) -> None:
    """Have an answer arrive, and everything happen that comes of it."""
    rows = np.array([(0, status, epoch, end, 0, 0)], ACK).tobytes()
    message = Message(sender=sender, recipient=node.own, correlation=correlation, rows=rows)
    node.carry_out(node.core.acknowledged(message, now_ms=node.world.now_ms))
    node.world.settle()


def begin(node: Node, epoch: int) -> Row:
    return 0, BEGIN, epoch, 5, 10, end(node), 0, 0


def check_it_goes_on(world: World, primary: int = 1) -> None:
    """Write to a segment, and see it on every node."""
    [id_] = world[primary].put(0)
    world.settle()
    assert world[primary].committed[0] == id_
    assert [end(node) for node in world.nodes.values()] == [id_] * len(world.nodes)


# ---------------------------------------------------------------- a higher epoch


def test_an_epoch_that_no_record_names_ends_no_term_and_stops_no_write():
    world = led(3)
    for node in world.nodes.values():
        say(node, plain(node, previous=end(node), last=end(node), epoch=ABSURD), sender=world[3].own)
    assert world[1].core.leads.tolist() == [True, True]
    check_it_goes_on(world)


def test_an_epoch_that_no_record_names_begins_no_snapshot():
    world = led(3)
    [id_] = world[1].put(0)
    world.settle()
    for node in world.nodes.values():
        say(node, begin(node, ABSURD), sender=world[3].own)
        assert (end(node), node.disk.ends[0]) == (id_, id_)
    check_it_goes_on(world)


def test_an_epoch_that_no_record_names_cuts_nothing():
    world = led(3)
    [id_] = world[1].put(0)
    world.settle()
    say(world[2], (0, CUT, 2, id_, id_ - 1, 0, 0, 0), sender=world[3].own)
    assert end(world[2]) == id_


def test_a_primary_that_is_named_since_is_believed_once_the_record_was_read():
    world = led(3)
    world.appoint(2)
    world.tell(2)
    world.settle()
    assert 0 in world[2].led, "its backups, which nobody had told of the record, have read it"
    check_it_goes_on(world, primary=2)


def test_what_waits_for_a_reading_is_taken_as_soon_as_the_record_is_seen():
    world = led(3)
    world.appoint(2)
    [keep, look] = send(world[3], plain(world[3], previous=end(world[3]), last=end(world[3]), epoch=2), sender=2)
    assert isinstance(keep, do.Keep)
    assert look == do.LookUp(segments=(0,)) if isinstance(look, do.LookUp) else False
    commands = world[3].core.learn(list(world.metadata.records.values()), now_ms=world.now_ms)
    assert [command.message for command in commands if isinstance(command, do.Take)] == [keep.message]
    assert world[3].core.looked_up(now_ms=world.now_ms) == []


def test_what_comes_while_records_are_read_goes_into_one_further_reading():
    world = led(3, segments=3)
    node = world[3]
    assert any(isinstance(command, do.LookUp) for command in send(node, plain(node, previous=1, last=1, epoch=2), sender=2))
    for segment in (1, 2, 1):
        [keep] = send(node, plain(node, previous=1, last=1, epoch=2, segment=segment), sender=2)
        assert isinstance(keep, do.Keep)
    world.appoint(2)
    node.core.learn([world.metadata.records[0]], now_ms=world.now_ms)
    looks = [command for command in node.core.looked_up(now_ms=world.now_ms) if isinstance(command, do.LookUp)]
    assert looks == [do.LookUp(segments=(1, 2))]


def test_who_was_found_to_claim_falsely_has_no_record_read_for_a_while():
    world = led(3)
    node, liar = world[2], world[3]
    for _ in range(20):
        say(node, plain(node, previous=end(node), last=end(node), epoch=ABSURD), sender=liar.own)
    assert len(node.lookups) == 1
    with pytest.raises(BadMessage, match="node 3 is not known to be primary of segment 0, epoch 9"):
        send(node, plain(node, previous=end(node), last=end(node), epoch=9), sender=3)
    world.pass_time(1_000)
    say(node, plain(node, previous=end(node), last=end(node), epoch=ABSURD), sender=liar.own)
    assert len(node.lookups) == 2
    check_it_goes_on(world)


def test_who_claims_falsely_is_believed_in_what_records_give_it():
    world = led(3)
    say(world[2], plain(world[2], previous=1, last=1, epoch=ABSURD), sender=world[3].own)
    world.appoint(3)
    world.tell(2, 3)
    world.settle()
    assert 0 in world[3].led
    check_it_goes_on(world, primary=3)


def test_no_more_of_one_sender_waits_than_a_few_messages():
    world = led(3)
    node = world[2]
    kept = [send(node, plain(node, previous=1, last=1, epoch=9), sender=3, correlation=number) for number in range(100)]
    limit = world.options.claims_max
    assert [len(commands) for commands in kept] == [2, *[1] * (limit - 1), *[0] * (100 - limit)]
    assert send(node, plain(node, previous=1, last=1, epoch=2), sender=1), "others still have room"


# ---------------------------------------------------------------- who sends


def test_another_incarnation_of_the_primarys_node_is_not_the_primary():
    world = led(3)
    [id_] = world[1].put(0)
    world.settle()
    for row in (begin(world[2], 1), (0, CUT, 1, id_, id_ - 1, 0, 0, 0), plain(world[2], previous=id_, last=10**6)):
        message = Message(sender=Replica(1, "b"), recipient=world[2].own, correlation=7, rows=np.array([row], APPEND).tobytes())
        with pytest.raises(BadMessage, match="node 1 is not the primary of segment 0, epoch 1"):
            world[2].core.receive(message, now_ms=world.now_ms)
    assert end(world[2]) == id_


def test_nobody_sends_rows_of_a_term_that_is_this_nodes():
    world = led(2)
    for sender in (world[2].own, world[1].own):
        message = Message(sender=sender, recipient=world[1].own, correlation=7, rows=np.array([begin(world[1], 1)], APPEND).tobytes())
        with pytest.raises(BadMessage, match="is not the primary of segment 0"):
            world[1].core.receive(message, now_ms=world.now_ms)


def test_a_log_does_not_come_to_end_beyond_what_can_have_been_issued():
    world = led(2)
    backup = world[2]
    backup.core.allow_ids(1_000)
    with pytest.raises(BadMessage, match="segment 0 would end with 1001; no id above 1000 can have been issued"):
        send(backup, plain(backup, previous=end(backup), last=1_001))
    with pytest.raises(BadMessage, match="segment 1 would end with 1001"):
        send(backup, plain(backup, previous=end(backup), last=900), plain(backup, previous=end(backup, 1), last=1_001, segment=1))
    assert end(backup) < 900
    assert send(backup, plain(backup, previous=end(backup), last=1_000))


def test_a_promise_counts_from_the_primary_that_the_record_names_alone():
    world = led(3)
    [id_] = world[1].put(0)
    world.settle()
    segments, epochs, ids = np.array([0]), np.array([1]), np.array([id_])
    core = world[2].core
    for sender in (world[3].own, Replica(1, "b"), world[2].own):
        assert core.promised(sender, segments, epochs=epochs, last_ids=ids) == []
        assert not core.believes(sender, segments, epochs=epochs).any()
    assert core.believes(world[1].own, np.array([0, 1]), epochs=np.array([1, 2])).tolist() == [True, False]


# ---------------------------------------------------------------- answers


def test_a_refusal_that_names_an_epoch_that_no_record_names_ends_no_term():
    world = led(3)
    for _ in range(20):
        try:
            acknowledge(world[1], STALE, sender=world[3].own, epoch=ABSURD)
        except BadMessage:
            continue
    assert world[1].core.leads.tolist() == [True, True]
    assert len(world[1].lookups) == 1
    check_it_goes_on(world)


def test_a_refusal_for_a_higher_epoch_ends_the_term_once_the_record_was_read():
    world = led(3)
    world.appoint(2)
    acknowledge(world[1], STALE, sender=world[3].own, epoch=2)
    assert world[1].lookups == [(0,)]
    assert not world[1].core.leads[0]


def test_what_another_incarnation_acknowledges_commits_nothing():
    world = led(2, needed=2)
    [id_] = world[1].put(0)
    world[1].sync()
    world.letters.clear()
    acknowledge(world[1], HELD, sender=Replica(2, "b"), epoch=1, end=id_)
    assert world[1].committed[0] < id_
    acknowledge(world[1], HELD, sender=Replica(2, "a"), epoch=1, end=id_)
    assert world[1].committed[0] == id_
