"""Words that `conftest.py` and tests of faults write and the lane runner looks for: apart, since its lanes name half the tree."""

FAULTS_HIT = "faults hit "
"""How a line begins with which a test of faults prints, as JSON, how many operations in flight each of them hit."""
UNTRIED = "untried: "
"""How the reason of a skip begins that only depends on being root."""
