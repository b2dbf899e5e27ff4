"""What goes from the driver to the tasks says which version of eventlog made it: another one refuses it by name, and guesses nothing."""

from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from importlib.metadata import version
from typing import Any

from eventlog.errors import InvalidArgument


class Travelling:
    """A dataclass of plain values that tasks are handed by pickle."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes it again, where the version is this one."""
        return arrived, (own_version(), type(self), {one.name: getattr(self, one.name) for one in fields(self)})  # type: ignore[arg-type]


@cache
def own_version() -> str:
    """Return the version of eventlog that is installed."""
    return version("eventlog")


def arrived(made_by: str, kind: type, values: Mapping[str, Any]) -> Any:
    """Make what another process has sent. Raises InvalidArgument where it has another version."""
    check_version(made_by)
    return kind(**values)


def check_version(made_by: str) -> None:
    """Raise InvalidArgument where the driver, which made this, has another version."""
    if made_by != own_version():
        why = f"the driver has eventlog {made_by}, and an executor {own_version()}: install one version at all of them"
        raise InvalidArgument(why=why)
