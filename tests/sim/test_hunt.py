"""Planted bugs: each still fits the code, is there only for as long as it is asked for, and has its asserts off when it is hunted."""

import dataclasses
import random

import pytest

from eventlog.read.watermark import Promises
from tests.sim.cluster.swarm import choose
from tests.sim.hunt import Job, hunt, is_misfit, mutants, seeds_of
from tests.sim.planting import Mutant, applied

MUTANTS = mutants()
BY_NAME = {mutant.name: mutant for mutant in MUTANTS}


def test_their_names_differ_within_the_runs_that_are_to_find_them():
    assert len({(mutant.world, mutant.name) for mutant in MUTANTS}) == len(MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.world}: {mutant.name}")
def test_each_replaces_a_method_that_is_there(mutant: Mutant):
    with applied(mutant):
        pass


def test_a_bug_is_known_to_be_found_where_it_is_hunted():
    assert [mutant.name for mutant in MUTANTS if mutant.among is not None and not mutant.among(mutant.seed)] == []


def test_seeds_whose_runs_lack_what_a_bug_needs_are_passed_over():
    hunted = BY_NAME["list made in one round"]
    seeds = seeds_of(hunted, 100_000, 20)
    assert {choose(random.Random(seed)).about for seed in seeds} == {"lists"}
    assert seeds_of(BY_NAME["no floor"], 7, 3) == [7, 8, 9]


def test_a_method_that_is_gone_is_an_error():
    gone = dataclasses.replace(MUTANTS[0], target="eventlog.read.watermark:Promises.gone")
    with pytest.raises(LookupError, match=r"Promises\.gone"), applied(gone):
        pass


def test_what_is_planted_and_breaks_by_itself_is_found_by_no_history():
    assert is_misfit("""something broke: AttributeError("'bytes' object has no attribute 'write_answer'")""")
    assert not is_misfit("event 84 was acknowledged as 889876968927932417 and is not there")
    assert not is_misfit("it came to no end: NotPrimary(segment=1)")


def test_a_replaced_method_is_put_back():
    original = Promises.begin
    with applied(BY_NAME["promise ignores what is in flight"]):
        assert Promises.begin is not original
    assert Promises.begin is original


def test_a_hunt_tells_after_how_many_seeds_the_history_told():
    place = MUTANTS.index(BY_NAME["term of a shard not compared"])
    assert hunt(Job(world="mirrors", seeds=range(3))).tried == 0
    found = hunt(Job(world="mirrors", seeds=range(100), place=place))
    assert found.tried == found.seed + 1
    assert found.why
