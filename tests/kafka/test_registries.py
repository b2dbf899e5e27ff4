"""A registry elsewhere as a node asks it: what it is asked, what becomes of each answer, and where it may not be."""

import asyncio
import json
import ssl
import threading
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from eventlog.errors import BadConfig, EventLogError, OutboundRefused, RegistryFailed, SchemaRefused
from eventlog.integrations.kafka.registries import HttpRegistry
from eventlog.node.outbound import Outbound, RegistryConnection

POLL_S = 0.005  # after which a server that is to end sees it
PEM = Path(__file__).parents[1] / "process" / "localhost.pem"


@dataclass
class Played:
    """A server that gives one answer to everything, and what it was asked."""

    status: int = 200
    answer: bytes = b'{"id": 7}'
    headers: dict[str, str] = field(default_factory=dict)
    asked: list[dict[str, Any]] = field(default_factory=list)
    port: int = 0


@contextmanager
def serving(played: Played, *, is_encrypted: bool = False) -> Iterator[Played]:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            played.asked.append({"method": self.command, "path": self.path, "body": body, "authorization": self.headers["Authorization"]})
            self.send_response(played.status)
            for name, value in played.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(played.answer)))
            self.end_headers()
            self.wfile.write(played.answer)

        do_POST = do_GET  # noqa: N815 -- the name that the server calls

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as server:
        if is_encrypted:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(PEM)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        played.port = server.server_port
        thread = threading.Thread(target=server.serve_forever, args=(POLL_S,))
        thread.start()
        try:
            yield played
        finally:
            server.shutdown()
            thread.join()


def outbound(*allow: str, **registry: RegistryConnection) -> Outbound:
    return Outbound(node="n1", kafka={}, registry=registry, allow=allow)


def registered(url: str, *allow: str) -> int:
    return asyncio.run(HttpRegistry(url, outbound(*allow)).register("shop.orders-value", '{"type": "long"}'))


def checked(url: str) -> None:
    asyncio.run(HttpRegistry(url, outbound()).check("shop.orders-value", '{"type": "long"}'))


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (200, {"is_compatible": True}),
        (404, {"error_code": 40401, "message": "Subject not found"}),
        (404, {"error_code": 40402, "message": "Version not found"}),
    ],
)
def test_what_can_follow_is_asked_for_without_being_registered(status: int, answer: dict[str, Any]) -> None:
    with serving(Played(status=status, answer=json.dumps(answer).encode())) as played:
        checked(f"http://127.0.0.1:{played.port}/avro")
    (asked,) = played.asked
    assert (asked["method"], asked["path"]) == ("POST", "/avro/compatibility/subjects/shop.orders-value/versions/latest?verbose=true")
    assert json.loads(asked["body"]) == {"schema": '{"type": "long"}', "schemaType": "AVRO"}


@pytest.mark.parametrize(
    ("status", "answer", "kind", "why"),
    [
        (200, {"is_compatible": False, "messages": ["a field", "another"]}, SchemaRefused, "incompatible .*schema: a field; another"),
        (200, {"is_compatible": False}, SchemaRefused, "incompatible with an earlier schema$"),
        (200, {"id": 7}, RegistryFailed, "without a judgement"),
        (422, {"error_code": 42201, "message": "Invalid schema"}, SchemaRefused, "Invalid schema"),
        (404, {"error_code": 404, "message": "HTTP 404 Not Found"}, SchemaRefused, "HTTP 404 Not Found"),
        (500, {"error_code": 50001, "message": "store"}, RegistryFailed, "answers 500"),
    ],
)
def test_what_cannot_follow_is_refused_in_one_sentence(status: int, answer: Any, kind: type[EventLogError], why: str) -> None:
    with serving(Played(status=status, answer=json.dumps(answer).encode())) as played, pytest.raises(kind, match=why):
        checked(f"http://127.0.0.1:{played.port}")


@pytest.mark.parametrize("path", ["", "/", "/avro/"])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_schema_is_registered_as_confluents_clients_do(path: str, host: str) -> None:
    with serving(Played()) as played:
        assert registered(f"http://{host}:{played.port}{path}") == 7
    (asked,) = played.asked
    assert (asked["method"], asked["path"]) == ("POST", f"{path.rstrip('/')}/subjects/shop.orders-value/versions")
    assert json.loads(asked["body"]) == {"schema": '{"type": "long"}', "schemaType": "AVRO"}


