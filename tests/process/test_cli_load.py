"""`eventlog load` and `consume` against a real node, compared with a replay by a few independent lines."""

import gzip
import json
import lzma
import os
import pty
import random
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cramjam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.process.cli_ends import PROGRAM, Shell, running_node


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_node(tmp_path_factory.mktemp("node")) as found:
        yield found


def changes(count: int, *, seed: int) -> list[dict[str, Any]]:
    """Return rows with an operation: A adds, M changes, D removes, sometimes what is not there."""
    chance = random.Random(seed)
    return [
        {
            "op": chance.choices("AMD", [5, 3, 2])[0],
            "path": f"dir/{chance.randrange(count // 4)}",
            "size": number,
            "text": "ä" * chance.randrange(9),
        }
        for number in range(count)
    ]


def replayed(rows: list[dict[str, Any]]) -> tuple[dict[str, Any], list[tuple[str, Any]]]:
    """Return the end state, and key and value of every event, by key."""
    state: dict[str, Any] = {}
    events: list[tuple[str, Any]] = []
    for row in rows:
        value = {name: field for name, field in row.items() if name != "op"}
        if row["op"] == "D":
            if state.pop(row["path"], None) is None:
                continue
            events.append((row["path"], None))
        else:
            state[row["path"]] = value
            events.append((row["path"], value))
    return state, events


