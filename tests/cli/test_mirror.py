"""What of a mirror cannot be altered is refused before anybody is asked, with the way out."""

import click
import pytest
from click.testing import CliRunner

from eventlog_cli.main import main
from eventlog_cli.mirror import ALTERABLE, FIXED, add, pause


@pytest.mark.parametrize("option", FIXED)
def test_what_stays_is_refused_with_the_way_out(option: str) -> None:
    found = CliRunner().invoke(main, ["mirror", "alter", "orders", option, "x"])
    assert found.exit_code == 2
    assert f"{option} of a mirror stays as it was added, since {FIXED[option]}" in " ".join(found.output.split())


def test_every_option_of_add_is_altered_or_says_why_not() -> None:
    def options(command: click.Command) -> set[str]:
        return {option.opts[0] for option in command.params if isinstance(option, click.Option)}

    of_adding_alone = {"--name", "--dry-run", "--tombstones"}
    assert options(add) - options(pause) - of_adding_alone == set(FIXED) | set(ALTERABLE)


def test_nothing_to_alter_is_said_to_be() -> None:
    found = CliRunner().invoke(main, ["mirror", "alter", "orders"])
    assert found.exit_code == 2
    assert "say what to alter: --interval, --hold, --on-too-large" in found.output