def test_the_latest_of_a_subject_is_asked_for_by_its_name_as_it_is() -> None:
    with serving(Played(answer=b'{"id": 7, "schema": "\\"long\\""}')) as played:
        registry = HttpRegistry(f"http://127.0.0.1:{played.port}", outbound())
        assert asyncio.run(registry.latest("a/b ?")) == ('"long"', "avro")
        played.answer = b'{"id": 7, "schema": "{}", "schemaType": "JSON"}'
        assert asyncio.run(registry.latest("s")) == ("{}", "json")
        played.answer = b'{"id": 7, "schema": "x", "schemaType": "PROTOBUF"}'
        with pytest.raises(SchemaRefused, match="Avro or JSON Schema"):
            asyncio.run(registry.latest("s"))
    assert [asked["path"] for asked in played.asked] == ["/subjects/a%2Fb%20%3F/versions/latest", *["/subjects/s/versions/latest"] * 2]


REFUSED = b'{"error_code": 409, "message": "incompatible:\\nno default"}'


@pytest.mark.parametrize(
    ("status", "answer", "kind", "why"),
    [
        (409, REFUSED, SchemaRefused, "says incompatible: no default"),
        (422, REFUSED, SchemaRefused, "says incompatible: no default"),
        (404, REFUSED, SchemaRefused, "says incompatible: no default"),
        (401, b"", SchemaRefused, "does not take this node's user and password"),
        (403, REFUSED, SchemaRefused, "does not take this node's user and password"),
        (500, REFUSED, RegistryFailed, "answers 500: incompatible: no default"),
        (429, REFUSED, RegistryFailed, "answers 429: incompatible: no default"),
        (404, b"<html>", RegistryFailed, "answers 404 to what a registry knows: it is none"),
        (200, b"<html>", RegistryFailed, "answers 200 to what a registry knows: it is none"),
        (200, b"[" * 100_000, RegistryFailed, "answers 200 to what a registry knows: it is none"),
        (200, b"[7]", RegistryFailed, "answers 200 to what a registry knows: it is none"),
        (200, b"{}", RegistryFailed, "without an id"),
        (200, b'{"id": true}', RegistryFailed, "without an id"),
        (200, b'{"id": 4294967296}', RegistryFailed, "without an id"),
        (200, b" " * (8 << 20), RegistryFailed, "without an end"),
    ],
)
def test_what_is_answered_instead_is_one_sentence(status: int, answer: bytes, kind: type[EventLogError], why: str) -> None:
    with serving(Played(status=status, answer=answer)) as played, pytest.raises(kind, match=why) as refused:
        registered(f"http://127.0.0.1:{played.port}")
    assert "\n" not in str(refused.value)
    assert f"http://127.0.0.1:{played.port}" in str(refused.value)


def test_a_redirect_is_not_followed() -> None:
    with serving(Played()) as there, serving(Played(status=307)) as played:
        played.headers["Location"] = f"http://127.0.0.1:{there.port}/subjects/s/versions"
        with pytest.raises(RegistryFailed, match="answers 307"):
            registered(f"http://127.0.0.1:{played.port}")
    assert there.asked == []


@pytest.mark.parametrize(
    ("url", "allow"),
    [("http://127.0.0.1", ("r:8081",)), ("http://localhost", ("r:8081",)), ("http://[::1]", ("r:8081",)), ("http://192.0.2.1", ())],
)
def test_where_it_may_not_be_it_is_not_asked(url: str, allow: tuple[str, ...]) -> None:
    with serving(Played()) as played, pytest.raises(OutboundRefused, match="allow_outbound"):
        registered(f"{url}:{played.port}", *allow)
    assert played.asked == []


@pytest.mark.parametrize("host", ["2130706433", "127.1"])
def test_an_address_in_another_spelling_is_none(host: str) -> None:
    with serving(Played()) as played, pytest.raises(RegistryFailed):
        registered(f"http://{host}:{played.port}")
    assert played.asked == []


def test_nobody_there_is_one_sentence() -> None:
    with serving(Played()) as played:
        pass
    with pytest.raises(RegistryFailed, match=rf"^the registry http://127.0.0.1:{played.port}: does not answer: "):
        registered(f"http://127.0.0.1:{played.port}")
    with pytest.raises(RegistryFailed, match="does not answer"):
        registered("http://nobody.invalid:1", "*:*")


def test_its_password_is_that_of_the_file_when_it_is_asked(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text("hunter2\n")
    with serving(Played(), is_encrypted=True) as played:
        main = RegistryConnection(url=f"https://localhost:{played.port}", user="u", password_file=str(password), ca_file=str(PEM))
        registry = HttpRegistry("main", outbound(main=main))
        assert asyncio.run(registry.register("s", '"long"')) == 7
        password.write_text("schlüssel\n")
        asyncio.run(registry.register("s", '"long"'))
        password.unlink()
        with pytest.raises(BadConfig, match="cannot be read"):
            asyncio.run(registry.register("s", '"long"'))
        with pytest.raises(RegistryFailed, match=r"does not answer: .*certificate"):
            registered(f"https://localhost:{played.port}")
    assert [b64decode(asked["authorization"].split()[1]).decode() for asked in played.asked] == ["u:hunter2", "u:schlüssel"]