def by_key(events: list[tuple[str, Any]]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for key, value in events:
        found.setdefault(key, []).append(value)
    return found


@pytest.mark.parametrize(
    ("cache", "pack"),
    [("plain", bytes), ("gz", gzip.compress), ("xz", lzma.compress), ("zst", lambda data: bytes(cramjam.zstd.compress(data)))],
)
def test_a_packed_history_of_changes_ends_in_the_state_of_its_replay(shell: Shell, tmp_path: Path, cache: str, pack: Any) -> None:
    rows = changes(6_000, seed=len(cache))
    path = tmp_path / f"changes.jsonl.{cache}"
    path.write_bytes(pack("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()))
    loaded = shell.ok("load", cache, str(path), "--create", "--key", "path", "--op", "op", "--delete-value", "D", "--json").row
    state, events = replayed(rows)
    assert (loaded["loaded"], loaded["events"], loaded["rejected"]) == (6_000, len(events), 0)
    assert loaded["first_id_str"] == str(loaded["first_id"])
    seen = shell.ok("consume", cache, "--json").rows
    assert [row["id"] for row in seen] == sorted({row["id"] for row in seen})
    assert (seen[0]["id"], seen[-1]["id"]) == (loaded["first_id"], loaded["last_id"])
    assert by_key([(row["key"], row["value"]) for row in seen]) == by_key(events)
    assert {row["key"] for row in shell.ok("keys", cache, "--json").rows} == set(state)
    some = random.Random(1).sample(sorted(state), 3)
    assert [shell.ok("get", cache, key, "--json").row["value"] for key in some] == [state[key] for key in some]
    middle = seen[len(seen) // 2]["id"]
    assert shell.ok("consume", cache, "--from-id", str(middle), "--json").rows == seen[len(seen) // 2 + 1 :]
    assert shell.ok("consume", cache, "--from-id", str(middle), "--until-id", str(seen[-2]["id"])).rows == seen[len(seen) // 2 + 1 : -1]


def test_a_bad_line_stops_it_with_everything_before_it_written(shell: Shell) -> None:
    lines = [b'{"k":"%d"}' % number for number in range(2_500)]
    lines[1_700] = b'{"k":'
    done = shell.run("load", "stops", "-", "--create", "--key", "k", "--json", given=b"\n".join(lines))
    assert done.code == 1
    assert (done.row["loaded"], done.row["rejected"]) == (1_700, 1)
    assert done.err.startswith("error: BAD_ROW: stdin line 1701: not JSON")
    assert done.err.count("\n") == 1
    assert shell.ok("size", "stops").out == "1700\n"


def test_bad_lines_up_to_the_limit_are_reported_by_number(shell: Shell) -> None:
    done = shell.run(
        "load", "goes-on", "-", "--create", "--key", "k", "--max-errors", "2", "--json", given=b'{"k":"a"}\n[]\n{"k":"b"}\nx\n{"k":"c"}\n'
    )
    assert done.code == 0
    assert (done.row["loaded"], done.row["rejected"]) == (3, 2)
    assert [line.split(":")[1].strip() for line in done.err.splitlines()] == ["stdin line 2", "stdin line 4"]


def test_keys_of_bytes_go_where_the_cache_takes_them_and_are_bad_rows_elsewhere(shell: Shell, tmp_path: Path) -> None:
    path = str(tmp_path / "rows.parquet")
    pq.write_table(pa.table({"k": [b"a", b"\xff\x00", b"b"]}), path)
    shell.ok("cache", "create", "text-keys")
    done = shell.run("load", "text-keys", path, "--key", "k", "--json")
    assert (done.code, done.row["loaded"], done.row["rejected"]) == (1, 1, 1)
    assert done.err.startswith("error: BAD_ROW: rows.parquet line 2: field 'k' for the key holds bytes that are not UTF-8")
    done = shell.run("load", "text-keys", path, "--key", "k", "--max-errors", "1", "--json")
    assert (done.code, done.row["loaded"], done.row["rejected"]) == (0, 2, 1)
    shell.ok("cache", "create", "bytes-keys", "--key-format", "bytes")
    assert shell.ok("load", "bytes-keys", path, "--key", "k", "--json").row["loaded"] == 3


def test_lines_of_key_and_value_are_loaded_and_printed_alike(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "pairs.txt"
    path.write_bytes(b'a:{"n": 1}\nb:"x:y"\na:2\nb:\n')
    done = shell.ok("load", "pairs", str(path), "--create", "--key-separator", r"\x3a", "--delete-value", "", "--json")
    assert (done.row["loaded"], done.row["events"]) == (4, 4)
    printed = shell.ok("consume", "pairs", "--output-format", r"%k:%v\n").out
    assert by_first_letter(printed) == by_first_letter(path.read_text())
    shell.ok("load", "pairs-again", "-", "--create", "--key-separator", r"\x3a", "--delete-value", "", given=printed.encode())
    assert by_first_letter(shell.ok("consume", "pairs-again", "--output-format", r"%k:%v\n").out) == by_first_letter(printed)


def by_first_letter(lines: str) -> list[str]:
    """Return lines in the order of their first letters, those with the same one as they stand: two keys have no order in one write."""
    return sorted(lines.splitlines(), key=lambda line: line[0])


def test_a_line_without_the_separator_is_rejected_with_its_number(shell: Shell) -> None:
    shell.ok("cache", "create", "lines")
    done = shell.run("put", "lines", "--key-separator", ":", "--json", given=b"a:1\nb 2\nc:3\n")
    assert (done.code, done.row["loaded"], done.row["rejected"]) == (1, 1, 1)
    assert done.err == "error: BAD_ROW: stdin line 2: the line has no ':', which stands between key and value\n"
    done = shell.run("load", "lines", "-", "--key-separator", ":", "--max-errors", "1", "--json", given=b"a:1\nb 2\nc:3\n")
    assert (done.code, done.row["loaded"], done.row["rejected"]) == (0, 2, 1)
    assert done.err.startswith("rejected: stdin line 2: ")


@pytest.mark.parametrize(
    ("words", "code", "start"),
    [
        (["load", "x", "missing.jsonl", "--key", "k"], 2, "error: USAGE: "),
        (["load", "x", "-"], 2, "error: USAGE: "),
        (["load", "x", "-", "--key", "k", "--op", "o"], 2, "error: USAGE: "),
        (["load", "x", "-", "--key", "k", "--op", "k", "--delete-value", "D"], 2, "error: USAGE: "),
        (["load", "no-such", "-", "--key", "k"], 1, "error: CACHE_NOT_FOUND: "),
    ],
)
def test_wrong_usage_of_load_is_one_line(shell: Shell, words: list[str], code: int, start: str) -> None:
    done = shell.run(*words, given=b'{"k":"a"}\n')
    assert done.code == code
    assert done.err.startswith(start)
    assert done.err.count("\n") == 1


# ------------------------------------------------------------------ consume


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_following_prints_each_event_as_it_happens_and_its_end_says_where_to_resume(
    shell: Shell, number: signal.Signals, code: int
) -> None:
    live = f"live-{code}"
    shell.ok("cache", "create", live)
    first = shell.ok("put", live, "a", "1", "--json").row["id"]
    follower = shell.start("consume", live, "--follow")
    assert follower.stdout is not None
    assert json.loads(follower.stdout.readline())["id"] == first
    for value in range(3):
        stored = shell.ok("put", live, "a", str(value), "--json").row["id"]
        assert json.loads(follower.stdout.readline())["id"] == stored
    follower.send_signal(number)
    _, err = follower.communicate(timeout=60)
    assert follower.returncode == code
    resume = int(err.decode().removeprefix("interrupted; resume with: --from-id "))
    assert resume >= stored
    assert shell.ok("consume", live, "--from-id", str(resume)).out == ""
    later = shell.ok("put", live, "b", "1", "--json").row["id"]
    assert [row["id"] for row in shell.ok("consume", live, "--from-id", str(resume)).rows] == [later]


def test_latest_follows_from_now_on(shell: Shell) -> None:
    shell.ok("cache", "create", "now")
    shell.ok("put", "now", "old", "1")
    follower = shell.start("consume", "now", "--from-id", "latest", "--max", "1")
    keys: list[str] = []
    while follower.poll() is None and len(keys) < 100:  # it may begin between any two of these
        keys.append(f"new-{len(keys)}")
        shell.ok("put", "now", keys[-1], "1")
    out, _ = follower.communicate(timeout=60)
    assert follower.returncode == 0
    assert json.loads(out)["key"] in keys


def test_a_reader_that_closes_its_end_ends_it_quietly(shell: Shell) -> None:
    shell.ok("load", "piped", "-", "--create", "--key", "k", given=b"".join(b'{"k":"%d"}\n' % n for n in range(50_000)))
    line = f"{' '.join(PROGRAM)} consume piped | head -1; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], capture_output=True, env=shell.environment, timeout=60, check=True)
    first, code = done.stdout.splitlines()
    assert json.loads(first)["kind"] == "CREATED"
    assert (code, done.stderr) == (b"0", b"")


def test_a_reader_that_closes_its_end_ends_it_while_nothing_happens_too(shell: Shell) -> None:
    shell.ok("load", "idle", "-", "--create", "--key", "k", given=b'{"k":"a"}\n')
    follower = shell.start("consume", "idle", "--follow")
    assert follower.stdout is not None
    assert json.loads(follower.stdout.readline())["key"] == "a"
    follower.stdout.close()
    assert follower.wait(timeout=60) == 0
    assert follower.stderr is not None
    with follower.stderr as told:
        assert told.read() == b""


def test_a_position_file_goes_on_where_it_stopped_even_after_kill(shell: Shell, tmp_path: Path) -> None:
    rows = b"".join(b'{"k":"%d"}\n' % number for number in range(3_000))
    shell.ok("load", "kept", "-", "--create", "--key", "k", given=rows)
    file = str(tmp_path / "position")
    seen = [row["id"] for row in shell.ok("consume", "kept", "--position-file", file, "--max", "10").rows]
    follower = shell.start("consume", "kept", "--position-file", file, "--follow")
    assert follower.stdout is not None
    seen += [json.loads(follower.stdout.readline())["id"] for _ in range(2_990)]
    token = Path(file).read_text()
    deadline = time.monotonic() + 60
    while Path(file).read_text() == token and time.monotonic() < deadline and follower.poll() is None and len(seen) < 3_000:
        time.sleep(0.01)
    os.kill(follower.pid, signal.SIGKILL)
    follower.communicate()
    assert len(set(seen)) == 3_000
    more = shell.ok("put", "kept", "more", "1", "--json").row["id"]
    rest = [row["id"] for row in shell.ok("consume", "kept", "--position-file", file).rows]
    assert rest[-1] == more
    assert set(rest[:-1]) <= set(seen)


def test_a_position_of_a_dropped_cache_is_refused(shell: Shell, tmp_path: Path) -> None:
    file = str(tmp_path / "position")
    for _ in range(2):
        shell.ok("cache", "create", "again")
        shell.ok("put", "again", "a", "1")
        done = shell.run("consume", "again", "--position-file", file)
        if done.code == 0:
            shell.ok("cache", "drop", "again", "--yes")
    assert done.code == 1
    assert done.err.startswith(("error: CACHE_RECREATED: ", "error: POSITION_MISMATCH: "))


def test_segments_alone(shell: Shell) -> None:
    rows = b"".join(b'{"k":"%d"}\n' % number for number in range(1_000))
    shell.ok("load", "parts", "-", "--create", "--key", "k", given=rows)
    low = shell.ok("consume", "parts", "--segments", "0-99").rows
    high = shell.ok("consume", "parts", "--segments", "100-255").rows
    assert {row["segment"] for row in low} <= set(range(100))
    assert len(low) + len(high) == 1_000
    assert shell.run("consume", "parts", "--segments", "256").code == 1


def test_a_position_of_some_segments_passes_over_no_others(shell: Shell, tmp_path: Path) -> None:
    rows = b"".join(b'{"k":"%d"}\n' % number for number in range(1_000))
    shell.ok("load", "halves", "-", "--create", "--key", "k", given=rows)
    file = str(tmp_path / "position")
    low = shell.ok("consume", "halves", "--segments", "0-99", "--position-file", file).rows
    done = shell.run("consume", "halves", "--segments", "100-255", "--position-file", file)
    assert (done.code, done.out) == (1, ""), "they were not read, so nobody knows where to go on"
    assert "does not hold all segments" in done.err
    added = b"".join(b'{"k":"more-%d"}\n' % number for number in range(1_000))
    shell.ok("load", "halves", "-", "--key", "k", given=added)
    rest = shell.ok("consume", "halves", "--position-file", file).rows
    assert {row["segment"] for row in low + rest} == set(range(100))
    assert all(row["key"].startswith("more-") for row in rest)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_loading_that_is_ended_says_how_far_it_came(shell: Shell, number: signal.Signals, code: int) -> None:
    cache = f"partly-{code}"
    shell.ok("cache", "create", cache)
    before = signal.signal(number, signal.SIG_DFL)  # what is ignored here, as SIGHUP is under nohup, the loader would ignore as well
    try:
        loader = subprocess.Popen(
            [*PROGRAM, "load", cache, "-", "--key", "k", "--json"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=shell.environment,
        )
    finally:
        signal.signal(number, before)
    assert loader.stdin is not None
    loader.stdin.write(b"".join(b'{"k":"%d"}\n' % number for number in range(1_500)))
    loader.stdin.flush()
    deadline = time.monotonic() + 60
    while shell.ok("size", cache).out != "1500\n":
        assert time.monotonic() < deadline
    loader.send_signal(number)
    out, err = loader.communicate(timeout=60)
    assert loader.returncode == code
    assert json.loads(out)["loaded"] == 1_500
    assert err == b"interrupted; rows up to line 1500 are written, go on after it\n"


def test_a_terminal_sees_progress_and_a_rate(shell: Shell, tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b"".join(b'{"k":"%d","pad":"%s"}\n' % (number, b"x" * 200) for number in range(200_000)))
    shell.ok("cache", "create", "shown")
    terminal, end = pty.openpty()
    loader = subprocess.Popen(
        [*PROGRAM, "load", "shown", str(path), "--key", "k"], stdout=subprocess.DEVNULL, stderr=end, env=shell.environment
    )
    os.close(end)
    shown = b""
    while True:
        try:
            data = os.read(terminal, 65536)
        except OSError:  # what Linux says when the other end is closed
            break
        if not data:
            break
        shown += data
    os.close(terminal)
    assert loader.wait(60) == 0
    assert re.search(rb"load rows.jsonl  \[#+\.*\] +\d+%  [\d,]+ rows  [\d,]+/s", shown)
    assert shown.endswith(b"\r")


@pytest.mark.parametrize(
    ("cache", "words", "line"),
    [("trickle", ["load", "trickle", "-", "--key", "k"], b'{"k":"%d"}\n'), ("drip", ["put", "drip", "--key-separator", ":"], b"%d:\n")],
)
def test_rows_from_a_pipe_are_written_as_they_come(shell: Shell, cache: str, words: list[str], line: bytes) -> None:
    shell.ok("cache", "create", cache, *(["--format", "bytes"] if cache == "drip" else []))
    loader = subprocess.Popen([*PROGRAM, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=shell.environment)
    assert loader.stdin is not None
    for number in range(3):
        loader.stdin.write(line % number)
        loader.stdin.flush()
        deadline = time.monotonic() + 60
        while shell.ok("size", cache).out != f"{number + 1}\n":
            assert time.monotonic() < deadline
    out, _ = loader.communicate(timeout=60)
    assert out.startswith(b"loaded 3 rows as 3 events in ")
