"""What a node may reach beyond its cluster: connections to Kafka and registries by name, and where it may connect to at all.

Secrets are named by files and read when a connection is made, so that they stand in no record, no command line and no log.
"""

import ipaddress
import re
import socket
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar
from urllib.parse import urlsplit

import orjson

from eventlog.errors import BadConfig, InvalidArgument, KafkaFailed, NoConnection, OutboundRefused

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

SECURITIES: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
SETTINGS: Final = {"request_timeout_ms", "retry_backoff_ms", "connections_max_idle_ms", "metadata_max_age_ms"}
"""What of its client may be set; whole numbers."""
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
_PATTERN: Final = re.compile(r"(\[[0-9A-Fa-f:*]+\]|[A-Za-z0-9._*-]+):(\*|[0-9]{1,5})")
_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}")
_URL_CHARACTERS_MAX: Final = 1_000
Table = TypeVar("Table")


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaConnection:
    """A table `[kafka.NAME]` of a node's file. `bootstrap` are addresses `host:port`, with commas between them."""

    bootstrap: str
    security: str = "PLAINTEXT"
    mechanism: str = "PLAIN"
    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    settings: Mapping[str, int] = field(default_factory=dict)

    @property
    def addresses(self) -> list[str]:
        """The brokers that are asked first."""
        return [address.strip() for address in self.bootstrap.split(",")]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryConnection:
    """A table `[registry.NAME]` of a node's file: a registry of schemas under the paths of Confluent's."""

    url: str
    user: str = ""
    password_file: str = ""
    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outbound:
    """What one node may reach. `allow` are patterns `host:port` with `*` in either; none: this machine alone."""

    node: str
    kafka: Mapping[str, KafkaConnection]
    registry: Mapping[str, RegistryConnection] = field(default_factory=dict)
    allow: tuple[str, ...]

    def connection(self, name: str) -> KafkaConnection:
        """Return the connection of a name, or to an address.

        Raises:
            NoConnection: the node's file has none of this name.
        """
        if (found := self.kafka.get(name)) is not None:
            return found
        if all(is_address(address.strip()) for address in name.split(",")):
            return KafkaConnection(bootstrap=name)
        raise self._no_table("kafka", name, self.kafka, instead="HOST:PORT")

    def registry_at(self, name: str) -> RegistryConnection:
        """Return the registry of a name, or at a URL.

        Raises:
            NoConnection: the node's file has none of this name.
            InvalidArgument: the URL is none of a registry.
        """
        if (found := self.registry.get(name)) is not None:
            return found
        if "://" not in name:
            raise self._no_table("registry", name, self.registry, instead="URL")
        if why := why_no_registry(name):
            raise InvalidArgument(why=f"the registry {why}")
        return RegistryConnection(url=name)

    def _no_table(self, kind: str, name: str, known: Mapping[str, object], *, instead: str) -> NoConnection:
        why = f"has no table [{kind}.{name}] in its file; it has {', '.join(sorted(known)) or 'none'}, and {name!r} is no {instead}"
        return NoConnection(node=self.node, why=why)

    def check(self, host: str, port: int) -> None:
        """Refuse an address that is not allowed, by the name it is asked for or by what that resolves to now. Blocks while it resolves.

        Raises:
            OutboundRefused: it is not.
            KafkaFailed: it does not resolve.
        """
        try:
            found = [] if self.allow else _resolved(host)
        except OSError as error:
            raise KafkaFailed(kafka=f"{host}:{port}", why=f"its name does not resolve: {error.strerror}") from error
        self.check_found(host, port, found)

    def check_found(self, host: str, port: int, found: Collection[str]) -> None:
        """Refuse the same of a name that resolved to what was `found`. Raises OutboundRefused."""
        asked = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        if any(_is_like(asked.lower(), pattern.lower()) for pattern in self.allow):
            return
        if not self.allow and found and all(ipaddress.ip_address(one).is_loopback for one in found):
            return
        raise OutboundRefused(node=self.node, address=asked, allowed=", ".join(self.allow) or "nothing, so this machine alone")


def is_address(text: str) -> bool:
    """Return whether a text is HOST:PORT, and a port that there can be."""
    return _ADDRESS.fullmatch(text) is not None and 0 < int(text.rpartition(":")[2]) < 1 << 16


def _is_like(address: str, pattern: str) -> bool:
    """Return whether an address is like a pattern, in which `*` stands for anything; `fnmatch` takes brackets for a set of letters."""
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), address) is not None


def is_loopback(host: str) -> bool:
    """Return whether everything that a host's name resolves to is this machine. Blocks while it resolves. Raises OSError: it does not."""
    return all(ipaddress.ip_address(address).is_loopback for address in _resolved(host))


def _resolved(host: str) -> list[str]:
    try:
        return [str(ipaddress.ip_address(host))]
    except ValueError:
        return [str(entry[4][0]) for entry in socket.getaddrinfo(host, None)]


def why_no_registry(url: str) -> str:
    """Return why a URL is none of a registry, empty where it may be. The URL itself is not said: it may have a password."""
    try:
        found = urlsplit(url)
        is_whole = bool(found.hostname) and found.port != 0
    except ValueError:
        return "has a URL that is none"
    if "@" in found.netloc:
        return "has a user in its URL, which everybody may read: name a table [registry.NAME] with user and password-file"
    if found.scheme not in {"http", "https"} or not is_whole or found.query or found.fragment or len(url) > _URL_CHARACTERS_MAX:
        return "has a URL like http://HOST:PORT, with a path if need be and nothing behind it"
    return "" if url.isascii() and url.isprintable() and " " not in url else "has a URL with characters that have to be encoded"


