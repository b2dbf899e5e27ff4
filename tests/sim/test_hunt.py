"""Planted bugs: each still fits the code, is there only for as long as it is asked for, and has its asserts off when it is hunted."""

import dataclasses

import pytest

from eventlog.read.watermark import Promises
from tests.sim.hunt import Job, hunt, mutants
from tests.sim.planting import Mutant, applied

MUTANTS = mutants()
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


def test_their_names_differ_within_the_runs_that_are_to_find_them():
    assert len({(mutant.world, mutant.name) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.world}: {mutant.name}")
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
    place = MUTANTS.index(BY_NAME["commit not fenced"])
    assert hunt(Job(world="group", seeds=range(3))).tried == 0
    found = hunt(Job(world="group", seeds=range(100), place=place))
    assert found.tried == found.seed + 1
    assert "a commit of " in found.why
