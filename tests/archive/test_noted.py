"""An archive that is noted with its cache: readers use it where they have need of it, and are told of it where they have none."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from eventlog import blocking
from eventlog.errors import ArchiveRefused, EventsTrimmed, InvalidArgument, TooLarge
from eventlog.integrations import archive as archives
from tests.archive.test_over_both import seen
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
KEEPS = 60


def filled(client: blocking.Client, name: str, path: Path) -> tuple[blocking.Cache, list[tuple[Any, ...]]]:
    """Return a cache with an archive of most of it, of which the nodes keep little, and all that happened."""
    cache = client.create_cache(name)
    cache.put_many([(f"k{key}", {"n": key}) for key in range(300)])
    archives.archive(client, name, path, round_events=100)
    cache.put_many([(f"k{key}", {"n": -key}) for key in range(40)])
    every = seen(cache.event_batches())
    client.alter_cache(name, retain_events=KEEPS)
    client.run_retention(name)
    return cache, every


@pytest.fixture(scope="module")
def orders(client: blocking.Client, node: NodeProcess, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[tuple[Any, ...]], Path]:
    path = tmp_path_factory.mktemp("archive") / "orders"
    _, every = filled(client, "orders", path)
    node.command("cache", "alter", "orders", "--archive", str(path))
    return every, path


def printed(node: NodeProcess, *words: str) -> tuple[list[int], str]:
    """Return the ids that `consume` prints, and what it says beside them."""
    done = node.command("consume", "orders", "--json", *words)
    return [json.loads(line)["id"] for line in done.stdout.decode().splitlines()], done.stderr.decode()


def test_it_is_shown_and_taken_away(client: blocking.Client, node: NodeProcess, orders: Any, tmp_path: Path) -> None:
    _, path = orders
    assert client.describe_cache("orders").archive == str(path)
    assert json.loads(node.command("cache", "show", "orders", "--json").stdout)["archive"] == str(path)
    assert f"archive        {path}\n" in node.command("cache", "show", "orders").stdout.decode()
    shutil.copytree(path, tmp_path / "moved")
    assert client.alter_cache("orders", archive=tmp_path / "moved").archive == str(tmp_path / "moved")
    node.command("cache", "alter", "orders", "--no-archive")
    assert client.describe_cache("orders").archive == ""
    assert archives.noted(client, "orders") is None
    client.alter_cache("orders", archive=path)


def test_consume_takes_what_the_nodes_have_forgotten(client: blocking.Client, node: NodeProcess, orders: Any) -> None:
    every, path = orders
    ids = [event[0] for event in every]
    found, told = printed(node)
    assert found == ids
    assert f"comes from the archive at {path}" in told
    assert printed(node, "--from-id", str(ids[10]), "--where", "value.n < 20")[0] == [e[0] for e in every[11:] if e[5]["n"] < 20]
    kept, told = printed(node, "--no-archive")
    assert kept == [event.id for event in client.cache("orders").events()]
    assert len(kept) < len(ids)
    assert "archive" not in told
    for words in (("--from-id", str(ids[-5])), ("--tail", "4")):  # the nodes have all of it
        found, told = printed(node, *words)
        assert (found, told) == (ids[-4:], "")
    found, told = printed(node, "--tail", str(len(ids)))
    assert found == kept
    assert f"what came before is in the archive at {path}" in told
    assert printed(node, "--tail", str(len(ids)), "--no-archive") == (kept, "")
    assert node.command("consume", "orders", "--no-archive", "--archive", str(path), ok=False).returncode == 2


def test_a_read_of_both_finds_it(client: blocking.Client, orders: Any) -> None:
    every, _ = orders
    assert seen(archives.event_batches(None, client, "orders")) == every
    assert seen(archives.event_batches(None, client, "orders", every[200][0])) == every[201:]
    assert seen(archives.event_batches(None, client, "orders", every[-9][0], where="value.n < 0")) == every[-8:]
    found = archives.noted(client, "orders")
    assert found is not None
    assert found.upto == every[299][0]


def test_where_retention_has_passed_the_error_names_it(client: blocking.Client, node: NodeProcess, orders: Any) -> None:
    every, path = orders
    with pytest.raises(EventsTrimmed, match=f"read over the archive at {re.escape(str(path))} as well") as raised:
        list(client.cache("orders").events(every[10][0]))
    assert raised.value.archive == str(path)
    done = node.command("consume", "orders", "--no-archive", "--from-id", str(every[10][0]), ok=False)
    assert done.returncode == 1
    assert str(path) in done.stderr.decode()


def test_commands_of_pipelines_find_it(client: blocking.Client, node: NodeProcess, orders: Any) -> None:
    every, path = orders

    def told(*words: str) -> dict[str, Any]:
        row: dict[str, Any] = json.loads(node.command("pipeline", *words, "--json").stdout)
        assert row["pipeline"] == words[0]
        assert row["seconds"] > 0 < row["cpu_seconds"]
        return row

    assert told("audit", "orders")["differences"] == []
    assert told("compact", str(path))["pipeline"] == "compact"
    done = told("rebuild", "orders", "--into", "again", "--verify")
    assert (done["entries"], done["differences"]) == (300, 0)
    assert told("archive", "orders")["events"] == 40
    assert archives.open(path).upto == every[-1][0]
    for command in (("archive",), ("audit",), ("rebuild", "--into", "none")):
        refused = node.command("pipeline", command[0], "again", *command[1:], ok=False)
        assert (refused.returncode, b"no archive is noted with again" in refused.stderr) == (2, True)


def test_an_archive_that_is_gone_or_behind_is_said_and_no_gap_is_passed_over(
    client: blocking.Client, node: NodeProcess, tmp_path: Path
) -> None:
    cache, every = filled(client, "lost", tmp_path / "a")
    client.alter_cache("lost", archive=tmp_path / "a")
    cache.put_many([(f"k{key}", {"n": key}) for key in range(200)])
    client.run_retention("lost")  # passes the archive's end
    batches = archives.event_batches(None, client, "lost")
    with pytest.raises(EventsTrimmed, match="archive at"):
        seen(batches)
    last = cache.log_ends().last_id
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(ArchiveRefused, match="there is none; it is noted with cache 'lost', until: eventlog cache alter lost --no-archive"):
        archives.event_batches(None, client, "lost", every[0][0])
    assert seen(archives.event_batches(None, client, "lost", last)) == []  # nobody looks for it where there is no need


def test_what_cannot_be_noted_is_refused(client: blocking.Client, node: NodeProcess, orders: Any, tmp_path: Path) -> None:
    _, path = orders
    client.create_cache("others")
    for words, code, why in (
        (("others", "--archive", str(path)), 1, "is another"),
        (("others", "--archive", str(tmp_path / "nothing")), 1, "there is none"),
        (("others", "--archive", ""), 2, "--no-archive takes one away"),
        (("others", "--archive", str(path), "--no-archive"), 2, "exclude each other"),
    ):
        done = node.command("cache", "alter", *words, ok=False)
        assert (done.returncode, why in done.stderr.decode()) == (code, True), done.stderr
    for archive, error, why in (
        ("s3://key:word@bucket/a", InvalidArgument, "password"),
        ("s3://", InvalidArgument, "give a path"),
        ("/a\nb", InvalidArgument, "give a path"),
        ("/" + "a" * 1_000, TooLarge, "the place of the archive"),
        (7, InvalidArgument, "give a path"),
    ):
        with pytest.raises(error, match=why):
            client.alter_cache("others", archive=archive)
    client.create_cache("unkept", events=False)
    with pytest.raises(InvalidArgument, match="an archive is one of events"):
        client.alter_cache("unkept", archive="/a")
    assert {name: client.describe_cache(name).archive for name in ("others", "unkept")} == {"others": "", "unkept": ""}


def test_it_outlives_a_kill_of_the_node(client: blocking.Client, tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node") as own:
        with blocking.connect(own.address) as connected:
            connected.create_cache("kept")
            connected.alter_cache("kept", archive="s3://archives/kept")
        own.kill()
        own.start()
        with blocking.connect(own.address) as connected:
            assert connected.describe_cache("kept").archive == "s3://archives/kept"
