"""Groups whose commands are imported when one is called, so that `eventlog --help` costs no import of the client."""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from eventlog_cli.interrupts import EndingAtOnce


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Where a command lives and what `--help` of its group says about it. A hidden one is a synonym of a shown one."""

    module: str
    attribute: str
    summary: str = ""
    section: str = "Commands"
    hidden: bool = False


class LazyGroup(click.Group):
    """A group that knows its commands by a table; `table` maps names to entries in the order shown."""

    def __init__(self, *args: Any, table: Mapping[str, Entry], **options: Any) -> None:
        super().__init__(*args, **options)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names shown, in the order of the table."""
        return [name for name, entry in self.table.items() if not entry.hidden]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Return the command of that name or synonym, imported now."""
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        with EndingAtOnce():
            command = getattr(import_module(f"eventlog_cli.{entry.module}"), entry.attribute)
        assert isinstance(command, click.Command), f"{entry.module}.{entry.attribute} is no command"
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write names and summaries by section, from the table alone."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.table.items():
            if not entry.hidden:
                sections.setdefault(entry.section, []).append((name, entry.summary))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows, col_max=14)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return commands that begin with `incomplete`, from the table, then options."""
        found = [
            CompletionItem(name, help=entry.summary)
            for name, entry in self.table.items()
            if not entry.hidden and name.startswith(incomplete)
        ]
        return found + [item for item in click.Command.shell_complete(self, ctx, incomplete) if item.value not in self.table]


class SynonymGroup(click.Group):
    """A group in which some commands answer to hidden further names; `synonyms` maps each further name to the shown one."""

    def __init__(self, *args: Any, synonyms: Mapping[str, str], **options: Any) -> None:
        super().__init__(*args, **options)
        self.synonyms = synonyms

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name or synonym."""
        return super().get_command(ctx, self.synonyms.get(cmd_name, cmd_name))
