"""What every command shares: options, wherever they stand on the line, how it reaches the cluster with them, and how it is asked to end.

A context is a name for a cluster. The file of contexts says which nodes are asked where no option does.
"""

import json
import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ContextDecorator, contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

import click

from eventlog_cli.importing import Importing
from eventlog_cli.parameters import SPAN

if TYPE_CHECKING:
    from pathlib import Path

    from eventlog.blocking import Client
    from eventlog.client.small import SmallClient

SERVER_DEFAULT = "127.0.0.1:7400"
SERVER_VARIABLE = "EVENTLOG_SERVER"
TIMEOUT_MS_DEFAULT = 10_000
CONNECT_MS_MAX = 5_000
_KEY = "eventlog_cli.settings"
ANSWERS = "eventlog_cli.answers"

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What the options of every command say."""

    servers: tuple[str, ...] = ()
    is_json: bool = False
    timeout_ms: int = TIMEOUT_MS_DEFAULT

    @property
    def addresses(self) -> tuple[str, ...]:
        """Return where to connect: `--server`, else the environment, else the context in use, else the default."""
        said = self.servers or (os.environ.get(SERVER_VARIABLE, ""),)
        if found := tuple(address for part in said for address in part.replace(",", " ").split()):
            return found
        kept = read_contexts()
        return kept.servers.get(kept.used) or (SERVER_DEFAULT,)


def settings() -> Settings:
    """Return the settings of the command that runs."""
    found: Settings = click.get_current_context().meta.get(_KEY, Settings())
    return found


def answers_by_exit_code() -> None:
    """Note that the exit code of the command that runs is an answer: where nobody reads the end of its output it must not say yes."""
    click.get_current_context().meta[ANSWERS] = True


def _keep(field: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        # what stands nearer to the command wins; an option left out must not undo one given before the group's name
        if ctx.get_parameter_source(param.name or "") is not click.core.ParameterSource.DEFAULT:
            ctx.meta[_KEY] = replace(ctx.meta.get(_KEY, Settings()), **{field: value})

    return keep


def _keep_servers(ctx: click.Context, param: click.Parameter, value: tuple[str, ...]) -> None:
    for part in value:
        if not all(one.strip() for one in part.split(",")):  # a variable that is not set must not mean the node of this host
            raise click.BadParameter(f"{part!r} names no node: write HOST:PORT, several with commas between")
    _keep("servers")(ctx, param, value)


def common_options(function: Function) -> Function:
    """Give a command or group `--server`, `--json` and `--timeout`."""
    options = (
        click.option(
            "--server",
            "server_",
            metavar="HOST:PORT",
            multiple=True,
            expose_value=False,
            callback=_keep_servers,
            help=f"Node to ask; more with commas, or given again.  [default: ${SERVER_VARIABLE}, the context in use, {SERVER_DEFAULT}]",
        ),
        click.option(
            "--json", "json_", is_flag=True, expose_value=False, callback=_keep("is_json"), help="Print one JSON object a line on stdout."
        ),
        click.option(
            "--timeout",
            "timeout_",
            type=SPAN,
            expose_value=False,
            callback=_keep("timeout_ms"),
            help="How long one request may take.  [default: 10s]",
        ),
    )
    for option in reversed(options):
        function = option(function)
    return function


@contextmanager
def open_client(*, one_shot: bool = False) -> "Iterator[Client]":
    """Yield a client connected as the options say.

    `one_shot` is for a command of one write: no producer for it, an answer that is lost is an unknown outcome and is said.
    A callable given as the context's object takes the place of `eventlog.blocking.connect`.
    """
    with _connected(_real_connect, idempotent=not one_shot) as client:
        yield client


@contextmanager
def open_operator_client() -> "Iterator[Client]":
    """Yield a client as `open_client` does, for what operators ask: a node has a place for it where all its connections are taken."""
    with _connected(_real_connect, operator=True) as client:
        yield client


@contextmanager
def open_small_client() -> "Iterator[SmallClient]":
    """Yield a client for calls of single keys, which is ready in half the time."""
    with _connected(_small_connect, idempotent=False) as client:
        yield client


@contextmanager
def _connected(choose: Callable[[], Callable[..., Any]], **options: bool) -> Iterator[Any]:
    chosen = settings()
    connect = click.get_current_context().obj or choose()
    connect_ms = min(CONNECT_MS_MAX, chosen.timeout_ms)
    with connect(*chosen.addresses, timeout_ms=chosen.timeout_ms, connect_timeout_ms=connect_ms, **options) as client:
        yield client


def _small_connect() -> Callable[..., Any]:
    with Importing():
        from eventlog.client import small  # noqa: PLC0415 -- neither must `--help` wait for this one

    return small.connect


def _real_connect() -> Callable[..., Any]:
    # not at the top: the client brings numpy, which `--help` of a command must not wait for
    with Importing():
        from eventlog import blocking  # noqa: PLC0415

    connect: Callable[..., Any] = blocking.connect
    return connect


def load_archives() -> Any:
    """Return the module of archives. Raises ClickException where its extra is not installed."""
    try:
        with Importing():
            from eventlog.integrations import archive  # noqa: PLC0415 -- as above
    except ImportError as error:
        raise click.ClickException(f"{error.name} is not installed, which archives take: pip install 'eventlog[archive]'") from error
    return archive


def load_rollups() -> Any:
    """Return the module of rollups. Raises ClickException where the extra of archives is not installed."""
    load_archives()
    with Importing():
        from eventlog.integrations import rollup  # noqa: PLC0415 -- as above
    return rollup


def load_pipelines() -> Any:
    """Return the module of pipelines on Spark. Raises ClickException where its extra is not installed."""
    try:
        with Importing():
            from eventlog.integrations.spark.releases import check_installed  # noqa: PLC0415 -- as above

            check_installed()
            from eventlog.integrations.spark import pipelines  # noqa: PLC0415 -- as above
    except ImportError as error:
        raise click.ClickException(f"{error.name} is not installed, which Spark takes: pip install 'eventlog[spark]'") from error
    return pipelines


_ASKING = (signal.SIGTERM, signal.SIGHUP)


class AskedToEnd(KeyboardInterrupt):
    """A signal other than Ctrl-C's asked to end; `number` is its."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class EndingInOrder(ContextDecorator):
    """Has SIGTERM and SIGHUP do what Ctrl-C does inside, and ends with `AskedToEnd` then. What is ignored (`nohup`) stays so.

    Whatever breaks once that was asked counts as its outcome: a call to the JVM that is broken off may end with an error of its own.
    """

    def __enter__(self) -> Self:
        self._number = 0
        self._previous: dict[signal.Signals, Any] = {}
        for number in _ASKING:
            if signal.getsignal(number) is signal.SIG_DFL:
                try:
                    self._previous[number] = signal.signal(number, self._ask)
                except ValueError:  # not the main thread
                    break
        return self

    def __exit__(self, kind: type[BaseException] | None, error: object, _: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if self._number and kind is not None and issubclass(kind, Exception | KeyboardInterrupt):
            raise AskedToEnd(self._number) from None

    def _ask(self, number: int, frame: FrameType | None) -> None:
        self._number = number
        interrupt = signal.getsignal(signal.SIGINT)
        if not callable(interrupt):  # background jobs of scripts ignore it
            raise KeyboardInterrupt
        interrupt(signal.SIGINT, frame)


class Contexts(NamedTuple):  # a dataclass takes three times as long to make, and `--help` has no use for it
    """Addresses of nodes by the name of their context, in the order in which they were added; `used` is "" where none is."""

    servers: Mapping[str, tuple[str, ...]]
    used: str


def contexts_path() -> "Path":
    """Return where the file is: below $XDG_CONFIG_HOME, else ~/.config."""
    from pathlib import Path  # noqa: PLC0415 -- only where no node is named, or contexts are

    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "eventlog" / "contexts.json"


def read_contexts() -> Contexts:
    """Return what the file says; nothing where there is none.

    Raises:
        click.UsageError: the file is not what this command writes.
    """
    path = contexts_path()
    try:
        return _contexts_in(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Contexts(servers={}, used="")
    except ValueError as error:
        raise click.UsageError(f"{path} cannot be read as contexts ({error}); mend it, or remove it and add them again") from error


def _contexts_in(found: Any) -> Contexts:
    """Return the contexts of the file's content. Raises ValueError: it is none of this command's."""
    kept, used = (found.get("contexts"), found.get("used")) if isinstance(found, dict) else (None, None)
    if not isinstance(kept, dict) or not isinstance(used, str):
        raise ValueError('it is not an object with "contexts", an object, and "used", a text')  # noqa: TRY004 -- of a file, not of a caller
    for name, addresses in kept.items():
        if not isinstance(addresses, list) or not addresses or not all(isinstance(one, str) and one.strip() for one in addresses):
            raise ValueError(f"the nodes of {name!r} are not a list of addresses")
    return Contexts(servers={name: tuple(addresses) for name, addresses in kept.items()}, used=used if used in kept else "")


def write_contexts(contexts: Contexts) -> None:
    """Replace the file at once; it is its owner's alone."""
    path = contexts_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    content = {"used": contexts.used, "contexts": {name: list(addresses) for name, addresses in contexts.servers.items()}}
    new.touch(mode=0o600)
    new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    new.replace(path)
