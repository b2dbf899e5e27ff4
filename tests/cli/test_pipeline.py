"""What `eventlog pipeline` says of itself."""

import click
from click.testing import CliRunner

from eventlog.integrations.archive.merging import TARGET_BYTES_DEFAULT
from eventlog.limits import MIB
from eventlog_cli.pipeline import command


def test_files_are_merged_up_to_the_size_that_the_help_says() -> None:
    context = click.Context(command.commands["compact"])
    [target] = [option for option in context.command.params if option.name == "target_bytes"]
    assert target.get_default(context) == "256MiB"
    assert target.type_cast_value(context, "256MiB") == TARGET_BYTES_DEFAULT == 256 * MIB
    assert "[default: 256MiB]" in CliRunner().invoke(command, ["compact", "--help"]).output
