"""What the demo loads, and the commands it ends with. Clock changes are compared with what Python's own reader of these files says."""

import gzip
import shlex
import signal
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from importlib.resources import files
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import InvalidArgument
from eventlog_cli.demo.cluster import LISTEN_DEFAULT, Cluster, Known, NodeProcess, commands_to_try, program_words
from eventlog_cli.demo.command import command
from eventlog_cli.demo.input import KEY_NAMES, BadZoneFile, clock_changes, parse_zone, rows_of_file, time_zones


def test_the_clock_changes_are_rows_in_batches() -> None:
    given = time_zones()
    assert given.rows > 20_000
    assert sum(len(batch.values) for batch in given.batches()) == given.rows
    assert b"Europe/Berlin" in {key for batch in given.batches() for key in batch.keys}


@pytest.mark.parametrize("name", KEY_NAMES)
def test_the_key_of_a_file_is_guessed_from_the_usual_names(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(f'{{"other":1,"{name}":"a"}}\n{{"{name}":"b"}}\nbad\n')
    given = rows_of_file(str(path), key=None)
    assert [key for batch in given.batches() for key in batch.keys] == [b"a", b"b"]


def test_a_key_that_cannot_be_guessed_must_be_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"user":"a"}\n')
    with pytest.raises(InvalidArgument, match="--key"):
        rows_of_file(str(path), key=None)
    with pytest.raises(InvalidArgument, match="--key"):
        rows_of_file(str(path), key="wrong")
    assert rows_of_file(str(path), key="user").rows == 1


def test_a_large_file_is_read_up_to_a_limit(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"key":"{number}"}}\n' for number in range(4_000)))
    given = rows_of_file(str(path), key=None, rows_max=1_500)
    assert given.rows == 1_500
    assert given.title == f"the first 1,500 rows of {path}, keyed by 'key'"


def test_rows_that_are_left_out_are_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"key":"a"}\n[1]\n{"key":null}\n')
    title = rows_of_file(str(path), key=None).title
    assert title == f"{path}, keyed by 'key', but 2 refused rows (line 2: the line is a list, not an object)"


@pytest.mark.parametrize("key", [None, "key"])
def test_a_damaged_file_is_named_as_such(tmp_path: Path, key: str | None) -> None:
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"key":"a"}\n')[:12])
    with pytest.raises(InvalidArgument, match=r"\(line 1: the file is cut short or damaged"):
        rows_of_file(str(path), key=key)


def test_a_key_without_a_file_and_a_directory_with_files_are_refused(tmp_path: Path) -> None:
    (tmp_path / "mine").touch()
    for words, why in ((["--key", "k"], "--key is about the rows of --input"), (["--data", str(tmp_path)], "is not empty")):
        refused = CliRunner().invoke(command, words)
        assert refused.exit_code == 2
        assert why in refused.stderr


KNOWN = Known(cache="rows", key="it's a key", middle_id=5, last_id=9)


def node(tmp_path: Path, address: str) -> NodeProcess:
    return NodeProcess(tmp_path, "n1", listen=address, http="127.0.0.1:1")


def test_there_are_six_commands_with_the_ids_in_them_and_the_first_starts_a_stopped_node(tmp_path: Path) -> None:
    running = commands_to_try(KNOWN, node(tmp_path, "127.0.0.1:5"), start=None)
    stopped = commands_to_try(KNOWN, node(tmp_path, "127.0.0.1:5"), start=tmp_path / "start")
    assert len(running) == len(stopped) == 6
    assert stopped[0] == f"sh {tmp_path / 'start'}"
    assert "start" not in " ".join(running)
    for commands in (running, stopped):
        assert any("--from-id 5" in line for line in commands)
        assert "it's a key" in shlex.split(next(line for line in commands if " get " in line))
        assert commands[-1].endswith("--from-id 9")


def test_the_default_address_needs_no_option(tmp_path: Path) -> None:
    assert not any("--server" in line for line in commands_to_try(KNOWN, node(tmp_path, LISTEN_DEFAULT), start=None))
    lines = commands_to_try(KNOWN, node(tmp_path, "127.0.0.1:5"), start=None)
    assert [("--server 127.0.0.1:5" in line) for line in lines] == [True, False, True, True, True, True]


