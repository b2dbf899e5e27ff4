"""Clients of a registry at every node, and faults that happen meanwhile: what was asked and answered, and what each fault hit."""

import json
import random
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPException
from typing import Any, Self

from eventlog.hashing import hash_key, segment_of
from eventlog.schema.registry import ROUTE
from tests.process.clusters import ClusterProcesses
from tests.process.nodes import NodeProcess
from tests.process.registry_histories import Asked, violations
from tests.process.trials import TAKES_EFFECT_S
from tests.schema.registries import body
from tests.words import FAULTS_HIT

TYPE = "application/vnd.schemaregistry.v1+json"
ASKED_S = 20
UNKNOWN = 50003
NOBODY_THERE = -1  # nothing was asked
CLIENTS_A_NODE = 2
PAUSE_S_MAX = 0.01  # between two requests of a client: the history of a minute has to be searched
BUSY_S = 60
KEPT, WIPED = ("kept-a", "kept-b"), ("wiped-a", "wiped-b")
SCHEMAS = {"kept-a": range(1, 50), "kept-b": range(30, 80), "wiped-a": range(100, 120), "wiped-b": range(110, 130)}
KINDS = {"register": 5, "list": 4, "get": 4, "look up": 3, "id": 4, "delete": 3, "delete subject": 0.3}


def ask(node: NodeProcess, method: str, path: str, data: bytes | None = None) -> Any:
    """Return the answer of a registry.

    Raises:
        urllib.error.HTTPError: it is not 200.
        OSError: there is none.
    """
    request = urllib.request.Request(f"http://{node.http}{path}", data=data, headers={"Content-Type": TYPE}, method=method)
    with urllib.request.urlopen(request, timeout=ASKED_S) as answer:
        return json.load(answer)


def spelled(schema: int, chance: random.Random) -> str:
    """Return a schema in one of the ways to write it, which all mean the same."""
    parts = [("type", "fixed"), ("name", "F"), ("size", schema)]
    chance.shuffle(parts)
    return json.dumps(dict(parts), indent=chance.choice([None, 1, 4]))


def meant(text: str) -> int:
    """Return which schema a text is."""
    return int(json.loads(text)["size"])


