"""Stories of a backup: what it appends, cuts, acknowledges, and up to where it believes a watermark."""

import numpy as np
import pytest

from eventlog.errors import BadMessage
from eventlog.replication import GivenUpRange, Message, Replica
from eventlog.replication import commands as do
from eventlog.replication.messages import ACK, APPEND, CUT, HELD, HISTORY, MISMATCH, REFUSED, STALE, UNKNOWN
from tests.replication.worlds import Node, World, led

Row = tuple[int, int, int, int, int, int, int, int]


def send(node: Node, *rows: Row, sender: int = 1, correlation: int = 99, recipient: Replica | None = None) -> do.Commands:
    """Hand rows to a node as if node `sender` had sent them."""
    message = Message(
        sender=node.world[sender].own, recipient=recipient or node.own, correlation=correlation, rows=np.array(list(rows), APPEND).tobytes()
    )
    return node.core.receive(message, now_ms=node.world.now_ms)


def answers(commands: do.Commands) -> list[tuple[int, int, int]]:
    """Return (segment, status, end) of every row answered."""
    rows = b"".join(command.rows for command in commands if isinstance(command, do.Acknowledge))
    return [(row[0], row[1], row[3]) for row in np.frombuffer(rows, ACK).tolist()]


def end(node: Node, segment: int = 0) -> int:
    return node.core.ends.item(segment)


def plain(node: Node, *, previous: int, last: int, segment: int = 0, epoch: int = 1, watermark: int = 0) -> Row:
    return segment, 0, epoch, previous, last, watermark, int(last > previous), 0


def test_values_are_appended_where_the_log_ends_with_the_id_before_them_and_acknowledged_from_the_disk():
    world = led(2)
    backup = world[2]
    commands = send(backup, plain(backup, previous=end(backup), last=10**6))
    [write] = commands
    assert isinstance(write, do.Write)
    assert answers(commands) == []
    assert answers(backup.core.stored(write)) == [(0, HELD, 10**6)]


def test_a_gap_is_not_filled_in():
    backup = led(2)[2]
    before = end(backup)
    commands = send(backup, plain(backup, previous=before + 5, last=10**6))
    assert answers(commands) == [(0, MISMATCH, before)]
    assert end(backup) == before


def test_a_repeated_row_is_acknowledged_and_not_appended_again():
    world = led(2)
    world[1].put(0)
    letter = next(letter for letter in world.letters if not letter.is_ack)
    world.settle()
    again = world[2].core.receive(letter.message, now_ms=0)
    assert answers(again) == [(0, HELD, end(world[2]))]
    assert not any(isinstance(command, do.Write) for command in again)


@pytest.mark.parametrize("again", ["the same row", "an idle row", "an idle row beside another"])
def test_what_is_on_its_way_to_the_disk_is_not_acknowledged_by_a_row_that_comes_meanwhile(again: str):
    backup = led(2)[2]
    before, last = end(backup), 10**6
    values = plain(backup, previous=before, last=last)
    [write] = send(backup, values)
    assert isinstance(write, do.Write)
    idle = plain(backup, previous=last, last=last)
    rows = {"the same row": [values], "an idle row": [idle], "an idle row beside another": [idle, idle]}[again]
    assert [row for row in answers(send(backup, *rows)) if row[2] > before] == []
    assert answers(backup.core.stored(write)) == [(0, HELD, last)]
    assert answers(send(backup, *rows)) == [(0, HELD, last)] * len(rows)


def test_a_lower_epoch_is_refused_and_told_the_higher_one():
    world = led(2)
    backup = world[2]
    world.appoint(2, in_sync=(1, 2))
    world.tell(2)
    commands = send(backup, plain(backup, previous=end(backup), last=10**6))
    assert answers(commands) == [(0, STALE, end(backup))]


def test_what_was_written_under_a_lower_epoch_is_not_acknowledged_after_a_higher_one_is_known():
    world = led(2)
    backup = world[2]
    [write] = send(backup, plain(backup, previous=end(backup), last=10**6))
    assert isinstance(write, do.Write)
    world.appoint(2)
    world.tell(2)
    assert answers(backup.core.stored(write)) == [(0, STALE, 10**6)]


def test_records_of_many_segments_end_their_terms_at_once():
    world = led(2)
    world.appoint(2)
    commands = world[1].core.learn(list(world.metadata.records.values()), now_ms=world.now_ms)
    assert [command.segments.tolist() for command in commands if isinstance(command, do.Resign)] == [[0, 1]]


def test_two_primaries_of_one_epoch_are_a_violation():
    world = led(3)
    with pytest.raises(BadMessage, match="not the primary"):
        send(world[2], plain(world[2], previous=end(world[2]), last=10**6), sender=3)
    with pytest.raises(BadMessage, match="not the primary"):
        send(world[1], plain(world[1], previous=end(world[1]), last=10**6), sender=3)


