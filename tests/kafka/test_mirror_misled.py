"""A mirror that is sent to something that is no Kafka hears so in one sentence, before its client gives up."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from eventlog import blocking
from eventlog.errors import KafkaFailed
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
PEM = Path(__file__).parents[1] / "process" / "localhost.pem"


@contextmanager
def server(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """Have each connection served by a thread; yield the address."""
    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()


def silent(connection: socket.socket) -> None:
    with connection:
        while connection.recv(4_096):
            pass


def rude(connection: socket.socket) -> None:
    connection.close()


def other(connection: socket.socket) -> None:
    with connection:
        connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
        connection.recv(4_096)


def huge(connection: socket.socket) -> None:
    with connection:
        connection.sendall(b"\x7f\xff\xff\xff" + bytes(4_096))
        connection.recv(4_096)


def encrypted(connection: socket.socket) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(PEM)
    try:
        with context.wrap_socket(connection, server_side=True) as wrapped:
            wrapped.recv(4_096)
    except OSError:
        connection.close()


@pytest.mark.parametrize("serve", [silent, rude, other, huge, encrypted], ids=lambda serve: serve.__name__)
def test_what_is_no_kafka_is_said_to_be_none_in_time(tmp_path: Path, serve: Callable[[socket.socket], None]) -> None:
    with NodeProcess(tmp_path, "--segments", "4") as node, blocking.connect(node.address) as client, server(serve) as address:
        client.create_cache("c").put("k", 1)
        began = time.monotonic()
        with pytest.raises(KafkaFailed, match=rf"Kafka at {address}: ") as refused:
            client.mirrors.add("c", kafka=address)
        assert "\n" not in str(refused.value)
        print(f"{serve.__name__}: {time.monotonic() - began:.1f} s, {refused.value}")
        assert client.mirrors.list() == []
        assert client.cache("c").put("k", 2).kind == "MODIFIED"
        assert node.stop() == 0
