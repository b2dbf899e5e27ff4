"""Files of a node damaged while it is down, and what it then serves: `python -m tests.process.damage [SCENE ...] [PATTERN]`.

Every file that a data directory holds, and the metadata beside a node that is alone, meets every act: on one node and on one of three,
after kill -9 and after a clean stop. SCENE is one of one-kill, one-stop, three-kill, three-stop; PATTERN is searched in the name of a file
with that of an act (`MANIFEST|journal`). Exits with 1 if a node served less or other than what was acknowledged, or neither served nor
said why.

The data have three generations: loaded and killed, loaded and stopped, loaded and killed or stopped. So the first lies in tables that a
start made of a journal that is gone since, the second in those that a stop made, the state among them; a kill leaves the third in the
journal.
"""

import json
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import product
from os import W_OK, access
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import eventlog.blocking
from eventlog.errors import CorruptData, EventLogError, Unavailable
from tests.process.clusters import SETTLED_S, ClusterProcesses
from tests.process.nodes import NodeProcess

SEGMENTS = 16
PUTS = 900  # of a generation; a third of its keys are those of the one before
FRAME = 10
DAMAGED = 1  # the index of the node among three
SCENES = {"one-kill": (1, "kill"), "one-stop": (1, "stop"), "three-kill": (3, "kill"), "three-stop": (3, "stop")}
WHOLE, REFILLED = "whole", "refilled"
NAMED = ("CORRUPT_DATA", "LOST_DISK", "METADATA_LOST", "WRONG_CLUSTER", "UNSUPPORTED_FORMAT")
_ERROR = re.compile(r"^error: ([A-Z_]+): ", re.MULTILINE)
_FAMILY = re.compile(rb"name(log|state|meta)")  # among the properties at the end of a table
_EMPTY = ("LOG", "LOCK", "lock", "node.lock", "ballast")  # locks, RocksDB's diary, and room for a full disk: they say nothing


# ---------------------------------------------------------------- what is done to a file


Act = Callable[[Path, Path | None], None]  # the file, and one of its kind from the generation before, if there was any


def flipped(share: float) -> Act:
    """Flip a bit at that share of the file."""

    def act(file: Path, _: Path | None) -> None:
        data = bytearray(file.read_bytes())
        if data:
            data[int((len(data) - 1) * share)] ^= 0x10
        file.write_bytes(data)

    return act


def cut(nbytes: int) -> Act:
    """Cut the last bytes off."""

    def act(file: Path, _: Path | None) -> None:
        file.write_bytes(file.read_bytes()[:-nbytes])

    return act


def _halved(file: Path, _: Path | None) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def _emptied(file: Path, _: Path | None) -> None:
    file.write_bytes(b"")


def _removed(file: Path, _: Path | None) -> None:
    file.unlink()


def _lengthened(file: Path, _: Path | None) -> None:
    file.write_bytes(file.read_bytes() + bytes(range(256)))


def _made_older(file: Path, older: Path | None) -> None:
    if older is not None:
        shutil.copy(older, file)


ACTS: dict[str, Act] = {
    "flipped at its beginning": flipped(0.0),
    "flipped in its middle": flipped(0.5),
    "flipped near its end": flipped(0.97),
    "without its last byte": cut(1),
    "without its last 100 bytes": cut(100),
    "halved": _halved,
    "emptied": _emptied,
    "removed": _removed,
    "lengthened": _lengthened,
    "of the generation before": _made_older,
}


def files_of(node: Path) -> dict[str, Path]:
    """Return the files of a node that is down by a name that says their kind, numbered from the oldest where there are several."""
    found: dict[str, list[Path]] = {}
    for file in sorted(file for file in node.rglob("*") if file.is_file() and not file.name.startswith(_EMPTY)):
        found.setdefault(_kind_of(file), []).append(file)
    return {
        kind if len(files) == 1 else f"{kind} {number}": file for kind, files in found.items() for number, file in enumerate(files, start=1)
    }