def test_the_scripts_start_every_node_with_its_own_name_and_stop_those_that_run(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, count=1, listen="127.0.0.1:5")
    cluster.nodes.append(NodeProcess(tmp_path, "n2", listen="127.0.0.1:6", http="127.0.0.1:2"))
    start, stop = cluster.write_scripts(("eventlog",))
    lines = [shlex.split(line) for line in start.read_text().splitlines()]
    assert [line[line.index("--node-name") + 1] for line in lines] == ["n1", "n2"]
    assert [line[line.index("--listen") + 1] for line in lines] == ["127.0.0.1:5", "127.0.0.1:6"]
    assert [line[-1] for line in lines] == [f">{tmp_path / name}.pid" for name in ("n1", "n2")]
    assert f"{tmp_path}/*.pid" in stop.read_text()


def test_the_script_that_stops_nodes_ends_each_once_and_nothing_where_none_runs(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, count=1, listen="127.0.0.1:5")
    _, stop = cluster.write_scripts(("eventlog",))
    sleeping = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    for number, child in enumerate(sleeping):
        (tmp_path / f"n{number}.pid").write_text(f"{child.pid}\n")
    with subprocess.Popen(["sh", str(stop)]) as stopping:
        assert [child.wait(30) for child in sleeping] == [-signal.SIGTERM] * 2
        assert stopping.wait(30) == 0
    again = subprocess.run(["sh", str(stop)], capture_output=True, timeout=30, check=True)
    assert again.stderr == b""
    (tmp_path / "n1.pid").write_text("1\n")
    cluster.stop()
    assert not list(tmp_path.glob("*.pid"))


def test_the_scripts_find_the_program_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    start, _ = Cluster(tmp_path, count=1, listen="127.0.0.1:5").write_scripts((".venv/bin/eventlog",))
    assert shlex.split(start.read_text())[0] == str(tmp_path / ".venv/bin/eventlog")


def test_the_program_is_called_as_it_can_be_called_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "eventlog"
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(program.parent))
    assert program_words(str(program)) == ("eventlog",)
    monkeypatch.setenv("PATH", "/nowhere")
    assert program_words(str(program)) == (str(program),)
    assert program_words("pytest") == (sys.executable, "-m", "eventlog_cli")


ZONES = files("tzdata") / "zoneinfo"
BERLIN = (ZONES / "Europe" / "Berlin").read_bytes()


def test_there_are_tens_of_thousands_of_changes_oldest_first() -> None:
    changes = clock_changes()
    assert len(changes) > 20_000
    assert len({change.zone for change in changes}) > 400
    assert [change.at for change in changes] == sorted(change.at for change in changes)


@pytest.mark.parametrize("zone", ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
def test_every_change_is_what_the_clocks_of_the_zone_show_from_then_on(zone: str) -> None:
    with (ZONES / zone).open("rb") as file:
        clocks = ZoneInfo.from_file(file)
    changes = list(parse_zone(zone, (ZONES / zone).read_bytes()))
    assert changes
    for change in changes:
        moment = datetime.fromtimestamp(0, UTC) + timedelta(seconds=change.at)
        local = moment.astimezone(clocks)
        assert local.utcoffset() == timedelta(seconds=change.offset)
        assert local.tzname() == change.abbreviation
        assert bool(local.dst()) == change.is_dst
        assert change.value["at"] == moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def test_a_cut_file_is_refused_wherever_it_is_cut() -> None:
    whole = list(parse_zone("z", BERLIN))
    end_of_data = BERLIN.rindex(b"\n", 0, -1)  # what follows is the rule for the far future, not read here
    for cut in range(end_of_data):
        with pytest.raises(BadZoneFile):
            list(parse_zone("z", BERLIN[:cut]))
    assert list(parse_zone("z", BERLIN[:end_of_data])) == whole


@given(st.binary(max_size=200))
def test_bytes_that_are_no_zone_file_are_refused(data: bytes) -> None:
    with pytest.raises(BadZoneFile):
        list(parse_zone("z", data))


def test_a_moment_before_the_calendar_begins_is_shown_at_its_beginning() -> None:
    changed = bytearray(BERLIN)
    first = next(iter(parse_zone("z", BERLIN)))
    at = changed.index(first.at.to_bytes(8, "big", signed=True))
    changed[at : at + 8] = (-(1 << 59)).to_bytes(8, "big", signed=True)
    assert next(iter(parse_zone("z", bytes(changed)))).value["at"].endswith("1-01-01T00:00:00Z")
