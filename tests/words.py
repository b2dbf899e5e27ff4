"""Words that `conftest.py` and tests of faults write and the lane runner looks for: apart, since its lanes name half the tree."""

import re

FAULTS_HIT = "faults hit "
"""How a line begins with which a test of faults prints, as JSON, how many operations in flight each of them hit."""
UNTRIED = "untried: "
"""How the reason of a skip begins that only depends on being root."""
NO_PROCESS = "not process"
"""What lanes choose that run what needs no socket, disk or process."""
PROCESS_FOLDER = "tests/process/"
"""All beneath it is marked `process`."""

_IS_PROCESS = re.compile(r"^pytestmark = \[?\s*pytest\.mark\.process\b", re.MULTILINE)


def is_process_module(text: str) -> bool:
    """Return whether the text of a module marks all its tests as `process`."""
    return _IS_PROCESS.search(text) is not None