def test_a_message_to_another_incarnation_is_nobodys():
    backup = led(2)[2]
    assert send(backup, plain(backup, previous=end(backup), last=10**6), recipient=Replica(2, "b")) == []
    assert end(backup) < 10**6


def test_a_segment_that_no_record_gave_to_this_node_is_unknown():
    world = World(3)
    world.appoint(1, owners=(1, 2), in_sync=(1, 2))
    world.tell()
    world.settle()
    assert answers(send(world[3], plain(world[3], previous=0, last=10))) == [(0, UNKNOWN, 0)]


# ---------------------------------------------------------------- watermarks


def test_a_watermark_is_taken_as_far_as_the_log_is_on_disk():
    world = led(2)
    backup = world[2]
    before = backup.core.watermark.item(0)
    commands = send(backup, plain(backup, previous=end(backup), last=10**6, watermark=10**9))
    assert backup.core.watermark.item(0) <= end(world[1]), "not what is only on its way to the disk"
    write = next(command for command in commands if isinstance(command, do.Write))
    backup.core.stored(write)
    assert backup.core.watermark.item(0) == 10**6 > before


def test_a_watermark_is_not_taken_where_the_logs_are_not_known_to_match():
    world = led(3)
    [id_] = world[1].put(0)
    world.letters = [letter for letter in world.letters if letter.to == world[2].own]
    world.settle(decide=False)
    world.appoint(3, in_sync=(1, 2, 3), segments=[0])
    world.tell()
    backup = world[2]
    before = backup.core.watermark.item(0)
    assert end(backup) == id_
    assert not backup.core.matched[0]
    send(backup, plain(backup, previous=id_ + 1, last=id_ + 1, epoch=2, watermark=id_ + 1), sender=3)
    assert backup.core.watermark.item(0) == before, "its tail may be none of the new primary's"


def test_the_watermark_of_an_earlier_epochs_primary_is_not_taken():
    world = led(2)
    world[1].put(0)
    world.settle(decide=False)
    before = world[2].core.watermark.item(0)
    world.appoint(2)
    world.tell(2)
    send(world[2], plain(world[2], previous=end(world[2]), last=end(world[2]), watermark=end(world[2])))
    assert world[2].core.watermark.item(0) == before


def test_an_idle_row_carries_the_watermark_and_proves_that_the_logs_match():
    world = led(2)
    [id_] = world[1].put(0)
    world.settle()
    assert world[2].core.watermark.item(0) < id_
    world.tick()
    world.settle()
    assert world[2].core.watermark.item(0) == id_
    assert world[2].learned[0] == id_


def test_the_last_id_of_a_promise_is_a_watermark_where_the_logs_match_in_its_epoch():
    world = led(2)
    [id_] = world[1].put(0)
    world.settle()
    core, primary = world[2].core, world[1].own
    assert core.promised(primary, np.array([0]), epochs=np.array([2]), last_ids=np.array([id_])) == []
    [learned] = core.promised(primary, np.array([0]), epochs=np.array([1]), last_ids=np.array([id_]))
    assert isinstance(learned, do.Learned)
    assert core.watermark.item(0) == id_


# ---------------------------------------------------------------- cuts


def deposed(extra: int = 1) -> World:
    """Return a world in which node 1 has a tail that nobody else has, and node 2 was appointed after it."""
    world = led(3)
    world.settle()
    world.pass_time(100)
    for _ in range(extra):
        world[1].core.primary.ready[0] = True
        world[1].put(0)
        world[1].sync()
    world.letters.clear()
    world.appoint(2, segments=[0])
    return world


def test_a_returning_primary_cuts_the_tail_that_its_successor_does_not_have():
    world = deposed(3)
    tail = world[1].logs[0][-1]
    world.tell()
    world.settle()
    assert tail not in world[1].logs[0]
    assert world[1].logs[0] == world[2].logs[0] == world[3].logs[0]
    assert world[2].core.adopted[0]


def test_a_tail_that_the_successor_has_is_kept_and_committed():
    world = led(3)
    [id_] = world[1].put(0)
    while world.letters:
        world.deliver()
    world[2].sync()
    world[3].sync()
    world.letters.clear()
    world.appoint(2, segments=[0])
    world.tell()
    world.settle()
    assert [value[0] for value in world[1].logs[0]].count(id_) == 1
    assert (id_, f"e{id_}") in world.acknowledged[0]


def test_a_cut_that_was_made_for_another_end_does_nothing():
    world = led(2)
    backup = world[2]
    [id_] = world[1].put(0)
    world.settle()
    late = (0, CUT, 1, id_ - 1, 1, 0, 0, 0)
    assert answers(send(backup, late)) == [(0, MISMATCH, id_)]
    assert end(backup) == id_


def test_a_log_that_is_known_to_match_is_never_cut_in_that_epoch():
    world = led(2)
    backup = world[2]
    [id_] = world[1].put(0)
    world.settle()
    assert answers(send(backup, (0, CUT, 1, id_, 1, 0, 0, 0))) == [(0, MISMATCH, id_)]


