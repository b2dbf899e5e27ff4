"""Groups whose commands are imported when one is called, so that `eventlog --help` costs no import of the client.

A word that no group knows is answered with the commands that may have been meant.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from eventlog_cli.examples import show_examples
from eventlog_cli.importing import Importing

ELSEWHERE = {
    "topic": "cache",
    "topics": "cache list",
    "ls": "cache list",
    "set": "put",
    "publish": "put",
    "produce": "put",
    "del": "remove",
    "rm": "remove",
    "subscribe": "consume",
    "watch": "consume",
    "tail": "consume",
    "scan": "entries",
    "import": "load",
    "offsets": "group describe",
    "start": "serve",
    "run": "serve",
    "server": "serve",
}
"""What other systems call a thing, and the command here."""
_MEANT_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Where a command lives and what `--help` of its group says about it. A hidden one is a synonym of a shown one."""

    module: str
    attribute: str
    summary: str = ""
    section: str = "Commands"
    hidden: bool = False


class SuggestingGroup(click.Group):
    """A group that answers a word it does not know with what may have been meant, here or in the groups below."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` begin with.

        Raises:
            click.UsageError: there is none of that name; says which are like it.
        """
        name = args[0]
        if name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        meant = " or ".join(self.meant(ctx, name)[:_MEANT_MAX])
        raise click.UsageError(f"No such command {name!r}." + (f" Did you mean: {meant}?" if meant else ""), ctx)

    def meant(self, ctx: click.Context, word: str) -> list[str]:
        """Return command lines that are like a word: of this group and those below it, else of all."""
        from difflib import get_close_matches  # noqa: PLC0415 -- for words that no group knows

        paths: dict[str, list[str]] = {} if ctx.parent is not None else {name: [path] for name, path in ELSEWHERE.items()}
        for path in sorted(self.paths(ctx), key=lambda path: path.count(" ")):
            name = path.rpartition(" ")[2]
            if ctx.parent is not None or name not in ELSEWHERE:
                paths.setdefault(name, []).append(path)
        found = [f"{ctx.command_path} {path}" for name in get_close_matches(word, paths, n=1) for path in paths[name]]
        root = ctx.find_root()
        if not found and ctx is not root and isinstance(root.command, SuggestingGroup):
            return root.command.meant(root, word)
        return found

    def paths(self, ctx: click.Context) -> Iterator[str]:
        """Yield what may be typed behind this group's name, the groups below included."""
        for name in self.list_commands(ctx):
            yield name
            found = self.get_command(ctx, name)
            if isinstance(found, SuggestingGroup):
                yield from (f"{name} {path}" for path in found.paths(ctx))


class LazyGroup(SuggestingGroup):
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
        with Importing():
            command = getattr(import_module(f"eventlog_cli.{entry.module}"), entry.attribute)
        assert isinstance(command, click.Command), f"{entry.module}.{entry.attribute} is no command"
        is_same = [name for name, other in self.table.items() if (other.module, other.attribute) == (entry.module, entry.attribute)]
        show_examples(command, is_same[0])  # a synonym shows those of the name that it stands for
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


class SynonymGroup(SuggestingGroup):
    """A group in which some commands answer to hidden further names; `synonyms` maps each further name to the shown one."""

    def __init__(self, *args: Any, synonyms: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.synonyms = synonyms or {}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name or synonym."""
        return super().get_command(ctx, self.synonyms.get(cmd_name, cmd_name))
