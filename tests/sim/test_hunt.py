"""Planted bugs: each still fits the code, is there only for as long as it is asked for, and has its asserts off when it is hunted."""

import dataclasses
import random
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

from eventlog.read.watermark import Promises
from tests.sim.cluster.swarm import choose
from tests.sim.hunt import is_misfit, mutants, seeds_of
from tests.sim.planting import Mutant, applied

TOP = Path(__file__).resolve().parents[2]
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


@pytest.mark.process
@pytest.mark.source
@pytest.mark.timeout(600)
def test_a_hunt_tells_after_how_many_seeds_the_history_told():
    name = "what Kafka left open of the last transaction not looked for"
    command = [sys.executable, "-m", "tests.sim.hunt", name, "--seeds-max", "3", "--processes", "1"]
    done = subprocess.run(command, cwd=TOP, capture_output=True, text=True, check=False)
    *_, told, summary = done.stdout.splitlines()
    _, world, *counts, _, _ = told.split(" | ")
    assert (done.returncode, world, len(counts)) == (0, "mirroring", 3), done.stdout + done.stderr
    assert all(1 <= int(count) <= 3 for count in counts)
    assert "is not in Kafka" in told or "are not in Kafka" in told
    assert summary == f"1 planted bugs, 0 hunts in vain, median {statistics.median(map(int, counts)):.0f} seeds"
