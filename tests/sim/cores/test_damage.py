"""Flipped bits: the product's checksum sees every one of them, and without it they are believed."""

import random

import pytest

from tests.sim.cores.damage import decoded, flipped
from tests.sim.cores.disk import Disk
from tests.sim.cores.history import Value
from tests.sim.cores.mutants import MUTANTS
from tests.sim.hunt import applied

VALUE = Value(7 << 20, (7 << 20) + 1024, 3, (41, 42))


@pytest.mark.parametrize("seed", range(200))
def test_every_flipped_bit_is_seen(seed):
    assert decoded(2, VALUE, flipped(2, VALUE, chance=random.Random(seed))) is None


def test_without_the_checksum_some_other_event_is_read():
    mutant = next(mutant for mutant in MUTANTS if mutant.name == "checksum not checked")
    with applied(mutant):
        found = [decoded(2, VALUE, flipped(2, VALUE, chance=random.Random(seed))) for seed in range(40)]
    assert any(value is not None and len(value.tokens) == 2 and value != VALUE for value in found)


def test_a_damaged_value_is_read_again_once_it_was_written_in_its_place():
    disk = Disk("a")
    disk.append(0, [VALUE])
    disk.sync(disk.writes)
    disk.flip(0, VALUE, chance=random.Random(1))
    assert disk.read(0, VALUE) is None
    assert disk.mend(0, VALUE)
    assert disk.read(0, VALUE) == VALUE
    disk.crash(random.Random(0))
    assert disk.read(0, VALUE) is None, "the repair was not synced"
    assert disk.mend(0, VALUE)
    disk.sync(disk.writes)
    assert not disk.mend(0, VALUE), "it is damaged no more"


def test_a_value_that_is_appended_is_sound():
    disk = Disk("a")
    disk.append(0, [VALUE])
    disk.flip(0, VALUE, chance=random.Random(1))
    disk.cut(0, 0)
    disk.append(0, [VALUE])
    assert disk.read(0, VALUE) == VALUE
