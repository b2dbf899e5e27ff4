"""The `eventlog` command: the table of its commands, and what becomes of errors, interrupts and closed pipes."""

import io
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import click

from eventlog.errors import EventLogError
from eventlog_cli.conventions import ANSWERS, AskedToEnd, common_options
from eventlog_cli.lazy import CommandPlace, LazyGroup
from eventlog_cli.output import drop, print_aside

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_UNREAD = 141  # as shells count SIGPIPE

_RUN, _DATA, _CARE = "Start", "Keys and events", "Operation"


def _entry(module: str, summary: str, section: str, attribute: str = "command") -> CommandPlace:
    return CommandPlace(module=module, attribute=attribute, summary=summary, section=section)


_SHOWN = {
    "serve": _entry("serve", "Run a node.", _RUN),
    "demo": _entry("demo.command", "Watch the main job on real input, checked at the end.", _RUN),
    "cache": _entry("cache", "Create, list, describe, alter and drop caches.", _DATA),
    "put": _entry("entry", "Write one key.", _DATA, "put"),
    "get": _entry("entry", "Print the value of one key.", _DATA, "get"),
    "remove": _entry("entry", "Remove one key.", _DATA, "remove"),
    "keys": _entry("entry", "Print the keys of a cache.", _DATA, "keys"),
    "entries": _entry("entry", "Print the entries of a cache.", _DATA, "entries"),
    "size": _entry("entry", "Count the entries of a cache.", _DATA, "size"),
    "clear": _entry("entry", "Remove every entry of a cache.", _DATA, "clear"),
    "load": _entry("load", "Write the rows of a file.", _DATA),
    "consume": _entry("consume", "Print what happened after an id.", _DATA),
    "filter": _entry("listener", "List the named filters of the nodes.", _DATA, "filters"),
    "group": _entry("group", "Look after consumer groups.", _DATA),
    "listener": _entry("listener", "Look after registered listeners.", _DATA),
    "schema": _entry("schema", "Look after the schema registry.", _DATA),
    "mirror": _entry("mirror", "Write caches into topics of Kafka.", _DATA),
    "pipeline": _entry("pipeline", "Keep events in files, and compare them with the nodes'.", _DATA),
    "id": _entry("local", "Take ids apart, and make them from times.", _CARE, "ids"),
    "admin": _entry("admin", "Look after nodes, segments and retention.", _CARE),
    "top": _entry("top", "Watch nodes, rates and lag.", _CARE),
    "context": _entry("local", "Name clusters, and choose the one to ask.", _CARE, "context"),
    "completion": _entry("local", "Print a completion script for a shell.", _CARE, "completion"),
}
_SYNONYMS = {
    "caches": "cache",
    "delete": "remove",
    "drop": "remove",
    "groups": "group",
    "filters": "filter",
    "listeners": "listener",
    "schemas": "schema",
    "mirrors": "mirror",
    "pipelines": "pipeline",
    "key": "keys",
    "ids": "id",
    "contexts": "context",
}
COMMANDS = _SHOWN | {
    name: CommandPlace(module=_SHOWN[shown].module, attribute=_SHOWN[shown].attribute, hidden=True) for name, shown in _SYNONYMS.items()
}


class ClosedPipe(Exception):
    """Nobody reads stdout any more. Not an OSError, which click would turn into an exit code of its own."""

    def __init__(self, exit_with: int) -> None:
        super().__init__(exit_with)
        self.exit_with = exit_with


class Interrupted(Exception):
    """Ctrl-C, or a signal that asks for the same. Not a KeyboardInterrupt, to which click would add a line of its own."""

    def __init__(self, exit_with: int) -> None:
        super().__init__(exit_with)
        self.exit_with = exit_with


@contextmanager
def _ends_of_our_own(ctx: click.Context | None = None) -> Iterator[None]:
    """Keep from click what it has an end of its own for."""
    try:
        yield
    except BrokenPipeError as error:
        raise ClosedPipe(EXIT_UNREAD if ctx is not None and ctx.meta.get(ANSWERS) else 0) from error
    except AskedToEnd as error:
        raise Interrupted(128 + error.number) from error  # as shells count it
    except KeyboardInterrupt as error:
        raise Interrupted(EXIT_INTERRUPTED) from error