def test_nothing_known_to_be_committed_is_cut():
    world = led(2)
    backup = world[2]
    [id_] = world[1].put(0)
    world.settle()
    world.pass_time(100)
    world.appoint(1)
    world.tell(2)
    commands = send(backup, (0, CUT, 2, id_, 1, 0, 0, 0))
    assert answers(commands) == [(0, REFUSED, id_)]
    assert any(isinstance(command, do.Diverged) for command in commands)
    assert end(backup) == id_


def test_what_an_operator_gave_up_is_dropped_with_its_state():
    world = led(3)
    world.pass_time(100)
    forced_end = end(world[3])
    world[3].crash()
    world.pass_time(1500)
    [id_] = world[1].put(0)
    world.settle()
    world.pass_time(100)
    world[1].crash()
    world[2].crash()
    world[3].start()
    world.acknowledged = [list(log) for log in world[3].logs]
    world.appoint(3, in_sync=(3,), lost=(GivenUpRange(forced_end, 10**6),))
    world.tell()
    world.settle(decide=False)
    for number in (1, 2):
        world[number].start()
    world.pass_time(500)
    assert id_ not in [value[0] for value in world[1].logs[0]]
    assert world[1].logs == world[2].logs == world[3].logs
    assert not world[1].diverged


def test_without_an_operators_word_a_replica_with_more_committed_events_is_left_alone():
    world = led(2)
    [id_] = world[1].put(0)
    world.settle()
    world.pass_time(100)
    world[2].crash()
    world[2].disk.logs[0], world[2].disk.histories[0], world[2].disk.ends[0] = [], [], 0
    world.appoint(2, segments=[0], in_sync=(2,))
    world[2].start()
    world.appoint(2, segments=[0], in_sync=(2,))
    world.acknowledged[0] = []
    world.tell()
    world.settle()
    assert (id_, f"e{id_}") in world[1].logs[0]
    assert world[2].diverged


def cutting() -> World:
    """Return a world in which node 1 was told to cut its tail, and has not done so yet."""
    world = deposed()
    world.tell()
    world[2].mark()
    while not world[1].pending:
        world.deliver()
    assert world[1].core.columns.busy[0]
    return world


def test_a_question_during_a_cut_is_answered_when_that_is_on_disk():
    world = cutting()
    primary = world[2].core
    at = end(world[2])
    world.letters.clear()
    assert send(world[1], (0, 0, primary.epochs.item(0), at, at, 0, 0, 0), sender=2, correlation=500) == []
    world[1].sync()
    [letter] = [letter for letter in world.letters if letter.message.sender == world[1].own]
    assert letter.message.correlation == 500
    world.settle()
    assert world[1].logs[0] == world[2].logs[0]


def test_a_watermark_that_comes_during_a_cut_is_not_taken_for_what_is_being_cut():
    world = cutting()
    core, tail = world[1].core, end(world[1])
    before = core.watermark.item(0)
    assert before < tail
    epochs = world[2].core.epochs[:1].astype(np.int64)
    assert core.promised(world[2].own, np.array([0]), epochs=epochs, last_ids=np.array([tail])) == []
    world[1].sync()
    assert core.watermark.item(0) == core.columns.heard.item(0) == before


def test_who_is_appointed_during_a_cut_leads_when_that_is_on_disk():
    world = cutting()
    world.appoint(1, segments=[0])
    world.tell(1)
    assert not world[1].marks
    world.tell()
    world.settle()
    assert 0 in world[1].led
    assert world[1].logs[0] == world[2].logs[0] == world[3].logs[0]


# ---------------------------------------------------------------- histories


def test_a_history_that_makes_no_sense_is_refused_before_anything_counts():
    backup = led(2)[2]
    at = end(backup)
    inside = (0, HISTORY, 1, at, at + 5, 0, 1, 0)
    for rows in (
        [inside],
        [inside, plain(backup, previous=at, last=at + 4)],
        [(0, HISTORY, 1, at, at + 5, 0, 2, 0), plain(backup, previous=at, last=at + 9)],
        [inside, inside, plain(backup, previous=at, last=at + 9)],
        [inside, plain(backup, previous=0, last=9, segment=1)],
    ):
        with pytest.raises(BadMessage):
            send(backup, *rows)
    assert end(backup) == at


def test_epochs_travel_with_the_log_even_where_nothing_else_is_left_of_them():
    world = led(2)
    world[2].crash()
    world.pass_time(1500)
    for _ in range(3):
        world.appoint(1)
        world.tell()
        world.settle()
    world[2].start()
    world.pass_time(100)
    assert world[2].core.history(0) == world[1].core.history(0)
    assert len(world[2].core.history(0)) == 4
    assert world[2].disk.histories == world[1].disk.histories
