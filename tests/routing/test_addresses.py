import pytest

from eventlog.errors import InvalidArgument
from eventlog.routing.addresses import Address, Candidates, parse_address


@pytest.mark.parametrize(
    ("text", "host", "port"),
    [
        ("127.0.0.1:7400", "127.0.0.1", 7400),
        ("node-a", "node-a", 7400),
        (" node-a:1 ", "node-a", 1),
        ("[::1]:65535", "::1", 65535),
        ("[::1]", "::1", 7400),
        ("::1", "::1", 7400),
    ],
)
def test_an_address_is_host_and_port(text: str, host: str, port: int) -> None:
    address = parse_address(text)
    assert (address.host, address.port) == (host, port)
    assert parse_address(str(address)) == address


NO_ADDRESSES = ["", ":7400", "node:0", "node:65536", "node:x", "node:-1", "[::1", "[::1]7400", "http://node:1", "a b", "node:\u0663"]


@pytest.mark.parametrize("text", NO_ADDRESSES)
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"address|port"):
        parse_address(text)


def test_an_address_that_worked_is_tried_first_and_one_that_failed_last() -> None:
    a, b, c = (Address(host=name, port=1) for name in "abc")
    candidates = Candidates([a, b, c, a])
    candidates.failed(a)
    assert candidates.order == (b, c, a)
    candidates.worked(c)
    assert candidates.order == (c, b, a)


def test_no_address_at_all_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="at least one"):
        Candidates([])