class RegistryTrial:
    """Clients of all nodes of a running cluster inside `with`; `happen` and `lasting` let faults happen, `verdict` checks everything."""

    def __init__(self, cluster: ClusterProcesses, *, seed: int) -> None:
        self.cluster = cluster
        self.history: list[Asked] = []
        self.faults: list[tuple[str, float]] = []
        self._seed = seed
        self._newest: dict[str, int] = {}  # versions, and ids under the empty name, that the clients have heard of
        self._is_over = threading.Event()
        places = range(CLIENTS_A_NODE * len(cluster.nodes))
        self._threads = [threading.Thread(target=self._work, args=(place,)) for place in places]

    def __enter__(self) -> Self:
        ask(self.cluster[0], "PUT", "/config", b'{"compatibility": "NONE"}')
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    @property
    def primary(self) -> int:
        """The index of the node that leads the registry."""
        return self.cluster.primaries()[segment_of(hash_key(ROUTE), self.cluster.segments)]

    # ------------------------------------------------------------ clients

    def _work(self, place: int) -> None:
        node = self.cluster[place % len(self.cluster.nodes)]
        chance = random.Random(f"{self._seed}/{place}")
        while not self._is_over.wait(chance.random() * PAUSE_S_MAX):
            asked = self._asked(node, self._wanted(chance), chance)
            if asked.code != NOBODY_THERE:
                self.history.append(asked)

    def _wanted(self, chance: random.Random) -> Asked:
        """Return a request by chance: about what is there, mostly."""
        (kind,) = chance.choices([*KINDS], [*KINDS.values()])
        subject = chance.choice(list(SCHEMAS))
        wanted = Asked(kind=kind, subject="" if kind == "id" else subject, began=0, ended=0)
        newest = self._newest.get(wanted.subject, 0)
        near = chance.randint(max(1, newest - 5), newest + 1)
        if kind == "id":
            return replace(wanted, id=chance.randint(1, newest + 1))
        if kind in {"register", "look up"}:
            return replace(wanted, schema=chance.choice(SCHEMAS[subject]))
        if kind in {"list", "get"}:
            return replace(wanted, version=near if kind == "get" else 0, with_deleted=chance.random() < 0.5)
        permanent = subject in WIPED and chance.random() < 0.5
        return replace(wanted, version=near if kind == "delete" else 0, is_permanent=permanent)

    def _asked(self, node: NodeProcess, wanted: Asked, chance: random.Random) -> Asked:
        """Ask for what is wanted; return it with what was answered, and when."""
        wanted = replace(wanted, node=node.directory.name, began=time.monotonic(), code=None)
        try:
            answered = _told(wanted, ask(node, *_request(wanted, chance)))
        except urllib.error.HTTPError as error:
            answered = replace(wanted, code=_code(error))
        except (OSError, HTTPException) as error:  # the node is dead, dies, or stands still
            is_refused = isinstance(error, urllib.error.URLError) and isinstance(error.reason, ConnectionRefusedError)
            answered = replace(wanted, code=NOBODY_THERE) if is_refused else wanted
        if answered.code == 0:
            new = answered.answer if answered.kind == "register" else 0
            self._newest[answered.subject] = max(self._newest.get(answered.subject, 0), new)
            self._newest[""] = max(self._newest.get("", 0), answered.id)
        return replace(answered, ended=time.monotonic())

    # ------------------------------------------------------------ faults

    def happen(self, name: str, fault: Callable[[], object]) -> None:
        """Let a fault happen, now."""
        self.faults.append((name, time.monotonic()))
        fault()

    @contextmanager
    def lasting(self, name: str, begin: Callable[[], object], end: Callable[[], object]) -> Iterator[None]:
        """Let a fault begin now and end with the block."""
        self.happen(name, begin)
        try:
            yield
        finally:
            end()

    def busy(self, changes: int = 25) -> None:
        """Wait until so many more changes were answered, and questions with them."""
        wanted, deadline = self._changes() + changes, time.monotonic() + BUSY_S
        while self._changes() < wanted:
            assert time.monotonic() < deadline, f"{wanted - self._changes()} changes are missing after {self.faults[-1:]}"
            time.sleep(0.02)  # nothing tells of answers but the history

    def _changes(self) -> int:
        return sum(one.code == 0 and one.kind in {"register", "delete"} for one in list(self.history))

    # ------------------------------------------------------------ the end

    def verdict(self) -> None:
        """End the clients, ask every node for all that there is, and demand that all of it holds and every fault hit requests."""
        self.__exit__()
        self.cluster.settle()
        for node in self.cluster:
            self.history += self._left(node)
        counts = {kind: sum(one.kind == kind and one.code == 0 for one in self.history) for kind in KINDS}
        unknown = sum(one.code is None for one in self.history)
        hits = {f"{at}: {name}": self._hit(instant) for at, (name, instant) in enumerate(self.faults, 1)}
        print(f"{len(self.history)} requests, {unknown} of unknown outcome, done {counts}")
        print(f"{FAULTS_HIT}{json.dumps(hits)}")
        found = list(violations(self.history))
        assert not found, found[:5]
        assert all(hits.values()), f"a fault hit nothing: {hits}"
        assert all(counts.values()), f"something was never done: {counts}"
        assert any(one.is_permanent and one.code == 0 for one in self.history), "nothing was removed"

    def _hit(self, instant: float) -> int:
        return sum(one.began <= instant + TAKES_EFFECT_S and instant <= one.ended for one in self.history)

    def _left(self, node: NodeProcess) -> Iterator[Asked]:
        chance = random.Random(self._seed)
        for subject in SCHEMAS:
            listed = self._asked(node, Asked(kind="list", subject=subject, with_deleted=True, began=0, ended=0), chance)
            yield listed
            for version in listed.answer or ():
                yield self._asked(node, Asked(kind="get", subject=subject, version=version, with_deleted=True, began=0, ended=0), chance)
        for id_ in range(1, self._newest[""] + 1):
            yield self._asked(node, Asked(kind="id", id=id_, began=0, ended=0), chance)


def _code(error: urllib.error.HTTPError) -> int | None:
    """Return what a refusal says, None where nobody knows what became of the request."""
    with error:
        try:
            code = json.loads(error.read())["error_code"]
        except (OSError, HTTPException):  # the node dies with half a sentence
            return None
    return None if code == UNKNOWN else int(code)


def _request(wanted: Asked, chance: random.Random) -> tuple[str, str, bytes | None]:
    """Return method, path and body of a request."""
    subject = f"/subjects/{wanted.subject}"
    words = f"?permanent={str(wanted.is_permanent).lower()}&deleted={str(wanted.with_deleted).lower()}"
    schema = body(spelled(wanted.schema, chance)) if wanted.schema else None
    return {
        "register": ("POST", f"{subject}/versions", schema),
        "look up": ("POST", subject, schema),
        "id": ("GET", f"/schemas/ids/{wanted.id}", None),
        "list": ("GET", f"{subject}/versions{words}", None),
        "get": ("GET", f"{subject}/versions/{wanted.version}{words}", None),
        "delete": ("DELETE", f"{subject}/versions/{wanted.version}{words}", None),
        "delete subject": ("DELETE", f"{subject}{words}", None),
    }[wanted.kind]


def _told(wanted: Asked, answer: Any) -> Asked:
    """Return a request with what it was answered."""
    match wanted.kind:
        case "register" | "look up":
            return replace(wanted, code=0, answer=answer["version"], id=answer["id"])
        case "get":
            return replace(wanted, code=0, answer=(answer["version"], meant(answer["schema"])), id=answer["id"])
        case "id":
            return replace(wanted, code=0, answer=meant(answer["schema"]))
        case "list" | "delete subject":
            return replace(wanted, code=0, answer=tuple(answer))
        case _:
            return replace(wanted, code=0, answer=answer)
