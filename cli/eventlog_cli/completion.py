"""`eventlog completion`: scripts that make a shell complete commands and options."""

import click
from click.shell_completion import get_completion_class

from eventlog_cli.conventions import common_options
from eventlog_cli.output import print_text


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "fish", "zsh"]))
@common_options
def command(shell: str) -> None:
    """Print the completion script of SHELL; one of the lines below goes into its start file."""
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the shells that the argument allows"
    root = click.get_current_context().find_root()
    script = kind(root.command, {}, "eventlog", "_EVENTLOG_COMPLETE")
    print_text(script.source_template % script.source_vars())
