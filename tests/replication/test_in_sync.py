"""Stories of in-sync sets: who is waited for, who is proposed out, who may come in."""

from eventlog.replication import Replica, Term
from eventlog.replication import commands as do
from tests.replication.worlds import World, led


def members(world: World, segment: int = 0) -> set[int]:
    return {replica.node for replica in world.metadata.records[segment].in_sync}


def silent(nodes: int = 3, *, needed: int = 1) -> World:
    """Return a world in which nothing reaches node 3 any more, and an append waits for it."""
    world = led(nodes, needed=needed)
    world[3].up = False
    world[1].put(0)
    world.settle(decide=False)
    return world


def test_who_does_not_acknowledge_in_time_is_proposed_out_before_the_append_commits():
    world = silent()
    world.pass_time(950)
    assert not world[1].proposals
    assert world[1].core.waits_for(0) == (world[3].own,)
    world.tick()
    [proposal] = world[1].proposals
    assert proposal.gone == (world[3].own,)
    assert world[1].core.watermark.item(0) < world[1].core.ends.item(0), "proposed is not committed"
    world.settle()
    assert members(world) == {1, 2}
    assert world[1].core.watermark.item(0) == world[1].core.ends.item(0)
    assert members(world, 1) == {1, 2, 3}, "nothing waits there"


def test_who_lost_its_connection_is_proposed_out_sooner():
    world = led(3)
    world[3].crash()
    world[1].put(0)
    world.settle(decide=False)
    world.tick(100)
    [proposal] = world[1].proposals
    assert (proposal.segment, proposal.gone) == (0, (world[3].own,))


def test_who_stays_away_is_proposed_out_of_every_set():
    world = led(3)
    world[3].crash()
    world.pass_time(1100)
    assert members(world) == members(world, 1) == {1, 2}


def test_the_set_never_gets_smaller_than_it_must_be_and_what_needs_that_stays_unanswered():
    world = led(3, needed=2)
    world[3].crash()
    world[2].crash()
    [id_] = world[1].put(0)
    world.pass_time(3000)
    assert members(world) == {1, 2} or members(world) == {1, 3}
    assert world[1].core.watermark.item(0) < id_
    survivor = next(number for number in (2, 3) if number in members(world))
    world[survivor].start()
    world.pass_time(500)
    assert world[1].core.watermark.item(0) == id_


def test_a_segment_is_short_as_soon_as_a_member_that_it_needs_is_not_connected():
    world = led(3, needed=2)
    assert not world[1].core.short(now_ms=world.now_ms).any()
    world[3].crash()
    assert not world[1].core.short(now_ms=world.now_ms).any(), "two of three are enough"
    world[2].crash()
    assert world[1].core.short(now_ms=world.now_ms).all()
    assert world[1].core.missing(0, now_ms=world.now_ms) == (world[2].own, world[3].own)
    world[2].start()
    assert not world[1].core.short(now_ms=world.now_ms).any()


def test_a_segment_is_short_when_a_connected_member_that_it_needs_lets_an_append_wait_for_too_long():
    world = led(2, needed=2)
    world[2].up = False  # connected, and silent
    world[1].put(0)
    world.pass_time(950)
    assert not world[1].core.short(now_ms=world.now_ms).any()
    assert not world[1].core.overdue(now_ms=world.now_ms).any()
    world.pass_time(100)
    assert world[1].core.short(now_ms=world.now_ms).tolist() == [True, False]
    assert world[1].core.overdue(now_ms=world.now_ms).tolist() == [True, False]
    assert world[1].core.missing(0, now_ms=world.now_ms) == (world[2].own,)


def test_who_does_not_lead_is_short_of_nobody():
    world = led(3, needed=3)
    world[1].crash()
    assert not world[2].core.short(now_ms=world.now_ms).any()


def test_the_watermark_waits_for_the_present_set_and_the_proposed_one():
    world = led(3)
    world[3].crash()
    world.pass_time(1100)
    world[3].start()
    while not world[1].proposals:
        world.settle(decide=False)
        world.tick()
    assert world[1].proposals[0].joined == world[3].own
    assert world[1].core.in_sync(0) == {world[1].own, world[2].own, world[3].own}
    segment = world[1].proposals[0].segment
    [id_] = world[1].put(segment)
    world.letters = [letter for letter in world.letters if letter.to != world[3].own]
    world.settle(decide=False)
    assert world[1].core.watermark.item(segment) < id_, "it may have been committed that node 3 can be elected"


def test_a_proposal_of_unknown_outcome_counts_until_a_newer_record_is_seen():
    world = silent()
    world.pass_time(1000, decide=False)
    [proposal] = world[1].proposals
    world.pass_time(5000, decide=False)
    assert len(world[1].proposals) == 1, "one in flight"
    assert world[3].own in world[1].core.in_sync(0)
    record = world.metadata.commit(proposal)
    world[1].learn([record])
    assert world[1].core.in_sync(0) == {world[1].own, world[2].own}


