"""Ports of loopback for who has to know one before listening: it is given to nobody else until this process ends."""

import socket
from collections.abc import Sequence

FIRST, LAST = 20_000, 30_000  # below those that systems give away by themselves


def free_port() -> int:
    """Return a port that nobody has."""
    return _hold((0,))[0]


def free_base(offsets: Sequence[int]) -> int:
    """Return a number whose sums with the offsets are ports that nobody has."""
    for base in range(FIRST, LAST, 7):
        try:
            _hold([base + offset for offset in offsets])
        except OSError:
            continue
        return base
    raise AssertionError("no free ports")


def _hold(ports: Sequence[int]) -> list[int]:
    """Bind ports that nobody has bound, and let who listens on them share them."""
    holding = [socket.socket() for _ in ports]
    try:
        for one, port in zip(holding, ports, strict=True):
            one.bind(("127.0.0.1", port))
    except OSError:
        for one in holding:
            one.close()
        raise
    for one in holding:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found = [int(one.getsockname()[1]) for one in holding]
    for one in holding:
        one.detach()  # for good
    return found
