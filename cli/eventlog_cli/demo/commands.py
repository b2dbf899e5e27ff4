"""Commands to paste after the demo: real ids, the node's own address, and the program as it was called."""

import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from eventlog_cli.conventions import SERVER_DEFAULT
from eventlog_cli.demo.process import NodeProcess


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What the demo has seen: a cache, a key with an entry, an id in the middle of its log and its last one."""

    cache: str
    key: str
    middle_id: int
    last_id: int


def commands_to_try(known: Known, node: NodeProcess, *, start: Path | None) -> list[str]:
    """Return six commands to `node` that work one after the other; the first runs the script `start`, if the nodes do not run."""
    program = program_words()
    server = () if node.address == SERVER_DEFAULT else ("--server", node.address)
    status = ("admin", "status", *server)
    reading = ("consume", known.cache, *server, "--from-id")
    first = [(*program, *status), (*program, "id", "decode", str(known.middle_id))]
    if start is not None:
        first = [("sh", str(start)), (*program, *status, "--wait", "30s")]
    rest = [
        (*program, "get", known.cache, known.key, *server),
        (*program, *reading, str(known.middle_id), "--max", "3"),
        (*program, "put", known.cache, known.key, '{"written by": "me"}', *server),
        (*program, *reading, str(known.last_id)),
    ]
    return [shlex.join(words) for words in first + rest]


def program_words() -> tuple[str, ...]:
    """Return how this program can be called again from here."""
    called = Path(sys.argv[0])
    if called.name != "eventlog" or not called.exists():
        return sys.executable, "-m", "eventlog_cli"
    found = shutil.which("eventlog")
    return ("eventlog",) if found is not None and Path(found).samefile(called) else (str(called),)
