"""Addresses of nodes: parsing them, and the order in which to try them."""

from collections.abc import Iterable
from dataclasses import dataclass

from eventlog.errors import InvalidArgument

PORT_DEFAULT = 7400


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where a node listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address in `HOST`, `HOST:PORT` or `[IPV6]:PORT`; the port is 7400 unless given.

    Raises:
        InvalidArgument: no host, or a port outside [1, 65535].
    """
    host, port = text.strip(), ""
    if host.startswith("["):
        host, bracket, rest = host[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise InvalidArgument(why=f"{text!r} is not an address: write [IPV6]:PORT")
        port = rest[1:]
    elif host.count(":") == 1:
        host, _, port = host.partition(":")
    if not host or any(character.isspace() or character == "/" for character in host):
        raise InvalidArgument(why=f"{text!r} is not an address: write HOST:PORT")
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
        raise InvalidArgument(why=f"{text!r} has a port that is no number from 1 to 65535")
    return Address(host=host, port=int(port) if port else PORT_DEFAULT)


class Candidates:
    """Addresses of one cluster, the best to try first: what worked last stays in front, what failed goes to the end."""

    __slots__ = ("_order",)

    def __init__(self, addresses: Iterable[Address]) -> None:
        self._order = list(dict.fromkeys(addresses))
        if not self._order:
            raise InvalidArgument(why="give at least one address to connect to")

    @property
    def order(self) -> tuple[Address, ...]:
        """Every address once, in the order to try them."""
        return tuple(self._order)

    def worked(self, address: Address) -> None:
        """Put `address` in front."""
        self._order.remove(address)
        self._order.insert(0, address)

    def failed(self, address: Address) -> None:
        """Put `address` at the end."""
        self._order.remove(address)
        self._order.append(address)

    def learn(self, addresses: Iterable[Address]) -> None:
        """Add addresses at the end."""
        self._order += [address for address in dict.fromkeys(addresses) if address not in self._order]


def parse_addresses(given: object) -> list[Address]:
    """Return the addresses of a text with commas between them.

    Raises:
        InvalidArgument: one is none.
    """
    if not isinstance(given, str):
        raise InvalidArgument(why=f"{given!r:.60} is no address: write HOST:PORT; several are arguments, or have commas between")
    return [parse_address(part) for part in given.split(",")]
