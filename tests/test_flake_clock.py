"""FlakeClock: ids and promises under every kind of clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from eventlog.errors import ClockAhead, ClockSkew, InvalidArgument, MetadataUnavailable
from eventlog.ids import (
    EPOCH_MS,
    ID_MAX,
    ID_STEP,
    MEDIAN_SLACK_MS,
    TIME_MS_MAX,
    FlakeClock,
    decode_id,
    id_before,
    last_of_run,
    make_id,
    time_of,
)
from eventlog.limits import CLOCK_AHEAD_MS_MAX, LEASE_AHEAD_MS, LEASE_MS
from eventlog.testing.clocks import ManualClock

NOW = 1_700_000_000_000
NODE = 7


def leased(clock: ManualClock | None = None, *, ceiling: int = ID_MAX) -> FlakeClock:
    flake = FlakeClock(clock or ManualClock(wall_ms=NOW), node=NODE)
    flake.set_ceiling(ceiling)
    return flake


# ---------------------------------------------------------------- issuing


def test_the_first_id_has_the_time_of_now_and_the_own_node():
    assert decode_id(leased().next(1)) == (NOW, 0, NODE)


def test_runs_follow_each_other_without_a_gap_within_a_millisecond():
    flake = leased()
    base = flake.next(10)
    assert flake.next(5) == base + 10 * ID_STEP
    assert flake.last == last_of_run(base, 15)


def test_the_sequence_carries_into_the_time():
    flake = leased()
    flake.next(4096)
    assert decode_id(flake.next(1)) == (NOW + 1, 0, NODE)


def test_time_that_passes_shows_in_the_ids():
    clock = ManualClock(wall_ms=NOW)
    flake = leased(clock)
    flake.next(3)
    clock.advance(250)
    assert decode_id(flake.next(1)) == (NOW + 250, 0, NODE)


def test_the_node_bits_of_an_id_seen_do_not_leak_into_the_own_ids():
    flake = leased()
    flake.observe(make_id(NOW + 1_000, 5, 1023))
    assert decode_id(flake.next(1)) == (NOW + 1_000, 6, NODE)


@pytest.mark.parametrize("node", [0, -1, 1024])
def test_a_clock_needs_a_node_number(node):
    with pytest.raises(InvalidArgument):
        FlakeClock(ManualClock(), node=node)


# ---------------------------------------------------------------- physical time


def test_a_wall_clock_set_back_keeps_ids_rising_at_half_speed():
    clock = ManualClock(wall_ms=NOW)
    flake = leased(clock)
    before = flake.next(1)
    clock.set_wall(NOW - 3_600_000)
    assert flake.next(1) > before
    clock.advance(1_000)
    assert flake.physical_ms() == NOW + 500
    assert time_of(flake.next(1)) == NOW + 500


def test_a_wall_clock_that_stops_loses_no_half_millisecond_however_often_it_is_read():
    clock = ManualClock(wall_ms=NOW)
    flake = leased(clock)
    assert flake.physical_ms() == NOW
    for _ in range(1_000):
        clock.stall_wall(1)
        flake.physical_ms()
    assert flake.physical_ms() == NOW + 500


def test_physical_time_follows_a_wall_clock_set_forward():
    clock = ManualClock(wall_ms=NOW)
    flake = leased(clock)
    clock.set_wall(NOW + 3_600_000)
    assert flake.physical_ms() == NOW + 3_600_000


def test_a_wall_clock_far_above_the_median_is_believed_five_seconds_only():
    clock = ManualClock(wall_ms=NOW)
    flake = leased(clock)
    flake.hear_median(NOW)
    clock.set_wall(NOW + 3_600_000)
    assert flake.physical_ms() == NOW + 5_000
    clock.advance(700)
    assert flake.physical_ms() == NOW + 5_700


def test_the_lower_median_of_the_members_clocks_counts_the_own_one():
    clock = ManualClock(wall_ms=NOW)
    flake = leased(clock)
    flake.hear_others([-10_000, -20_000], members=3)  # this one is the fastest of three
    clock.set_wall(NOW + 3_600_000)
    assert flake.physical_ms() == NOW - 10_000 + 5_000

    clock = ManualClock(wall_ms=NOW)
    flake = leased(clock)
    flake.hear_others([3_600_000], members=2)  # of two the slower one
    clock.set_wall(NOW + 60_000)
    assert flake.physical_ms() == NOW + 5_000


def test_a_median_far_ahead_does_not_pull_physical_time_above_the_wall_clock():
    flake = leased()
    flake.hear_median(NOW + 3_600_000)
    assert flake.physical_ms() == NOW


@pytest.mark.parametrize(("off_ms", "apart_ms"), [(-3_600_000, -5_000), (-4_000, -4_000), (0, 0), (4_000, 4_000), (3_600_000, 5_000)])
def test_members_agree_on_the_time_whatever_their_wall_clocks_say(off_ms, apart_ms):
    clock = ManualClock(wall_ms=NOW + off_ms)
    flake = leased(clock)
    flake.hear_others([-off_ms, -off_ms], members=3)
    assert flake.agreed_ms() == NOW + apart_ms
    clock.advance(700)
    assert flake.agreed_ms() == NOW + apart_ms + 700


@pytest.mark.parametrize(
    ("ahead_ms", "members", "is_known"),
    [
        ([], 1, True),
        ([], 2, False),
        ([4_000], 2, True),
        ([3_600_000], 2, False),  # one of the two is wrong
        ([4_000], 3, True),
        ([-3_600_000], 3, False),  # and here, too, until the third is heard
        ([-3_600_000, 0], 3, True),
        ([-3_600_000, 3_600_000], 3, False),
        ([0, 0], 5, True),
        ([0], 5, False),
    ],
)
def test_members_agree_on_nothing_before_most_are_known_to_have_the_same_time(ahead_ms, members, is_known):
    flake = leased()
    assert flake.agreed_ms() is None
    flake.hear_others(ahead_ms, members=members)
    assert flake.agreed_ms() == (NOW if is_known else None)


def test_what_was_agreed_on_goes_on_where_others_are_heard_no_more():
    clock = ManualClock(wall_ms=NOW)
    flake = leased(clock)
    flake.hear_others([0, -3_600_000], members=3)
    clock.advance(1_000)
    flake.hear_others([-3_600_000], members=3)
    clock.advance(700)
    assert abs(flake.agreed_ms() - (NOW + 1_700)) <= MEDIAN_SLACK_MS


def test_the_agreed_time_does_not_stay_at_a_ceiling_far_ahead():
    flake = leased()
    flake.start_above(make_id(NOW + 3_600_000, 0, NODE))
    flake.hear_others([0, 0], members=3)
    assert flake.physical_ms() == NOW + 3_600_000
    assert flake.agreed_ms() == NOW + 5_000


def test_physical_time_starts_at_the_stored_ceiling_and_ids_above_it():
    clock = ManualClock(wall_ms=NOW - 3_600_000)
    flake = leased(clock)
    ceiling = make_id(NOW, 17, 3)
    flake.start_above(ceiling)
    assert flake.physical_ms() == NOW
    assert flake.next(1) > ceiling


def test_a_wall_clock_before_the_epoch_still_gives_rising_ids():
    clock = ManualClock(wall_ms=0)
    flake = leased(clock)
    first = flake.next(1)
    assert 0 < first < flake.next(1)
    assert flake.physical_ms() >= 0


def test_a_wall_clock_after_the_last_id_refuses_instead_of_making_odd_ids():
    clock = ManualClock(wall_ms=TIME_MS_MAX + 10)
    flake = leased(clock)
    with pytest.raises(ClockAhead):
        flake.next(1)
    assert flake.close_up() <= ID_MAX


# ---------------------------------------------------------------- bounds


def test_a_burst_runs_ahead_up_to_the_bound_and_then_waits_for_time():
    clock = ManualClock(wall_ms=NOW)
    flake = leased(clock)
    flake.next(4096 * (CLOCK_AHEAD_MS_MAX + 1))
    assert time_of(flake.last) == NOW + CLOCK_AHEAD_MS_MAX
    last = flake.last
    with pytest.raises(ClockAhead) as caught:
        flake.next(1)
    assert caught.value.ahead_ms == CLOCK_AHEAD_MS_MAX + 1
    assert flake.last == last
    clock.advance(1)
    assert flake.next(4096) == make_id(NOW + CLOCK_AHEAD_MS_MAX + 1, 0, NODE)


def test_a_run_fits_the_lease_only_if_its_last_id_does():
    flake = leased(ceiling=make_id(NOW, 10, NODE))
    flake.next(4)  # sequences 0 to 3
    last = flake.last
    with pytest.raises(MetadataUnavailable):
        flake.next(7)  # 4 to 10, and 10 is the ceiling itself
    assert flake.last == last
    assert decode_id(flake.next(6)) == (NOW, 4, NODE)


def test_without_a_lease_nothing_is_issued_or_promised():
    flake = FlakeClock(ManualClock(wall_ms=NOW), node=NODE)
    with pytest.raises(MetadataUnavailable):
        flake.next(1)
    assert flake.close_up() == 0


def test_the_ceiling_wanted_is_a_lease_above_the_clock_or_less_above_ids_that_run_ahead():
    clock = ManualClock(wall_ms=NOW)
    flake = leased(clock)
    assert flake.ceiling_wanted() == make_id(NOW + LEASE_MS, 0, 0)
    flake.next(4096 * 100)
    assert flake.ceiling_wanted() == make_id(NOW + LEASE_MS, 0, 0)
    flake.next(4096 * 4_000)
    assert time_of(flake.ceiling_wanted()) == NOW + 4_099 + LEASE_AHEAD_MS


def test_takeovers_in_quick_succession_do_not_drive_ids_ahead_without_end():
    clock = ManualClock(wall_ms=NOW)
    floor = 0
    for number in range(1, 101):  # one every two seconds, each above the lease of the one before
        flake = FlakeClock(clock, node=number)
        flake.set_ceiling(flake.ceiling_wanted())
        flake.raise_above(floor)
        flake.set_ceiling(flake.ceiling_wanted())
        flake.next(1)
        floor = flake.ceiling
        clock.advance(2_000)
    assert time_of(floor) <= clock.wall_ms() + LEASE_MS


def test_a_run_that_did_not_fit_is_made_room_for_by_the_next_lease():
    flake = leased(ceiling=make_id(NOW + 10, 0, 0))
    many = 4096 * 20_000
    with pytest.raises(MetadataUnavailable):
        flake.next(many)
    flake.set_ceiling(flake.ceiling_wanted())
    flake.next(many)


# ---------------------------------------------------------------- ids from elsewhere


def test_an_id_seen_is_below_everything_issued_later():
    flake = leased()
    seen = make_id(NOW + 30_000, 1, 2)
    flake.observe(seen)
    assert flake.next(1) > seen


def test_an_id_too_far_ahead_is_refused_and_moves_nothing():
    flake = leased()
    flake.observe(make_id(NOW + CLOCK_AHEAD_MS_MAX, 4095, 1))
    last = flake.last
    with pytest.raises(ClockSkew) as caught:
        flake.observe(make_id(NOW + CLOCK_AHEAD_MS_MAX + 1, 0, 1))
    assert caught.value.ahead_ms == CLOCK_AHEAD_MS_MAX + 1
    assert flake.last == last


def test_an_old_id_seen_changes_nothing():
    flake = leased()
    last = last_of_run(flake.next(3), 3)
    flake.observe(5)
    assert flake.last == last


@pytest.mark.parametrize("event_id", [-1, ID_MAX + 1])
def test_what_is_no_id_is_not_adopted(event_id):
    with pytest.raises(InvalidArgument):
        leased().observe(event_id)


@pytest.mark.parametrize("ahead_ms", [0, CLOCK_AHEAD_MS_MAX, 10 * CLOCK_AHEAD_MS_MAX])
def test_a_floor_is_passed_at_once_however_far_ahead_it_is(ahead_ms):
    flake = leased()
    floor = make_id(NOW + ahead_ms, 4095, 1023)
    flake.raise_above(floor - ID_STEP)
    assert flake.next(1) > floor - ID_STEP
    assert flake.physical_ms() <= max(NOW, NOW + ahead_ms - CLOCK_AHEAD_MS_MAX)


# ---------------------------------------------------------------- promises


def test_a_promise_of_an_idle_clock_covers_the_time_before_this_millisecond():
    clock = ManualClock(wall_ms=NOW)
    flake = leased(clock)
    assert flake.close_up() == id_before(NOW) == flake.last  # a clean stop gives back what lies above
    assert decode_id(flake.next(1)) == (NOW, 0, NODE)
    clock.advance(5)
    assert flake.close_up() == id_before(NOW + 5)


def test_a_promise_covers_what_was_issued_and_seen():
    flake = leased()
    last = last_of_run(flake.next(3), 3)
    assert flake.close_up() == last
    flake.observe(last + 9)
    assert flake.close_up() == last + 9


def test_closing_up_to_an_id_promises_it_at_once():
    flake = leased()
    wanted = make_id(NOW + 2_000, 3, 9)
    assert flake.close_up(wanted) == wanted
    assert flake.next(1) > wanted


def test_closing_up_above_the_ceiling_answers_what_it_allows_and_wants_more():
    ceiling = make_id(NOW + 1_000, 0, 0)
    flake = leased(ceiling=ceiling)
    wanted = make_id(NOW + 2_000, 3, 9)
    assert flake.close_up(wanted) == ceiling - 1
    assert flake.ceiling_wanted() > wanted
    flake.set_ceiling(flake.ceiling_wanted())
    assert flake.close_up(wanted) == wanted


def test_closing_up_too_far_ahead_is_left_out_unless_a_lease_vouches_for_it():
    far = make_id(NOW + CLOCK_AHEAD_MS_MAX + 1, 0, 1)
    flake = leased()
    assert flake.close_up(far) == flake.close_up(far, vouched=lambda: far) < far
    assert flake.close_up(far, vouched=lambda: far + 1) == far


@given(st.integers(0, 4096 * 70_000), st.integers(0, 70_000))
def test_no_run_ever_reaches_the_ceiling_or_the_bound(count, room_ms):
    ceiling = make_id(NOW + room_ms, 0, 0)
    flake = leased(ceiling=ceiling)
    try:
        base = flake.next(count + 1)
    except (ClockAhead, MetadataUnavailable):
        assert flake.last == 0
    else:
        assert last_of_run(base, count + 1) < ceiling
        assert time_of(flake.last) <= NOW + CLOCK_AHEAD_MS_MAX


class ClockStories(RuleBasedStateMachine):
    """Any order of events, over several processes of one node: ids rise, and no promise is broken."""

    @initialize()
    def begin(self):
        self.clock = ManualClock(wall_ms=NOW)
        self.flake = FlakeClock(self.clock, node=NODE)
        self.stored = 0
        self.highest = 0  # issued or promised, over all processes
        self.physical = 0

    @rule(ms=st.integers(0, 10_000))
    def pass_time(self, ms):
        self.clock.advance(ms)

    @rule(ms=st.integers(0, 10_000))
    def stall(self, ms):
        self.clock.stall_wall(ms)

    @rule(ms=st.integers(-4_000_000, 200_000))
    def jump(self, ms):
        self.clock.set_wall(max(self.clock.wall_ms() + ms, EPOCH_MS))

    @rule(n=st.integers(1, 4096 * 3_000))
    def issue(self, n):
        try:
            base = self.flake.next(n)
        except (ClockAhead, MetadataUnavailable):
            return
        assert base > self.highest
        assert base & 1023 == NODE
        self.highest = last_of_run(base, n)
        assert self.highest < self.stored

    @rule(ahead_ms=st.integers(-10_000, 70_000))
    def observe(self, ahead_ms):
        seen = make_id(self.clock.wall_ms() + max(ahead_ms, 0), 0, 3)
        try:
            self.flake.observe(seen)
        except ClockSkew:
            return
        assert self.flake.last >= seen

    @rule(ahead_ms=st.none() | st.integers(0, 50_000))
    def promise(self, ahead_ms):
        upto = None if ahead_ms is None else make_id(self.clock.wall_ms() + ahead_ms, 0, 1023)
        try:
            promised = self.flake.close_up(upto)
        except ClockSkew:
            return
        assert promised < max(self.stored, 1)
        self.highest = max(self.highest, promised)

    @rule()
    def renew(self):
        self.stored = max(self.stored, self.flake.ceiling_wanted())
        self.flake.set_ceiling(self.stored)

    @rule(floor_ms=st.integers(0, 100_000))
    def take_over(self, floor_ms):
        self.flake.raise_above(make_id(self.clock.wall_ms() + floor_ms, 0, 3))

    @rule()
    def die_and_start(self):
        self.flake = FlakeClock(self.clock, node=NODE)
        self.flake.start_above(self.stored)
        self.physical = 0

    @precondition(lambda self: self.flake.ceiling)
    @rule()
    def stop_cleanly_and_start(self):
        self.flake.set_ceiling(min(self.flake.ceiling, self.flake.last + 1))
        self.stored = min(self.stored, self.flake.last + 1)
        self.die_and_start()

    @invariant()
    def physical_time_never_goes_back(self):
        if hasattr(self, "flake"):
            now = self.flake.physical_ms()
            assert now >= self.physical
            self.physical = now


TestClockStories = ClockStories.TestCase