def read_tables(given: object, *, option: str, make: Callable[[str, object], Table]) -> dict[str, Table]:
    """Return the tables of a file under a name, or what an environment variable says of them as JSON; `make` has each by name.

    Raises:
        BadConfig: naming what cannot be used.
    """
    if isinstance(given, str):
        try:
            given = orjson.loads(given)
        except ValueError as error:
            raise BadConfig(option=option, why=f"it is no JSON: {error}") from error
    if not isinstance(given, Mapping):
        raise BadConfig(option=option, why=f"give tables, as in [{option}.main]")
    for name in given:
        if _NAME.fullmatch(str(name)) is None:
            raise BadConfig(option=f"{option}.{name}", why="a name is 1 to 100 of A-Z a-z 0-9 _ -")
    return {str(name): make(f"{option}.{name}", table) for name, table in given.items()}


def kafka_of(option: str, table: object) -> KafkaConnection:
    """Return the connection of a table. Raises BadConfig."""
    if isinstance(table, KafkaConnection):
        return table
    spelt = _spelt(option, table, KafkaConnection)
    if not spelt.get("bootstrap"):
        raise BadConfig(option=f"{option}.bootstrap", why="name at least one broker, HOST:PORT")
    return _checked(option, KafkaConnection(**spelt))


def registry_of(option: str, table: object) -> RegistryConnection:
    """Return the registry of a table. Raises BadConfig."""
    if isinstance(table, RegistryConnection):
        return table
    spelt = _spelt(option, table, RegistryConnection)
    found = RegistryConnection(**{"url": "", **spelt})
    has_files = bool(found.ca_file or found.cert_file)
    for name, why in (
        ("url", why_no_registry(found.url)),
        ("user", "user and password-file are given together" if bool(found.user) is not bool(found.password_file) else ""),
        ("user", "a colon ends a user's name" if ":" in found.user else ""),
        ("cert_file", "a certificate and its key are given together" if bool(found.cert_file) is not bool(found.key_file) else ""),
        ("url", "http uses no certificates" if has_files and not found.url.startswith("https:") else ""),
    ):
        if why:
            raise BadConfig(option=f"{option}.{name}", why=why)
    return found


def _spelt(option: str, table: object, kind: "type[DataclassInstance]") -> dict[str, Any]:
    """Return the settings of a table under the names of their fields."""
    if not isinstance(table, Mapping):
        raise BadConfig(option=option, why="it is not a table")
    spelt: dict[str, Any] = {str(key).replace("-", "_"): value for key, value in table.items()}
    known = {one.name for one in fields(kind)}
    for key, value in spelt.items():
        if key not in known:
            raise BadConfig(option=f"{option}.{key}", why=f"there is no such setting; there are {', '.join(sorted(known))}")
        wanted, word = (Mapping, "table") if key == "settings" else (str, "text")
        if not isinstance(value, wanted):
            raise BadConfig(option=f"{option}.{key}", why=f"{value!r} is not a {word}")
    return spelt


def _checked(option: str, found: KafkaConnection) -> KafkaConnection:
    is_sasl, is_encrypted = found.security.startswith("SASL"), found.security.endswith("SSL")
    bad = [address for address in found.addresses if not is_address(address)]
    for name, is_wrong, why in (
        ("bootstrap", bool(bad), f"{', '.join(map(repr, bad))}: write HOST:PORT, with commas between several"),
        ("security", found.security not in SECURITIES, f"{found.security!r}: use {', '.join(SECURITIES)}"),
        ("mechanism", found.mechanism not in MECHANISMS, f"{found.mechanism!r}: use {', '.join(MECHANISMS)}"),
        ("user", is_sasl is not bool(found.user and found.password_file), "SASL takes user and password-file, and nothing else does"),
        ("cert_file", bool(found.cert_file) is not bool(found.key_file), "a certificate and its key are given together"),
        ("security", bool(found.ca_file or found.cert_file) and not is_encrypted, f"{found.security} uses no certificates"),
    ):
        if is_wrong:
            raise BadConfig(option=f"{option}.{name}", why=why)
    for key, value in found.settings.items():
        if key not in SETTINGS or type(value) is not int or value < 0:
            raise BadConfig(option=f"{option}.settings.{key}", why=f"whole numbers for {', '.join(sorted(SETTINGS))} may be set")
    return found


def tables_text(tables: "Mapping[str, DataclassInstance]") -> str:
    """Return tables as `read_tables` takes them from the environment, empty where there are none."""
    return orjson.dumps({name: asdict(table) for name, table in tables.items()}).decode() if tables else ""


def check_patterns(patterns: Collection[str], *, option: str) -> None:
    """Refuse what is no pattern of addresses. Raises BadConfig."""
    for pattern in patterns:
        if _PATTERN.fullmatch(pattern) is None:
            raise BadConfig(option=option, why=f"{pattern!r} is neither HOST:PORT nor a pattern of one, as in *.example.com:9092")


def secret(path: str, *, option: str) -> str:
    """Return the first line of a file with a secret.

    Raises:
        BadConfig: it cannot be read, or is empty. What stands in it is not said.
    """
    try:
        found = Path(path).read_text().partition("\n")[0].strip("\r")
    except (OSError, UnicodeDecodeError) as error:
        raise BadConfig(option=option, why=f"{path} cannot be read: {getattr(error, 'strerror', None) or 'it is no text'}") from error
    if not found:
        raise BadConfig(option=option, why=f"{path} is empty")
    return found
