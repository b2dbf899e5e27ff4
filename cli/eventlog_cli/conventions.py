"""Options that every command takes, wherever they stand on the line, and how a command reaches the cluster with them."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from eventlog_cli.importing import Importing
from eventlog_cli.parameters import SPAN

if TYPE_CHECKING:
    from eventlog.blocking import Client
    from eventlog.client.small import SmallClient

SERVER_DEFAULT = "127.0.0.1:7400"
SERVER_VARIABLE = "EVENTLOG_SERVER"
TIMEOUT_MS_DEFAULT = 10_000
CONNECT_MS_MAX = 5_000
_KEY = "eventlog_cli.settings"

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
        from eventlog_cli.contexts import read_contexts  # noqa: PLC0415 -- paths and JSON, for who names no node

        kept = read_contexts()
        return kept.servers.get(kept.used) or (SERVER_DEFAULT,)


def settings() -> Settings:
    """Return the settings of the command that runs."""
    found: Settings = click.get_current_context().meta.get(_KEY, Settings())
    return found


def _keep(field: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        # what stands nearer to the command wins; an option left out must not undo one given before the group's name
        if ctx.get_parameter_source(param.name or "") is not click.core.ParameterSource.DEFAULT:
            ctx.meta[_KEY] = replace(ctx.meta.get(_KEY, Settings()), **{field: value})

    return keep


def common_options(function: Function) -> Function:
    """Give a command or group `--server`, `--json` and `--timeout`."""
    options = (
        click.option(
            "--server",
            "server_",
            metavar="HOST:PORT",
            multiple=True,
            expose_value=False,
            callback=_keep("servers"),
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
