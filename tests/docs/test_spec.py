"""The checks of the model: what did not come to its end is no success, whatever it has seen."""

import runpy
from pathlib import Path

import pytest

CHECKER = runpy.run_path(str(Path(__file__).parents[2] / "docs/spec/check.py"))
ALL_RULES, ONE_LESS = (next(check for check in CHECKER["CHECKS"] if check.name == name) for name in ("two_nodes", "no_Epoch"))
SEEN = "Progress: 11 states generated, 10 distinct states found\n"
DONE = SEEN + "Model checking completed. No error has been found.\nFinished in 03s\n"
BROKEN = SEEN + "Error: Invariant Survives is violated.\n"


@pytest.mark.parametrize(
    ("check", "output", "end", "outcome"),
    [
        (ALL_RULES, DONE, "ended with 0", "ok"),
        (ALL_RULES, SEEN, "stopped by time", "cut"),
        (ALL_RULES, SEEN, "ended with -9", "cut"),
        (ALL_RULES, SEEN, "ended with 0", "cut"),
        (ALL_RULES, BROKEN, "ended with 12", "BAD"),
        (ALL_RULES, "Exception in thread main\n", "ended with 1", "BAD"),
        (ONE_LESS, BROKEN, "ended with 12", "ok"),
        (ONE_LESS, DONE, "ended with 0", "BAD"),
        (ONE_LESS, SEEN, "stopped by time", "cut"),
    ],
)
def test_only_a_check_that_came_to_its_end_can_go_as_it_must(check, output, end, outcome):
    assert CHECKER["judge"](check, output, end)[0] == outcome


def test_a_check_that_is_unfinished_or_went_wrong_fails_the_command(capsys):
    assert CHECKER["conclude"]({"two_nodes": "ok"}) == 0
    assert CHECKER["conclude"]({"two_nodes": "ok", "three_nodes": "cut"}) == 1
    assert "unfinished, and so no proof: three_nodes" in capsys.readouterr().out
    assert CHECKER["conclude"]({"two_nodes": "BAD"}) == 1
