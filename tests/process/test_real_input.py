"""The history of a real source tree, loaded by the command line and compared with a replay that knows nothing of eventlog.

Uses `shared/data/kafka-tree-changes.jsonl.xz` beside the checkout: 96,092 changes, in the order of the history, as JSON lines.
"""

import json
import lzma
from pathlib import Path

import pytest

from tests.process.nodes import NodeProcess

FILE = Path(__file__).parents[3] / "shared" / "data" / "kafka-tree-changes.jsonl.xz"


def replay(file: Path) -> tuple[dict[str, dict], dict[str, list]]:
    """Return the end state, and what happened to each key in order: the twenty lines that everything is compared with."""
    state: dict[str, dict] = {}
    history: dict[str, list] = {}
    with lzma.open(file, "rt") as lines:
        for line in lines:
            row = json.loads(line)
            key, op = row["path"], row.pop("op")
            if op != "D":
                history.setdefault(key, []).append(("MODIFIED" if key in state else "CREATED", row))
                state[key] = row
            elif key in state:
                history[key].append(("REMOVED", None))
                del state[key]
    return state, history


@pytest.mark.timeout(300)
@pytest.mark.source
@pytest.mark.skipif(not FILE.exists(), reason=f"{FILE.name} is not beside this checkout")
def test_the_end_state_and_every_event_are_those_of_a_replay(tmp_path):
    state, history = replay(FILE)
    with NodeProcess(tmp_path) as node:
        words = ("load", "kafka-tree", str(FILE), "--create", "--key", "path", "--op", "op", "--delete-value", "D", "--json")
        summary = json.loads(node.command(*words).stdout)
        assert (summary["loaded"], summary["rejected"]) == (96_092, 0)
        assert summary["events"] == sum(map(len, history.values()))
        node.kill()
        node.start()
        assert {json.loads(line)["key"] for line in node.command("keys", "kafka-tree", "--json").stdout.splitlines()} == set(state)
        printed = node.command("consume", "kafka-tree").stdout.splitlines(keepends=True)
        found: dict[str, list] = {}
        last: dict[str, dict] = {}
        for line in printed:
            event = json.loads(line)
            found.setdefault(event["key"], []).append((event["kind"], event["value"]))
            last[event["key"]] = event["value"]
        assert found == history
        assert {key: value for key, value in last.items() if value is not None} == state
        middle = json.loads(printed[len(printed) // 2])["id_str"]
        rest = node.command("consume", "kafka-tree", "--from-id", middle).stdout.splitlines(keepends=True)
        assert rest == printed[len(printed) // 2 + 1 :]
        for key in list(state)[::500]:
            assert json.loads(node.command("get", "kafka-tree", key, "--json").stdout)["value"] == state[key]