def test_a_record_of_the_same_revision_decides_nothing():
    world = silent()
    world.pass_time(1000, decide=False)
    world[1].learn(world.metadata.records.values())
    assert world[3].own in world[1].core.in_sync(0)


def test_a_conflict_voids_the_proposal_and_another_can_be_made():
    world = silent()
    world.pass_time(1000, decide=False)
    [proposal] = world[1].proposals
    world.metadata.put(world.metadata.records[0])  # somebody else changed something
    world.decide()
    assert world.metadata.records[0].in_sync != proposal.in_sync
    assert world[1].core.in_sync(0) == set(world.metadata.records[0].in_sync)
    world.tick()
    [second] = world[1].proposals
    assert second.revision > proposal.revision


def test_a_withdrawn_proposal_is_waited_for_no_more():
    world = led(3)
    world[3].crash()
    world.pass_time(1100)
    world[3].start()
    while not world[1].proposals:
        world.settle(decide=False)
        world.tick()
    proposal = world[1].proposals[0]
    core = world[1].core
    core.withdrawn(proposal.segment, revision=proposal.revision - 1, now_ms=world.now_ms)
    assert world[3].own in core.in_sync(proposal.segment), "that was another one"
    core.withdrawn(proposal.segment, revision=proposal.revision, now_ms=world.now_ms)
    assert world[3].own not in core.in_sync(proposal.segment)


def test_nobody_joins_who_lacks_the_start_of_the_epoch():
    """A replica that holds all that is committed may still lack the tail that its primary is about to adopt."""
    world = led(3)
    world[3].crash()
    world.pass_time(1100)
    world[3].start()
    world[1].crash()
    world.settle(decide=False)
    world.appoint(2, segments=[0])
    world.tell(2)
    world[2].mark()
    world.letters = [letter for letter in world.letters if letter.to != world[3].own]
    world[2].sync()
    world.settle(decide=False)
    core = world[2].core
    slot = core.roster.find(world[3].own)
    assert slot is not None
    core.roster.acknowledged[slot, 0] = core.watermark.item(0)
    world[2].proposals.clear()
    world[2].carry_out(core.look(now_ms=world.now_ms))
    assert not any(proposal.joined for proposal in world[2].proposals)


def test_who_comes_back_catches_up_and_joins_again():
    world = led(3)
    world[3].crash()
    world.pass_time(1100)
    for _ in range(20):
        world[1].put(0, 1)
        world.settle()
    world[3].start()
    world.pass_time(200)
    assert members(world) == members(world, 1) == {1, 2, 3}
    assert world[3].logs == world[1].logs


def test_who_is_no_owner_any_more_is_not_taken_in_again():
    world = led(3)
    world[3].crash()
    world.pass_time(1100)
    for segment in range(2):
        record = world.metadata.records[segment]
        world.metadata.put(Term(**{name: getattr(record, name) for name in Term.__slots__} | {"owners": (1, 2)}))
    world.tell()
    world[3].start()
    world.pass_time(500)
    assert members(world) == {1, 2}
    assert world[3].logs == [[], []], "and its data is deleted"


def test_a_member_that_lost_its_disk_is_another_replica_and_takes_the_old_ones_place_when_it_has_caught_up():
    world = led(2, needed=2)
    world[1].put(0)
    world.settle()
    world[2].crash()
    world[2].lose_disk("b")
    world[2].start()
    assert world[1].core.in_sync(0) == {Replica(1, "a"), Replica(2, "a")}
    world.settle(decide=False)
    [proposal, _] = world[1].proposals
    assert (proposal.gone, proposal.joined) == ((Replica(2, "a"),), Replica(2, "b"))
    assert world[2].logs == world[1].logs
    world.settle()
    assert world.metadata.records[0].in_sync == (Replica(1, "a"), Replica(2, "b"))


def test_a_replica_that_lost_its_disk_never_leads_whatever_the_record_says_of_its_node():
    world = led(2)
    world[1].put(0)
    world.settle()
    world[1].crash()
    world[1].lose_disk("b")
    world[1].session = "1/2"
    world.appoint(1)
    world[1].start()
    world.tell()
    assert not world[1].core.leads.any()
    assert not world[1].marks


def test_two_members_gone_at_once_leave_in_one_proposal_as_far_as_may_be():
    world = led(5, needed=3)
    world[4].crash()
    world[5].crash()
    world[1].put(0)
    world.settle(decide=False)
    world.tick(100)
    [proposal] = world[1].proposals
    assert isinstance(proposal, do.Propose)
    assert {replica.node for replica in proposal.gone} == {4, 5}
