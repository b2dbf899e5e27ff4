"""Caches and entries on the command line, against a real node."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.process.cli_ends import Shell, running_node
from tests.process.nodes import RETENTION_WHEN_TOLD


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_node(tmp_path_factory.mktemp("node"), **RETENTION_WHEN_TOLD) as found:
        found.ok("cache", "create", "things")
        found.ok("cache", "create", "blobs", "--format", "bytes", "--key-format", "bytes")
        yield found


def test_an_entry_is_put_got_and_removed(shell: Shell) -> None:
    put = shell.ok("put", "things", "a", '{"n": 1}', "--json").row
    assert put == {"id": put["id"], "id_str": str(put["id"]), "kind": "CREATED"}
    got = shell.ok("get", "things", "a", "--json").row
    assert got == {"key": "a", "value": {"n": 1}, "version": put["id"], "version_str": str(put["id"])}
    assert shell.ok("get", "things", "a").out == '{"n": 1}'
    assert shell.ok("put", "things", "a", '{"n":2}').out.startswith("MODIFIED ")
    removed = shell.ok("delete", "things", "a", "--json").row
    assert removed["kind"] == "REMOVED"
    assert removed["id"] > put["id"]
    gone = shell.run("get", "things", "a", "--json")
    assert (gone.code, gone.out) == (1, "")
    assert shell.ok("remove", "things", "a", "--json").row == {"id": None}


def test_a_value_comes_from_stdin_and_keeps_its_digits(shell: Shell) -> None:
    shell.ok("put", "things", "big", "-", given=b' {"n": 123456789012345678901234567890}\n')
    assert shell.ok("get", "things", "big").out == '{"n": 123456789012345678901234567890}'


def test_bytes_pass_as_they_are(shell: Shell) -> None:
    shell.ok("put", "blobs", "k", "-", given=b"\xff\x00\n")
    assert shell.ok("get", "blobs", "k", "--json").row["value"] == {"base64": "/wAK"}


def test_keys_that_are_no_text_pass_as_well(shell: Shell) -> None:
    key = os.fsdecode(b"\xff\xfe")
    shell.ok("put", "blobs", key, "1")
    assert shell.ok("get", "blobs", key).out == "1"
    assert shell.ok("get", "blobs", key, "--json").row["key"] == {"base64": "//4="}
    assert [row["key"] for row in shell.ok("keys", "blobs", "--prefix", key, "--json").rows] == [{"base64": "//4="}]
    assert shell.ok("remove", "blobs", key, "--json").row["kind"] == "REMOVED"


def test_conditions_refuse_with_the_versions(shell: Shell) -> None:
    version = shell.ok("put", "things", "c", "1", "--if-absent", "--json").row["id"]
    refused = shell.run("put", "things", "c", "2", "--if-absent")
    assert refused.code == 1
    assert refused.err == f"error: KEY_EXISTS: key 'c' exists with version {version}\n"
    assert shell.run("put", "things", "c", "2", "--if-version", "7").err.startswith("error: VERSION_MISMATCH: ")
    assert shell.ok("put", "things", "c", "2", "--if-version", str(version), "--json").row["kind"] == "MODIFIED"


def test_what_is_no_json_is_refused_with_a_hint(shell: Shell) -> None:
    refused = shell.run("put", "things", "a", "text")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("error: BAD_VALUE: value of key 'a': not JSON")
    assert refused.err.count("\n") == 1


def test_keys_size_and_clear(shell: Shell) -> None:
    shell.ok("cache", "create", "many")
    rows = b"".join(b'{"k":"user/%d"}\n{"k":"other/%d"}\n' % (number, number) for number in range(50))
    shell.ok("load", "many", "-", "--key", "k", given=rows)
    assert shell.ok("size", "many", "--json").row == {"size": 100}
    assert sorted(row["key"] for row in shell.ok("keys", "many", "--prefix", "user/", "--json").rows) == sorted(
        f"user/{n}" for n in range(50)
    )
    assert len(shell.ok("keys", "many", "--max", "7").out.splitlines()) == 7
    assert shell.run("clear", "many").code == 2
    assert shell.ok("clear", "many", "--yes").out == "removed 100\n"
    assert shell.ok("size", "many").out == "0\n"


def test_a_cache_is_created_described_altered_listed_and_dropped(shell: Shell) -> None:
    created = shell.ok("cache", "create", "orders", "--retain-time", "3d", "--retain-events", "100", "--json").row
    assert (created["cache"], created["format"], created["retain_time"], created["retain_events"]) == ("orders", "json", "3d", 100)
    assert (created["events"], created["state"], created["retain_bytes"]) == (True, True, 10 << 30)
    again = shell.run("cache", "create", "orders")
    assert (again.code, again.err[:21]) == (1, "error: CACHE_EXISTS: ")
    assert shell.ok("caches", "create", "orders", "--if-not-exists", "--json").row["cache"] == "orders"
    other = shell.run("cache", "create", "orders", "--if-not-exists", "--format", "bytes")
    assert (other.code, other.err.startswith("error: CACHE_DIFFERS: cache 'orders' exists with format json, not bytes;")) == (1, True)
    altered = shell.ok("cache", "alter", "orders", "--retain-time", "0", "--lifespan", "1h", "--json").row
    assert (altered["retain_time"], altered["lifespan_ms"], altered["retain_events"]) == (None, 3_600_000, 100)
    described = shell.ok("cache", "describe", "orders", "--json").row
    assert described.items() >= altered.items()
    assert (described["entries"], described["kept"]) == (0, 0)
    assert "orders" in [row["cache"] for row in shell.ok("cache", "list", "--json").rows]
    assert "3d" not in shell.ok("cache", "list").out
    assert shell.run("cache", "drop", "orders").code == 2
    assert shell.ok("cache", "delete", "orders", "--yes").out == "dropped orders\n"
    missing = shell.run("cache", "describe", "orders")
    assert missing.err == "error: CACHE_NOT_FOUND: there is no cache 'orders'; create it with: eventlog cache create orders\n"


@pytest.mark.parametrize("name", ["..", "", "A", "__mine", "x" * 300, "ä"])
def test_a_bad_name_is_refused_in_one_line(shell: Shell, name: str) -> None:
    refused = shell.run("cache", "create", name)
    assert refused.code == 1
    assert refused.err.startswith("error: BAD_NAME: ")
    assert refused.err.count("\n") == 1


@pytest.mark.parametrize("words", [["put", "nothing", "k", "1"], ["get", "nothing", "k"], ["size", "nothing"], ["consume", "nothing"]])
def test_a_cache_that_does_not_exist_is_named_with_the_command_that_creates_it(shell: Shell, words: list[str]) -> None:
    refused = shell.run(*words)
    assert (refused.code, refused.out) == (1, "")
    assert refused.err == "error: CACHE_NOT_FOUND: there is no cache 'nothing'; create it with: eventlog cache create nothing\n"


@pytest.mark.parametrize("words", [["get", "things", "a"], ["consume", "things"]])  # by the client of single keys, and by the whole one
@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("127.0.0.1:1", "NOBODY_LISTENS: nothing listens at 127.0.0.1:1 (Connection refused); start a node there with: eventlog serve"),
        ("127.0.0.1:1,127.0.0.1:2", "NOBODY_LISTENS: nothing listens at 127.0.0.1:1 and 127.0.0.1:2 (Connection refused)"),
        ("no-host.invalid:7400", "UNKNOWN_HOST: the host name of no-host.invalid:7400 is not known"),
    ],
)
def test_an_address_where_nobody_is_says_what_to_do(shell: Shell, words: list[str], address: str, said: str) -> None:
    done = shell.run(*words, "--server", address)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith(f"error: {said}")
    assert "--server, EVENTLOG_SERVER" in done.err
    assert done.err.count("\n") == 1


def test_a_key_beyond_the_limit_is_told_no_option_that_there_is_not(shell: Shell) -> None:
    shell.ok("cache", "create", "long")
    refused = shell.run("put", "long", "k" * 5_000, "1")
    assert refused.err == "error: TOO_LARGE: a key has 5000 bytes, the limit is 4096; make it smaller\n"


def test_a_cache_is_described_with_sizes_and_a_rate(shell: Shell) -> None:
    shell.ok("cache", "create", "sized", "--format", "bytes")
    for number in range(3):
        shell.ok("put", "sized", f"k{number % 2}", "v" * 1_000)
    row = shell.ok("cache", "describe", "sized", "--json").row
    assert (row["entries"], row["kept"]) == (2, 3)
    assert 3_000 < row["kept_bytes"] < 5_000
    assert row["kept_per_second"] > 0
    text = shell.ok("cache", "describe", "sized").out
    assert re.search(r"^log +3 events, 3\.\d+ KiB, 1\.\d+ KiB each$", text, re.MULTILINE)
    assert re.search(r"^rate +[\d.]+ events a second since 20", text, re.MULTILINE)


def test_admin_says_how_it_is(shell: Shell) -> None:
    status = shell.ok("admin", "status", "--check", "--wait", "60s", "--json").row
    assert (status["health"], status["nodes"], status["nodes_live"], status["segments"]) == ("ok", 1, 1, 256)
    assert status["low_watermark_str"] == str(status["low_watermark"])
    assert "next: " in shell.ok("admin", "status", "--wait", "5s").out
    [node] = shell.ok("admin", "nodes", "--json").rows
    assert (node["state"], node["primaries"], node["segments"]) == ("live", 256, 256)
    segments = shell.ok("admin", "segments", "--json").rows
    assert [row["segment"] for row in segments] == list(range(256))
    assert shell.ok("admin", "segments", "--without-primary", "--json").out == ""
    assert shell.ok("admin", "check", "--json").row["problems"] == []


def test_retention_is_shown_set_and_run(shell: Shell) -> None:
    shell.ok("cache", "create", "short", "--no-state", "--format", "bytes")
    rows = b"".join(b'{"k":"%d","pad":"%s"}\n' % (number, b"x" * 400) for number in range(30_000))
    last = shell.ok("load", "short", "-", "--key", "k", "--json", given=rows).row["last_id"]
    shell.ok("admin", "retention", "set", "short", "--retain-events", "1000")
    dry = shell.ok("admin", "retention", "run", "short", "--dry-run", "--json").rows
    assert dry[-1]["cache"] == "short"
    assert dry[-1]["removed"] == sum(row["removed"] for row in dry[:-1]) > 0
    assert shell.ok("consume", "short", "--max", "1", "--json").rows
    ran = shell.ok("admin", "retention", "run", "short", "--json").rows[-1]["removed"]
    assert ran >= dry[-1]["removed"]
    shown = shell.ok("admin", "retention", "show", "short", "--json").row
    assert shown["kept"] == 30_000 - ran >= 1_000
    trimmed = shell.run("consume", "short", "--from-id", "1")
    assert trimmed.code == 1
    assert trimmed.err.startswith("error: EVENTS_TRIMMED: ")
    kept = shell.ok("consume", "short", "--from-id", "1", "--on-trimmed", "earliest", "--format", "csv").out.splitlines()[1:]
    assert len(kept) == shown["kept"]
    assert kept[-1].startswith(str(last))


def test_a_listener_that_keeps_events_back_is_named_with_its_place_and_its_hold(shell: Shell) -> None:
    shell.ok("cache", "create", "held", "--no-state", "--format", "bytes", "--retain-events", "100")
    shell.ok("listener", "register", "held", "--durable", "--id", "slow", "--hold", "100MiB")
    assert shell.ok("admin", "retention", "show", "held", "--json").row["kept_back"] == []
    rows = b"".join(b'{"k":"%d","pad":"%s"}\n' % (number, b"x" * 400) for number in range(3_000))
    shell.ok("load", "held", "-", "--key", "k", given=rows)
    place = shell.ok("listener", "describe", "slow", "--json").row["position"]
    shown = shell.ok("admin", "retention", "show", "held", "--json").row
    for found in (shown, shell.ok("admin", "retention", "run", "held", "--dry-run", "--json").rows[-1]):
        [one] = found["kept_back"]
        assert (one["listener_id"], one["position"], one["hold_bytes"]) == ("slow", place, 100 << 20)
        assert 0 < one["held_percent"] < 50
    line = f"listener slow of held keeps what comes after id {place}; {one['held_percent']} % of its hold of 100 MiB is used"
    for words in (("show", "held"), ("run", "held", "--dry-run"), ("run", "held")):
        assert shell.ok("admin", "retention", *words).out.splitlines()[-1] == line
    shell.ok("listener", "remove", "slow")
    assert "listener" not in shell.ok("admin", "retention", "run", "held", "--dry-run").out


def test_entries_are_printed_once_each_filtered_and_cut(shell: Shell) -> None:
    shell.ok("cache", "create", "goods")
    for number in range(6):
        shell.ok("put", "goods", f"g{number}", f'{{"total": {number}, "more": "x"}}')
    rows = shell.ok("entries", "goods").rows
    assert {row["key"]: row["value"]["total"] for row in rows} == {f"g{number}": number for number in range(6)}
    assert all(row["version_str"] == str(row["version"]) for row in rows)
    matching = shell.ok("entries", "goods", "--where", "value.total >= 4", "--select", "value.total").rows
    assert sorted((row["key"], row["value"]["total"], len(row["value"])) for row in matching) == [("g4", 4, 1), ("g5", 5, 1)]
    assert len(shell.ok("entries", "goods", "--max", "2").rows) == 2
    assert [row["key"] for row in shell.ok("entries", "goods", "--prefix", "g3", "--json").rows] == ["g3"]
    refused = shell.run("entries", "goods", "--where", "value.total >")
    assert (refused.code, refused.out) == (1, "")
    assert refused.err.startswith("error: BAD_PREDICATE: ")


def test_the_state_is_printed_before_what_happens_after_it_and_a_file_remembers_the_place(shell: Shell, tmp_path: Path) -> None:
    shell.ok("cache", "create", "first")
    for number in range(4):
        shell.ok("put", "first", f"k{number % 3}", str(number))
    file = str(tmp_path / "position")
    some = shell.ok("consume", "first", "--state-first", "--max", "2", "--position-file", file).rows
    shell.ok("put", "first", "k0", "9")
    rest = shell.ok("consume", "first", "--state-first", "--position-file", file).rows
    assert [row["kind"] for row in some] == ["STATE", "STATE"]
    assert {row["kind"] for row in rest} <= {"STATE", "MODIFIED"}
    table = {row["key"]: row["value"] for row in some + rest}
    assert table == {"k0": 9, "k1": 1, "k2": 2}
    assert len({(row["key"], row["id"]) for row in some + rest}) == len(some + rest)
    assert shell.ok("consume", "first", "--position-file", file).rows == []


def test_entries_at_the_beginning_of_a_continuous_query_have_joined(shell: Shell) -> None:
    shell.ok("cache", "create", "joined")
    for number in range(3):
        shell.ok("put", "joined", f"k{number}", str(number))
    asked = ("consume", "joined", "--where", "value > 0", "--continuous", "--state-first")
    rows = shell.ok(*asked).rows
    assert {(row["key"], row["kind"], row["change"]) for row in rows} == {(key, "STATE", "JOINED") for key in ("k1", "k2")}
    names, *lines = shell.ok(*asked, "--format", "csv").out.splitlines()
    assert names.endswith(",change")
    assert [line.rpartition(",")[2] for line in lines] == ["JOINED", "JOINED"]