class Root(LazyGroup):
    """The outermost group: turns every end of a command into an exit code and at most one line on stderr."""

    def main(self, args: Sequence[str] | None = None, *rest: Any, **options: Any) -> Any:
        """Run the command line and exit, as `click.Command.main` does."""
        _open_standard_streams()
        _buffer_stdout()
        fixed = {"prog_name": "eventlog", "standalone_mode": False}
        code = exit_code(lambda: super(Root, self).main(args, *rest, **options | fixed))
        _give_up_stderr()
        sys.exit(code)

    def make_context(self, *args: Any, **options: Any) -> click.Context:
        """Read the command line; `--help` prints here."""
        with _ends_of_our_own():
            return super().make_context(*args, **options)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command named."""
        with _ends_of_our_own(ctx):
            return super().invoke(ctx)


def _open_standard_streams() -> None:
    """Open what the caller has closed (`>&-`), so that no socket gets its number: what is printed there would go over the wire."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # in the order of their numbers: the lowest free one is taken
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115 -- no path to load; open till the end


def _buffer_stdout() -> None:
    """Have stdout take all that is written to it, under `PYTHONUNBUFFERED` too.

    Without a buffer a process that is stopped while it writes to a full pipe, and goes on, loses what the pipe had not taken.
    """
    raw: object = getattr(sys.stdout, "buffer", None)
    if isinstance(raw, io.RawIOBase):
        encoding, errors, is_terminal = sys.stdout.encoding, sys.stdout.errors, sys.stdout.isatty()
        sys.stdout.detach()  # type: ignore[union-attr]  # it has a buffer, so it can let go of it
        sys.stdout = io.TextIOWrapper(io.BufferedWriter(raw), encoding=encoding, errors=errors, line_buffering=is_terminal)


def _give_up_stderr() -> None:
    """Let go of what stderr did not take, on a full disk: the interpreter would try it once more, and end with an exit code of its own."""
    try:
        sys.stderr.flush()
    except OSError:
        drop(sys.stderr)


def exit_code(action: Callable[[], object]) -> int:
    """Run `action` and return the exit code of the process; errors become one line on stderr.

    Where nobody reads stdout to its end that is 0, unless the command has come to an exit code of its own, or was to.
    """
    result: object = None
    try:
        result = action()
        sys.stdout.flush()
    except (BrokenPipeError, ClosedPipe) as error:
        drop(sys.stdout)
        result = error.exit_with if isinstance(error, ClosedPipe) else result
    except (KeyboardInterrupt, Interrupted, click.Abort) as error:
        return error.exit_with if isinstance(error, Interrupted) else EXIT_INTERRUPTED
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return EXIT_USAGE
    except UnicodeEncodeError as error:
        _print_error(f"error: USAGE: {ascii(error.object)[:80]} is not UTF-8")
        return EXIT_USAGE
    except (click.ClickException, EventLogError, OSError) as error:
        code, sentence, exit_with = _told(error)
        _print_error(f"error: {code}: {' '.join(sentence.split())}")
        return exit_with
    return result if isinstance(result, int) else 0


def _told(error: click.ClickException | EventLogError | OSError) -> tuple[str, str, int]:
    """Return code, sentence and exit code."""
    if isinstance(error, EventLogError):
        return error.code, str(error), error.exit_code
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "eventlog"
        return "USAGE", f"{error.format_message().rstrip('.')}; see: {path} --help", EXIT_USAGE
    if isinstance(error, click.ClickException):
        return "FAILED", error.format_message(), error.exit_code
    return "IO_ERROR", f"{error.filename or 'input or output'}: {error.strerror or error}", EXIT_FAILED


def _print_error(line: str) -> None:
    try:
        sys.stdout.flush()
    except OSError:  # the very error, perhaps
        drop(sys.stdout)
    print_aside(line)


def _print_version(ctx: click.Context, _param: click.Parameter, value: Any) -> None:
    if not value or ctx.resilient_parsing:
        return
    from importlib.metadata import version  # noqa: PLC0415 - 30 ms that only --version should pay

    click.echo(f"eventlog {version('eventlog')}")
    ctx.exit()


@click.group("eventlog", cls=Root, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Print the version and exit.")
@common_options
def main() -> None:
    """A clustered, keyed store in which every change is an event that can be replayed by id.

    \b
    New here?      eventlog demo
    Run a node:    eventlog serve
    """  # noqa: D301 -- the escape is meant: it keeps click from filling these lines
