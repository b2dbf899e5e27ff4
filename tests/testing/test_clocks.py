"""Time and chance that a test controls."""

import pytest

from eventlog.testing.clocks import ManualClock, SeededEntropy


def test_time_stands_still_until_it_is_moved():
    clock = ManualClock(wall_ms=10, monotonic_ms=20)
    clock.advance(5)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (15, 25)
    clock.stall_wall(5)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (15, 30)
    clock.set_wall(3)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (3, 30)


@pytest.mark.parametrize("move", [ManualClock.advance, ManualClock.stall_wall])
def test_time_does_not_pass_backwards(move):
    with pytest.raises(AssertionError):
        move(ManualClock(), -1)


def test_chance_repeats_for_the_same_seed_alone():
    first, same, other = SeededEntropy(1), SeededEntropy(1), SeededEntropy(2)
    tokens = [first.token(16) for _ in range(3)]
    assert tokens == [same.token(16) for _ in range(3)]
    assert len({*tokens, other.token(16)}) == 4
