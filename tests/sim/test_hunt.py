"""Planted bugs: each still fits the code, is there only for as long as it is asked for, and has its asserts off when it is hunted."""

import dataclasses

import pytest

from eventlog.read.watermark import Promises
from tests.sim.hunt import MUTANTS, hunt
from tests.sim.planting import Mutant, applied

BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


def test_there_are_at_least_fifteen_and_their_names_differ():
    assert len(BY_NAME) == len(MUTANTS) >= 15


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_each_replaces_a_method_that_is_there(mutant: Mutant):
    with applied(mutant):
        pass


def test_a_method_that_is_gone_is_an_error():
    gone = dataclasses.replace(MUTANTS[0], target="eventlog.read.watermark:Promises.gone")
    with pytest.raises(LookupError, match=r"Promises\.gone"), applied(gone):
        pass


def test_a_replaced_method_is_put_back():
    original = Promises.begin
    with applied(BY_NAME["promise ignores what is in flight"]):
        assert Promises.begin is not original
    assert Promises.begin is original


def test_a_hunt_tells_after_how_many_seeds_the_history_told():
    mutant = BY_NAME["promise ignores what is in flight"]
    found = hunt(mutant.name, mutant.seed, 1)
    assert (found.seeds, "promised that segment" in found.why) == (1, True)
