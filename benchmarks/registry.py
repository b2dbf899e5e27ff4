"""What a node's schema registry costs over HTTP: its CPU for a request, beside that for the least page there is, `GET /health/live`.

One connection, one request after the other, as a deserializer asks; the pages go by turns, and the middle round counts. Registering is
measured in a registry of a few thousand subjects.
"""

import json
from collections.abc import Iterator
from http.client import HTTPConnection
from statistics import median

from benchmarks.figures import Row, Scale, against
from benchmarks.processes import Node, cpu_seconds, scratch

REQUESTS = 4_000
REGISTERED = 1_000
ROUNDS = 5
FIELDS = 20
BY_ID_AT_MOST = 1.5
LEAST = ("GET", "/health/live")
PAGES = {
    "schema by id": ("/schemas/ids/1", BY_ID_AT_MOST),
    "schema by id, of a subject": ("/schemas/ids/1?subject=orders-value", BY_ID_AT_MOST),
    "latest version": ("/subjects/orders-value/versions/latest", None),
}
_TYPE = {"Content-Type": "application/vnd.schemaregistry.v1+json"}


def run(scale: Scale) -> Iterator[Row]:
    """Yield a row for each page."""
    requests, registered = scale.of(REQUESTS), scale.of(REGISTERED)
    with scratch() as directory, Node(directory / "data") as node:
        asked = _Asked(node)
        asked.register("orders-value", _schema(0))
        found: dict[str, list[float]] = {name: [] for name in ("", "register", "register again", *PAGES)}
        for turn in range(scale.of(ROUNDS, quick=1)):
            found[""].append(asked.cpu_us([LEAST] * requests))
            for name, (path, _) in PAGES.items():
                found[name].append(asked.cpu_us([("GET", path)] * requests))
            bodies = [(f"subject-{turn}-{number}", _schema(1 + turn * registered + number)) for number in range(registered)]
            for name in ("register", "register again"):
                posts = [("POST", f"/subjects/{subject}/versions", body) for subject, body in bodies]
                found[name].append(asked.cpu_us(posts))
    bare = median(found.pop(""))
    limits = {name: at_most for name, (_, at_most) in PAGES.items()}
    for name, rounds in found.items():
        yield against(name, ours=median(rounds), bare=bare, unit="us CPU", at_most=limits.get(name))


class _Asked:
    """A node's HTTP port, over one connection."""

    def __init__(self, node: Node) -> None:
        host, _, port = node.address.http.rpartition(":")
        self._pid = node.address.pid
        self._connection = HTTPConnection(host, int(port))

    def register(self, subject: str, body: bytes) -> None:
        self._ask("POST", f"/subjects/{subject}/versions", body)

    def cpu_us(self, requests: list[tuple[str, str]] | list[tuple[str, str, bytes]]) -> float:
        """Return the node's CPU for a request, in microseconds."""
        before = cpu_seconds(self._pid)
        for request in requests:
            self._ask(*request)
        return (cpu_seconds(self._pid) - before) / len(requests) * 1e6

    def _ask(self, method: str, path: str, body: bytes = b"") -> None:
        self._connection.request(method, path, body or None, _TYPE if body else {})
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status != 200:
            raise RuntimeError(f"{method} {path}: {answer.status} {content[:200]!r}")


def _schema(number: int) -> bytes:
    fields = [{"name": f"field{index}", "type": ["null", "string"], "default": None} for index in range(FIELDS)]
    return json.dumps({"schema": json.dumps({"type": "record", "name": f"Order{number}", "fields": fields})}).encode()
