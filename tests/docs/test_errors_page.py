"""The page of errors has every class of the tree, as it is."""

import pytest

from eventlog.errors.tree import EventLogError, Misuse, PeerViolation, Refused, Unavailable, walk
from tests.docs.pages import TOP

pytestmark = pytest.mark.source

HEAD = "| code | exception | try again | exit code | HTTP | what it says |\n|---|---|---|---|---|---|"


def row_of(kind: type[EventLogError]) -> str:
    again = "yes" if kind.retry else ""
    says = kind.sentence.replace("{why}", "…").replace("!r}", "}")
    return f"| `{kind.code}` | `{kind.__name__}` | {again} | {kind.exit_code} | {kind.http_status} | {says} |"


@pytest.mark.parametrize("branch", [Misuse, PeerViolation, Unavailable, Refused])
def test_every_error_is_listed_as_it_is(branch: type[EventLogError]):
    page = (TOP / "docs" / "errors.md").read_text()
    table = "\n".join([HEAD, *map(row_of, walk(branch))])
    assert f"\n## {branch.__name__}\n" in page
    section = page.partition(f"\n## {branch.__name__}\n")[2].partition("\n## ")[0]
    listed = "\n".join(line for line in section.splitlines() if line.startswith("|"))
    assert listed == table, f"docs/errors.md is behind; its table of {branch.__name__} has to be:\n{table}"


def test_there_are_these_branches_and_no_other():
    assert set(EventLogError.__subclasses__()) == {Misuse, PeerViolation, Unavailable, Refused}
