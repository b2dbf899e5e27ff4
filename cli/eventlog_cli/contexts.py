"""The file of contexts: names for clusters, and which of them is in use."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import click


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """Addresses of nodes by the name of their context, in the order in which they were added; `used` is "" where none is."""

    servers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    used: str = ""


def contexts_path() -> Path:
    """Return where the file is: below $XDG_CONFIG_HOME, else ~/.config."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "eventlog" / "contexts.json"


def read_contexts() -> Contexts:
    """Return what the file says; nothing where there is none.

    Raises:
        click.UsageError: the file is not what this command writes.
    """
    path = contexts_path()
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        servers = {str(name): tuple(map(str, addresses)) for name, addresses in found["contexts"].items()}
        return Contexts(servers=servers, used=found["used"] if found["used"] in servers else "")
    except FileNotFoundError:
        return Contexts()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise click.UsageError(f"{path} cannot be read as contexts ({error}); mend it, or remove it and add them again") from error


def write_contexts(contexts: Contexts) -> None:
    """Replace the file at once; it is its owner's alone."""
    path = contexts_path()
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    new = path.with_name(f"{path.name}.{os.getpid()}")
    content = {"used": contexts.used, "contexts": {name: list(addresses) for name, addresses in contexts.servers.items()}}
    new.touch(mode=0o600)
    new.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    new.replace(path)