def _kind_of(file: Path) -> str:
    if file.suffix == ".sst":
        families = _FAMILY.findall(file.read_bytes())
        return f"{families[-1].decode()} table" if families else "table"
    if file.suffix == ".log":
        return "journal"
    return file.name.split("-")[0] if file.name.startswith(("MANIFEST", "OPTIONS")) else file.name


def _has_journal(node: NodeProcess) -> bool:
    return any(file.stat().st_size for file in node.data.rglob("*.log"))


def _without_number(name: str) -> str:
    return name.rstrip(" 0123456789")


# ---------------------------------------------------------------- the nodes, and what they must have


class Lost(AssertionError):
    """Something was served that is less or other than what was acknowledged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """What is read of the cache: its events as `(id, key, value)` by segment, in order, and its entries."""

    events: dict[int, list[tuple[int, str | bytes, Any]]]
    entries: dict[str | bytes, Any]


class Scene:
    """One node or three, down, with three generations of data. `trial` damages a file and starts them; then all is as it was.

    Directories are copied whole, so no trial sees what another left.
    """

    def __init__(self, directory: Path, *, count: int, end: str) -> None:
        self.directory = directory
        self.cluster = ClusterProcesses(directory / "nodes", count=count, segments=SEGMENTS)
        self.files: dict[str, Path] = {}
        self._end = end
        self._before, self._last = directory / "before", directory / "last"
        self._older: dict[str, Path] = {}
        self._wanted = Holding(events={}, entries={})

    def __enter__(self) -> Self:
        with ExitStack() as undo:
            undo.push(self.cluster)
            self._prepare()
            undo.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.cluster.__exit__(kind, error, trace)

    def trial(self, file: str, act: str) -> str:
        """Return what became of a damaged file: `whole`, `refilled`, `refused` or `read` with the error's code; nothing if it is as it was.

        Raises:
            Lost: less was served, or something else.
        """
        self._put_back()
        damaged = self.cluster.directory / self.files[file]
        before = damaged.read_bytes()
        ACTS[act](damaged, self._older_than(before, file))
        if damaged.exists() and damaged.read_bytes() == before:
            return ""
        try:
            return self._outcome()
        finally:
            self._kill()

    def largest(self, kind: str) -> str:
        """Return the name of the largest file of a kind: how many there are varies, and which of them hold anything."""
        return max((name for name in self.files if _without_number(name) == kind), key=self._size_of)

    def _size_of(self, name: str) -> int:
        return (self._last / self.files[name]).stat().st_size

    # ------------------------------------------------------------ before

    def _prepare(self) -> None:
        cluster = self.cluster
        cluster.start()
        cluster.settle()
        cluster.command("cache", "create", "c")
        for generation, end in enumerate(("kill", "stop", self._end)):
            if generation:
                cluster.restart_all()
                cluster.settle()
            self._put(generation * PUTS * 2 // 3)
            while not all(map(_has_journal, cluster)):  # it was just written out into tables
                self._put(generation * PUTS * 2 // 3)
            self._wanted = read(cluster[0])
            for node in cluster:
                node.kill() if end == "kill" else node.stop()
            if generation:
                self._keep(self._before if generation == 1 else self._last)
        own = f"n{min(DAMAGED, len(cluster.nodes) - 1) + 1}"
        self.files = {name: file.relative_to(self._last) for name, file in files_of(self._last / own / "data").items()}
        self._older = files_of(self._before / own / "data")
        if len(cluster.nodes) == 1:
            self.files |= {name: file.relative_to(self._last) for name, file in files_of(self._last / "meta").items()}
            self._older |= files_of(self._before / "meta")

    def _put(self, first: int) -> None:
        with eventlog.blocking.connect(self.cluster[0].address) as client:
            cache = client.cache("c")
            for at in range(first, first + PUTS, FRAME):
                cache.put_many([(f"key-{number}", {"first": first, "value": number}) for number in range(at, at + FRAME)])
            cache.remove(f"key-{first}")

    def _keep(self, place: Path) -> None:
        for folder in self._folders(self.cluster.directory):
            shutil.copytree(folder, place / folder.relative_to(self.cluster.directory))

    def _older_than(self, content: bytes, name: str) -> Path | None:
        """Return a file of that kind from the generation before, with another content; the one of the same name if it has."""
        kind = _without_number(name)
        found = sorted((other != name, other) for other in self._older if _without_number(other) == kind)
        return next((self._older[other] for _, other in found if self._older[other].read_bytes() != content), None)

    def _put_back(self) -> None:
        for folder in self._folders(self._last):
            place = self.cluster.directory / folder.relative_to(self._last)
            shutil.rmtree(place)
            shutil.copytree(folder, place)

    def _folders(self, directory: Path) -> list[Path]:
        return [directory / "meta", *(directory / node.directory.name / "data" for node in self.cluster)]

    # ------------------------------------------------------------ after

    def _kill(self) -> None:
        for node in self.cluster:
            if node.is_running:
                node.kill()

    def _outcome(self) -> str:
        return self._outcome_among_three() if len(self.cluster.nodes) > 1 else self._outcome_alone()

    def _outcome_alone(self) -> str:
        node = self.cluster[0]
        refusal = start(node)
        if refusal:
            if start(node) != refusal:
                raise Lost(f"refused first ({refusal}), and not any more at the next start")
            return f"refused {refusal}"
        found = self._look(node)
        node.kill()
        again = start(node)
        if again and found == WHOLE:
            raise Lost(f"whole first, and refused at the next start ({again})")
        return f"{found}, then {again}" if again else f"{found}, then {after}" if (after := self._look(node)) != found else found

    def _outcome_among_three(self) -> str:
        node, others = self.cluster[DAMAGED], [other for at, other in enumerate(self.cluster) if at != DAMAGED]
        before, incarnation = len(node.log_text()), _incarnation(self._last / node.directory.name / "data")
        for other in others:
            other.spawn()
        refusal = start(node)
        for other in others:
            other.wait_ready()
        if refusal:
            self._look_until(lambda: self._look(others[0]) == WHOLE)
            return f"refused {refusal}"
        self._look_until(lambda: self._look(node) == WHOLE and (self._is_settled() or _is_unreadable(node, since=before)))
        if not self._are_equal() and _is_unreadable(node, since=before):  # it goes on without the file, and is filled by its next start
            node.stop()
            if start(node):
                raise Lost("a file could not be read, and others do not fill the node")
            self._look_until(lambda: self._look(node) == WHOLE and self._is_settled())
        if not self._are_equal():
            raise Lost("the copies differ")
        return REFILLED if _incarnation(node.data) != incarnation else WHOLE

    def _are_equal(self) -> bool:
        return b"all equal" in self.cluster.command("admin", "rebalance", "verify", ok=False).stdout

    def _is_settled(self) -> bool:
        found = self.cluster.status()
        return found.health == "ok" and found.nodes_live == len(self.cluster.nodes)

    def _look_until(self, holds: Callable[[], bool]) -> None:
        """Have a reader ask for whatever there is, all the time until it is as it must be: each time it gets everything, or an error."""
        deadline = time.monotonic() + SETTLED_S
        while not holds():
            if time.monotonic() > deadline:
                raise Lost(f"it does not settle: {self.cluster.status()}")

    def _look(self, node: NodeProcess, *, must_be: str = "") -> str:
        """Return whether a reader at a node gets everything, or the code of the error it gets instead."""
        try:
            found = read(node, wanted=self._wanted)
        except CorruptData as error:
            outcome = f"read {error.code}"
        except Unavailable as error:
            if not must_be and len(self.cluster.nodes) > 1:
                return error.code
            raise Lost(f"a reader waits in vain: {error}") from error
        else:
            compare(found, self._wanted)
            outcome = WHOLE
        if must_be and outcome != must_be:
            raise Lost(f"{outcome}, and others have everything")
        return outcome


def start(node: NodeProcess) -> str:
    """Start a node that is down; return the code of the error with which it ended instead of serving.

    Raises:
        Lost: it ended without naming one of those that tell of damage.
    """
    before = len(node.log_text())
    node.spawn()
    try:
        node.wait_ready()
    except AssertionError:
        if node.is_running:
            raise Lost(f"neither ready nor ended: {node.log_text()[before:][-2000:]}") from None
        code = node.wait()
        said: list[str] = _ERROR.findall(node.log_text()[before:])
        if code != 1 or not said or said[-1] not in NAMED:
            raise Lost(f"it ended with {code}: {node.log_text()[before:][-2000:]}") from None
        return said[-1]
    return ""


def _incarnation(data: Path) -> str:
    """Return as whom a node comes back; it is another where it lost something."""
    return str(json.loads((data / "member.json").read_text())["incarnation"])


def _is_unreadable(node: NodeProcess, *, since: int) -> bool:
    return "store_unreadable" in node.log_text()[since:]


def read(node: NodeProcess, *, wanted: Holding | None = None) -> Holding:
    """Read a cache at a node: its events, its entries by one listing and by their keys, and how many there are.

    Raises:
        Lost: what was read until an error is not what is wanted, or the entries do not agree with each other.
        EventLogError: what the node said.
    """
    events: dict[int, list[tuple[int, str | bytes, Any]]] = {}
    with eventlog.blocking.connect(node.address) as client:
        cache = client.cache("c")
        try:
            for event in cache.events(on_stalled="error"):
                events.setdefault(event.segment, []).append((event.id, event.key, event.value))
        except EventLogError:
            if wanted is not None and any(own != wanted.events[segment][: len(own)] for segment, own in events.items()):
                raise Lost("events are left out before the error") from None
            raise
        entries = {key: entry.value for key, entry in cache.entries()}
        keys = list(wanted.entries if wanted else entries)
        if [entry and entry.value for entry in cache.get_many(keys)] != [entries.get(key) for key in keys]:
            raise Lost("keys have other entries than the listing")
        if (size := cache.size()) != len(entries):
            raise Lost(f"{len(entries)} entries are listed, and their number is {size}")
    return Holding(events=events, entries=entries)


def compare(found: Holding, wanted: Holding) -> None:
    """Refuse anything else than what is wanted. Raises Lost."""
    if found.events != wanted.events:
        count, of = (sum(map(len, held.events.values())) for held in (found, wanted))
        raise Lost(f"{count} of {of} events are served, or others")
    if found.entries != wanted.entries:
        raise Lost(f"{len(found.entries)} of {len(wanted.entries)} entries are served, or others")


# ---------------------------------------------------------------- all of it


def run(name: str, pattern: str) -> Iterator[tuple[str, str]]:
    """Try every act on every file of a scene, where the pattern is found; print and yield what became of each."""
    count, end = SCENES[name]
    with scratch() as place, Scene(place, count=count, end=end) as scene:
        for file, act in product(scene.files, ACTS):
            if not re.search(pattern, f"{file} {act}"):
                continue
            began = time.monotonic()
            try:
                outcome = scene.trial(file, act)
            except Lost as error:
                outcome = f"LOST: {error}"
            if not outcome:
                continue
            print(f"{name}: {file} {act}: {outcome} ({time.monotonic() - began:.1f} s)", flush=True)
            yield f"{name}: {file} {act}", outcome


def main() -> int:
    patterns = [word for word in sys.argv[1:] if word not in SCENES]
    names = [word for word in sys.argv[1:] if word in SCENES] or list(SCENES)
    outcomes = [row for name in names for row in run(name, "|".join(patterns))]
    lost = [f"{case}: {outcome}" for case, outcome in outcomes if outcome.startswith("LOST")]
    print(*(f"{number:5} {outcome}" for outcome, number in Counter(outcome for _, outcome in outcomes).most_common()), sep="\n")
    print(f"trials {len(outcomes)}, violations {len(lost)}", *lost, sep="\n  ")
    return int(bool(lost) or not outcomes)


class scratch:  # noqa: N801 - read as a function
    """A folder in memory where there is one: some hundred stores are opened here, and none needs to outlive a power cut."""

    def __enter__(self) -> Path:
        self._folder = tempfile.TemporaryDirectory(prefix="eventlog-damage-", dir="/dev/shm" if access("/dev/shm", W_OK) else None)
        return Path(self._folder.name)

    def __exit__(self, *_: object) -> None:
        self._folder.cleanup()


if __name__ == "__main__":
    sys.exit(main())
