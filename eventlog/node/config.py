"""How a node is configured: options, a TOML file, the environment, checked before anything is opened."""

import ipaddress
import os
import re
import socket
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from eventlog.control.metastores.location import Location, SqliteLocation, parse_location
from eventlog.errors import BadConfig, Insecure
from eventlog.limits import (
    COLUMN_FILES_BYTES_DEFAULT,
    CONNECTIONS_MAX,
    DISK_RESERVE_BYTES_DEFAULT,
    GIB,
    KIB,
    MIB,
    REPLICAS_DEFAULT,
    REPLICAS_MAX,
    SEGMENTS_DEFAULT,
    SEGMENTS_MAX,
    VALUE_BYTES_CAP,
    VALUE_BYTES_MAX,
)
from eventlog.node.outbound import (
    KafkaConnection,
    RegistryConnection,
    check_patterns,
    is_loopback,
    kafka_of,
    read_tables,
    registry_of,
    tables_text,
)

ENVIRONMENT_PREFIX = "EVENTLOG_NODE_"
_SIZE = re.compile(r"([0-9]{1,18})\s*(B|[KMGT]i?B)?")
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_NAME = re.compile(r"[!-~]{0,200}")
_PORT = re.compile(r"[0-9]{1,5}")
PORT_MAX = 65_535
_TOKEN_BYTES_MIN = 16
_RANGES = {
    "connections_max": (1, 1 << 20),
    "retention_interval_ms": (1, 1 << 31),
    "value_bytes_max": (1, VALUE_BYTES_CAP),
    "replicas": (1, REPLICAS_MAX),
    "processes": (1, 64),
    "weight": (1, 100),
}
_OPTION_NAMES = {
    "disk_reserve": "disk_reserve_bytes",
    "column_files": "column_files_bytes_max",
    "value_max": "value_bytes_max",
}  # of `serve`
_MANAGED_ETCD = {"managed-etcd": 3, "managed-etcd:3": 3, "managed-etcd:5": 5}  # and how many members
_TABLES: Mapping[str, Callable[[str, object], Any]] = {"kafka": kafka_of, "registry": registry_of}
_UNITS = {None: 1, "B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": 1_024 * GIB} | {
    f"{letter}B": 1_000**power for power, letter in enumerate("KMGT", 1)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeConfig:
    """What `serve` takes. Addresses are `host:port`; port 0 takes a free one.

    `join` names nodes of the cluster to become a member of; a directory that remembers a cluster needs none.
    """

    data: Path = Path("eventlog-data")
    listen: str = "127.0.0.1:7400"
    http: str = "127.0.0.1:7480"
    advertise: str = ""
    node_name: str = ""
    meta: str = ""
    join: tuple[str, ...] = ()
    join_token_file: str = ""
    host_label: str = ""
    rack: str = ""
    weight: int = 1
    gateway: bool = False
    processes: int = 1
    segments: int = SEGMENTS_DEFAULT
    replicas: int = REPLICAS_DEFAULT
    durability: str = "fsync"
    insecure: bool = False
    accept_data_loss: bool = False
    disk_reserve_bytes: int = DISK_RESERVE_BYTES_DEFAULT
    column_files_bytes_max: int = COLUMN_FILES_BYTES_DEFAULT
    connections_max: int = CONNECTIONS_MAX
    value_bytes_max: int = VALUE_BYTES_MAX
    storage: str = "rocksdb"
    retention_interval_ms: int = 10_000
    ready_file: str = ""
    allow_outbound: tuple[str, ...] = ()
    kafka: Mapping[str, KafkaConnection] = field(default_factory=dict)
    registry: Mapping[str, RegistryConnection] = field(default_factory=dict)

    @property
    def location(self) -> Location:
        """Return where the metadata is: unless told, a file beside the data directory, never inside."""
        if self.meta and not self.is_managed:
            return parse_location(self.meta)
        return self.default_location

    @property
    def is_managed(self) -> bool:
        """Return whether nodes of the cluster run the etcd that holds its metadata."""
        return self.meta in _MANAGED_ETCD

    @property
    def etcd_members_max(self) -> int:
        """Return how many nodes run a member of it, this one among them."""
        return _MANAGED_ETCD.get(self.meta, 0)

    @property
    def default_location(self) -> Location:
        """Return where the metadata is unless told."""
        data = self.data.absolute()  # of `.` the name
        return SqliteLocation(data.parent / f"{data.name}.meta" / "meta.db")


def load_config(options: Mapping[str, Any], *, file: Path | None = None, environment: Mapping[str, str] | None = None) -> NodeConfig:
    """Return the configuration: options win over the environment, the environment over the file, the file over defaults.

    Settings of the file and the environment are named as the options of `serve` or as the fields of `NodeConfig`.

    Raises:
        BadConfig: an unknown name, or a value that cannot be used; says which.
        Insecure: it would listen beyond loopback without protection.
    """
    environment = os.environ if environment is None else environment
    merged: dict[str, Any] = {}
    if file is not None:
        merged.update(_named(_read_file(file)))
    known = {one.name for one in fields(NodeConfig)}
    given = {
        name.removeprefix(ENVIRONMENT_PREFIX).lower(): environment[name] for name in environment if name.startswith(ENVIRONMENT_PREFIX)
    }
    merged.update(_named(given))
    merged.update({name: value for name, value in options.items() if value not in (None, ())})
    unknown = sorted(set(merged) - known)
    if unknown:
        raise BadConfig(option=unknown[0], why=f"there is no such setting; there are {', '.join(sorted(known))}")
    config = NodeConfig(**{name: _convert(name, value) for name, value in merged.items()})
    _check(config)
    return config


def environment_of(config: NodeConfig) -> dict[str, str]:
    """Return the environment variables that make a node's configuration this one."""
    found: dict[str, str] = {}
    for one in fields(config):
        value = getattr(config, one.name)
        text = ",".join(value) if isinstance(value, tuple) else tables_text(value) if isinstance(value, Mapping) else str(value)
        if text:
            found[ENVIRONMENT_PREFIX + one.name.upper()] = text
    return found


def environment_of_child(config: NodeConfig) -> dict[str, str]:
    """Return this process's environment with a node's configuration instead of its own."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(ENVIRONMENT_PREFIX)}
    return others | environment_of(config)


def _named(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings under the names of their fields."""
    spelt = {name.replace("-", "_"): value for name, value in given.items()}
    return {_OPTION_NAMES.get(name, name): value for name, value in spelt.items()}


def _read_file(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text())
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise BadConfig(option=str(file), why=str(error)) from error


_DEFAULTS = NodeConfig()


def _convert(name: str, value: Any) -> Any:
    default = getattr(_DEFAULTS, name)
    if isinstance(default, bool):
        if isinstance(value, bool):
            return value
        if str(value).lower() in {"1", "true", "yes", "0", "false", "no"}:
            return str(value).lower() in {"1", "true", "yes"}
        raise BadConfig(option=name, why=f"{value!r} is neither true nor false")
    if isinstance(default, int):
        return _number(name, value)
    if isinstance(default, tuple | Mapping):
        return _texts(name, value) if isinstance(default, tuple) else read_tables(value, option=name, make=_TABLES[name])
    if isinstance(default, Path) and isinstance(value, Path):
        return value
    is_path = isinstance(default, Path)
    if not isinstance(value, str) or "\0" in value or (is_path and not value):
        raise BadConfig(option=name, why=f"{value!r} is not a {'path' if is_path else 'text'}")
    if not _is_utf8(value):
        raise BadConfig(option=name, why=f"{value!r} is not UTF-8")
    return Path(value) if is_path else value


def _is_utf8(text: str) -> bool:
    return not any("\ud800" <= letter <= "\udfff" for letter in text)  # what stands for other bytes of the command line


def _number(name: str, value: Any) -> int:
    """Return a size, which may have a unit, where the name says that it counts bytes; else a plain number."""
    text, is_size = "" if isinstance(value, bool) else str(value).strip(), "bytes" in name
    match = (_SIZE if is_size else _NUMBER).fullmatch(text)
    if match is None:
        expected = "a size: write a number and one of B KB MB GB TB KiB MiB GiB TiB" if is_size else "a whole number"
        raise BadConfig(option=name, why=f"{value!r} is not {expected}")
    return int(match[1]) * _UNITS[match[2]] if is_size else int(text)


def _texts(name: str, value: Any) -> tuple[str, ...]:
    """Return several texts: a list, or one with commas."""
    found = value.split(",") if isinstance(value, str) else value
    if not isinstance(found, list | tuple) or not all(isinstance(text, str) and text.strip() for text in found):
        raise BadConfig(option=name, why=f"{value!r} is not a list of texts")
    return tuple(text.strip() for text in found)


def _check(config: NodeConfig) -> None:
    if config.segments < 1 or config.segments > SEGMENTS_MAX or config.segments & (config.segments - 1):
        raise BadConfig(option="segments", why=f"{config.segments} is not a power of two from 1 to {SEGMENTS_MAX}")
    if config.durability != "fsync":
        raise BadConfig(option="durability", why=f"{config.durability!r}: one node alone has nothing but its disk, so only fsync is there")
    for option in ("node_name", "host_label", "rack"):
        if _NAME.fullmatch(getattr(config, option)) is None:
            raise BadConfig(option=option, why=f"{getattr(config, option)!r} is no name: use at most 200 ASCII characters without spaces")
    for option, (low, high) in _RANGES.items():
        if not low <= (number := getattr(config, option)) <= high:
            raise BadConfig(option=option, why=f"{number} is not from {low} to {high}")
    check_patterns(config.allow_outbound, option="allow_outbound")
    _check_addresses(config)
    join_token(config)


def _check_addresses(config: NodeConfig) -> None:
    location = config.location
    if isinstance(location, SqliteLocation) and config.data.resolve() in location.path.resolve().parents:
        raise BadConfig(option="meta", why=f"{location.path} lies inside the data directory")
    told = [("join", address) for address in config.join] + ([("advertise", config.advertise)] if config.advertise else [])
    for option, address in told:
        if not split_address(address, option=option)[1]:
            raise BadConfig(option=option, why=f"{address!r} names no port")
    if config.advertise and _is_wildcard(split_address(config.advertise, option="advertise")[0]):
        why = f"{config.advertise!r} stands for every address of a host, and others reach none by it: name the one of this host"
        raise BadConfig(option="advertise", why=why)
    for option in ("listen", "http"):
        listened: str = getattr(config, option)
        host, _ = split_address(listened, option=option)
        if not config.insecure and not _is_loopback(host, option=option):
            raise Insecure(address=listened)


def join_token(config: NodeConfig) -> bytes:
    """Return the join token, empty for none.

    Raises:
        BadConfig: its file cannot be read, or holds none.
    """
    if not config.join_token_file:
        return b""
    try:
        token = Path(config.join_token_file).read_bytes().strip()
    except OSError as error:
        raise BadConfig(option="join_token_file", why=f"{config.join_token_file}: {error.strerror}") from error
    if len(token) < _TOKEN_BYTES_MIN:
        raise BadConfig(
            option="join_token_file", why=f"{config.join_token_file} holds {len(token)} bytes; {_TOKEN_BYTES_MIN} are the least"
        )
    return token


def split_address(address: str, *, option: str) -> tuple[str, int]:
    """Return host and port of `host:port` or `[host]:port`.

    Raises:
        BadConfig: it is neither.
    """
    host, colon, port = address.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    name = host[1:-1] if is_bracketed else host
    if not colon or not name or _PORT.fullmatch(port) is None or int(port) > PORT_MAX or is_bracketed is not (":" in name):
        raise BadConfig(option=option, why=f"{address!r} is neither HOST:PORT nor [IPV6]:PORT")
    try:
        name.encode("idna")
    except UnicodeError as error:
        raise BadConfig(option=option, why=f"{name!r} is no name that a host can have: {error.__cause__ or error}") from error
    return name, int(port)


def _is_wildcard(host: str) -> bool:
    """Return whether it is the address that means all of a host's, in any of the spellings that systems take (`0` is one)."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        try:
            return not any(socket.inet_aton(host))
        except OSError:  # a name
            return False
    return (getattr(found, "ipv4_mapped", None) or found).is_unspecified


def _is_loopback(host: str, *, option: str) -> bool:
    try:
        return is_loopback(host)
    except OSError as error:
        raise BadConfig(option=option, why=f"{host!r} is no address of this host: {error}") from error
