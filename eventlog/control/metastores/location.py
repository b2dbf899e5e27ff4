"""Where a cluster's metadata is, as one line of text: what `--meta` takes, joiners are told, and the command line moves between.

sqlite:PATH                       a file, shared by the processes of one host
etcd://HOST:PORT[,HOST:PORT]...   members of an etcd cluster; `/NAME` at the end is what keys begin with, `eventlog` unless given
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from eventlog.control.metastore import MetaStore
from eventlog.control.metastores.sqlite import open_sqlite
from eventlog.errors import BadConfig

PREFIX_DEFAULT = "eventlog"
_ETCD = "etcd://"
_SQLITE = "sqlite:"


@dataclass(frozen=True, slots=True)
class SqliteLocation:
    """A file; nodes that share it are on its host, and may have another working directory: its text is absolute."""

    path: Path

    def __str__(self) -> str:
        return f"{_SQLITE}{self.path.absolute()}"


@dataclass(frozen=True, slots=True)
class EtcdLocation:
    """Members of an etcd cluster, `host:port` each, and the name under which the keys lie."""

    endpoints: tuple[str, ...]
    prefix: str = PREFIX_DEFAULT

    def __str__(self) -> str:
        name = "" if self.prefix == PREFIX_DEFAULT else f"/{self.prefix}"
        return f"{_ETCD}{','.join(self.endpoints)}{name}"


Location = SqliteLocation | EtcdLocation


class OpenMetaStore(Protocol):
    """What opens the store at a location, as `open_metastore` does."""

    async def __call__(self, location: Location, *, create: bool) -> MetaStore:
        """Return the store; with `create`, one is made where there is none."""
        ...


def parse_location(text: str) -> Location:
    """Return the location that `text` names.

    Raises:
        BadConfig: it names none; says what it may be.
    """
    if text.startswith(_SQLITE) and len(text) > len(_SQLITE):
        return SqliteLocation(Path(text.removeprefix(_SQLITE)))
    if text.startswith(_ETCD):
        hosts, _, prefix = text.removeprefix(_ETCD).partition("/")
        endpoints = tuple(hosts.split(","))
        if all(_is_endpoint(endpoint) for endpoint in endpoints) and "/" not in prefix:
            return EtcdLocation(endpoints, prefix or PREFIX_DEFAULT)
    raise BadConfig(option="meta", why=f"{text!r} is neither sqlite:PATH nor etcd://HOST:PORT,HOST:PORT nor managed-etcd, managed-etcd:5")


def _is_endpoint(text: str) -> bool:
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdecimal() and 0 < int(port) < 1 << 16


async def open_metastore(location: Location, *, create: bool) -> MetaStore:
    """Return the store; with `create`, a file is made where there is none.

    Raises:
        BadConfig: etcd is asked for, and the packages for it are not installed; or its version loses data.
        MetadataLost, MetadataUnavailable, UnsupportedFormat: as the stores say.
    """
    if isinstance(location, SqliteLocation):
        return await open_sqlite(location.path, create=create)
    try:
        from eventlog.control.metastores.etcd import EtcdOptions, open_etcd  # noqa: PLC0415 -- an extra: most clusters do without grpc
    except ImportError:
        raise BadConfig(option="meta", why="etcd needs more packages: pip install 'eventlog[etcd]'") from None
    return await open_etcd(EtcdOptions(endpoints=location.endpoints, prefix=f"{location.prefix}/"))
