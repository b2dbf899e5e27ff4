"""Archives in an object store: an S3 server on loopback, reached as AWS's own clients are told where it is."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import boto3
import deltalake
import pyarrow as pa
import pytest

from eventlog import blocking
from eventlog.errors import ArchiveDamaged, ArchiveRefused, ArchiveTaken, ArchiveUnreachable, EventLogError, InvalidArgument
from eventlog.integrations import archive as archives
from eventlog.integrations.archive.columns import columns_of
from eventlog.integrations.archive.place import place_of
from eventlog.integrations.archive.ranges import Range
from eventlog.integrations.archive.rounds import write_range
from eventlog.integrations.archive.table import ArchiveTable, Round, identity_of
from eventlog.integrations.spark.loading import LoadShape, load_files, pieces_of, writes_of
from tests.archive.s3 import free_port, s3_server
from tests.process.module_node import SEGMENTS
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.source, pytest.mark.timeout(180)]
BUCKET = "archives"


@pytest.fixture(scope="module")
def store() -> Iterator[Any]:
    """A client of the server's maker, and everything that goes by the environment told where it is."""
    with s3_server() as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        client = boto3.client("s3")
        client.create_bucket(Bucket=BUCKET)
        client.server = server
        yield client


@pytest.fixture
def cache(client: blocking.Client, request: pytest.FixtureRequest) -> blocking.Cache:
    return client.create_cache(f"s{abs(hash(request.node.name)) % 10**9}", before=True)


@pytest.fixture
def address(store: Any, cache: blocking.Cache) -> str:
    return f"s3://{BUCKET}/nested/{cache.name}"


def write(cache: blocking.Cache, rounds: int = 3) -> None:
    for number in range(rounds):
        cache.put_many([(f"k{key}", {"n": number}) for key in range(200)])


def ids_of(found: Any) -> list[int]:
    return [id_ for batch in found.history(columns=["id"]) for id_ in batch.column("id").to_pylist()]


def test_it_has_every_event_once_and_goes_on_where_it_ends(client: blocking.Client, cache: blocking.Cache, address: str) -> None:
    write(cache)
    first = archives.archive(client, cache.name, address + "/", round_events=150)
    assert (first.events, first.rounds > 3) == (600, True)
    write(cache, rounds=1)
    assert archives.archive(client, cache.name, address).events == 200
    found = archives.open(address)
    assert ids_of(found) == [event.id for event in cache.events()]
    assert found.dataset().count_rows() == found.verify().events == 800
    assert [file for file in found.files if not file.startswith(f"{address}/day=")] == []
    assert not archives.audit(client, cache.name, found).differences


def test_columns_of_values_are_added_there_too(client: blocking.Client, cache: blocking.Cache, address: str) -> None:
    for schema in ("n INT", "n INT, more STRING"):
        write(cache, rounds=1)
        archives.archive(client, cache.name, address, value_schema=schema)
    found = archives.open(address)
    assert [row["v"] for batch in found.history(columns=["v"]) for row in batch.to_pylist()] == [{"n": 0, "more": None}] * 400
    assert (found.dataset().count_rows(), found.verify().events) == (400, 400)


def test_files_are_merged_and_removed(client: blocking.Client, cache: blocking.Cache, address: str) -> None:
    write(cache)
    archives.archive(client, cache.name, address, round_events=100)
    before = archives.open(address)
    done = archives.compact(address, older_than_ms=0, vacuum_hours=0)
    assert (done.files_before, done.files_after, done.vacuumed) == (len(before.files), 1, len(before.files))
    found = archives.open(address)
    assert (found.verify().events, ids_of(found)) == (600, [event.id for event in cache.events()])


def test_of_two_archivers_at_once_one_goes_on_and_nothing_is_there_twice(
    client: blocking.Client, cache: blocking.Cache, node: NodeProcess, address: str
) -> None:
    write(cache)
    refused: list[EventLogError] = []

    def run() -> None:
        with blocking.connect(node.address) as own:
            try:
                archives.archive(own, cache.name, address, round_events=60)
            except ArchiveTaken as error:
                refused.append(error)

    both = [threading.Thread(target=run) for _ in range(3)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert len(refused) == 2, "each commit is refused that another's was before"
    archives.archive(client, cache.name, address)
    found = archives.open(address)
    assert (found.verify().events, ids_of(found)) == (600, [event.id for event in cache.events()])


def damaged(store: Any, change: Callable[[bytes], bytes]) -> Callable[[str], None]:
    def act(key: str) -> None:
        body = store.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        store.put_object(Bucket=BUCKET, Key=key, Body=change(body))

    return act


@pytest.mark.parametrize("how", ["removed", "cut", "flipped"])
def test_a_damaged_object_is_named(client: blocking.Client, cache: blocking.Cache, store: Any, address: str, how: str) -> None:
    write(cache)
    archives.archive(client, cache.name, address)
    [file] = archives.open(address).files
    key = file.removeprefix(f"s3://{BUCKET}/")
    acts: dict[str, Callable[[str], None]] = {
        "removed": lambda key: store.delete_object(Bucket=BUCKET, Key=key),
        "cut": damaged(store, lambda body: body[: len(body) // 2]),
        "flipped": damaged(store, lambda body: body[:200] + bytes([body[200] ^ 4]) + body[201:]),
    }
    acts[how](key)
    with pytest.raises(ArchiveDamaged, match=r"day=.*parquet"):
        archives.open(address).verify()


def test_a_store_that_is_away_is_no_damage_and_the_same_goes_on_when_it_is_back(
    client: blocking.Client, cache: blocking.Cache, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    write(cache)
    archives.archive(client, cache.name, address)
    found = archives.open(address)
    nowhere = f"{address}-elsewhere"  # as yet nobody has asked for it, so it is looked for at the new place
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{free_port()}")
    with pytest.raises(ArchiveUnreachable, match=r"is not reached: .*refused"):
        archives.archive(client, cache.name, nowhere)
    with pytest.raises(ArchiveUnreachable):
        archives.open(nowhere)
    monkeypatch.undo()
    assert found.verify().events == 600


def test_a_bucket_that_is_not_there(client: blocking.Client, cache: blocking.Cache, store: Any) -> None:
    write(cache, rounds=1)
    with pytest.raises(ArchiveUnreachable, match="NoSuchBucket"):
        archives.archive(client, cache.name, f"s3://no-{BUCKET}/a")


def test_what_is_no_archive_is_refused(client: blocking.Client, cache: blocking.Cache, store: Any, address: str) -> None:
    write(cache, rounds=1)
    store.put_object(Bucket=BUCKET, Key=f"full/{cache.name}/file", Body=b"x")
    with pytest.raises(ArchiveRefused, match="has files"):
        archives.archive(client, cache.name, f"s3://{BUCKET}/full/{cache.name}")
    with pytest.raises(ArchiveRefused, match="there is none"):
        archives.open(f"s3://{BUCKET}/nowhere")


def test_a_store_that_stands_still_for_a_while(client: blocking.Client, cache: blocking.Cache, store: Any, address: str) -> None:
    write(cache)
    store.server.process.send_signal(signal.SIGSTOP)
    with subprocess.Popen(["sh", "-c", f"sleep 4; kill -CONT {store.server.process.pid}"]):
        assert archives.archive(client, cache.name, address, round_events=150).events == 600
    assert archives.open(address).verify().events == 600


def test_a_store_that_fails_every_third_call_costs_time_alone(
    client: blocking.Client, cache: blocking.Cache, store: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(cache)
    host = store.server.environment["AWS_ENDPOINT_URL"].removeprefix("http://")
    with subprocess.Popen([sys.executable, "-m", "tests.archive.failing_proxy", host], stdout=subprocess.PIPE, text=True) as failing:
        assert failing.stdout is not None
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{int(failing.stdout.readline())}")
        try:
            assert archives.archive(client, cache.name, address, round_events=300).events == 600
            found = archives.open(address)
            assert ids_of(found) == [event.id for event in cache.events()]
            assert found.verify().events == 600
        finally:
            failing.kill()
        assert failing.stdout.read().count("failed") > 5


def test_a_commit_of_which_the_answer_was_lost_is_ones_own(client: blocking.Client, cache: blocking.Cache, address: str) -> None:
    write(cache, rounds=1)
    place = place_of(address)
    table, behind, late = (
        ArchiveTable.open_or_create(place, identity_of(client, cache.name), columns_of(cache).schema()) for _ in range(3)
    )
    end = cache.log_ends().last_id
    made = write_range(cache, Range(after=0, upto=end, segments=tuple(range(SEGMENTS))), place)
    done = Round(after=0, upto=end, events=made.events, digest=made.digest, ends=())
    table.commit(made.parts, done)
    behind.commit(made.parts, done)  # asked for again, and met itself
    other = write_range(cache, Range(after=0, upto=end, segments=tuple(range(SEGMENTS))), place)
    with pytest.raises(ArchiveTaken):
        late.commit(other.parts, done)
    found = archives.open(address)
    assert (found.dataset().count_rows(), len(found.files)) == (200, 1)


def test_the_commands_take_an_address(cache: blocking.Cache, node: NodeProcess, tmp_path: Path, address: str) -> None:
    write(cache)

    def told(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "eventlog_cli", "--server", node.address, *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path, env=os.environ, timeout=60)

    made = told("pipeline", "archive", cache.name, "--to", address)
    assert (made.returncode, address in made.stdout) == (0, True), made.stderr
    assert told("pipeline", "audit", cache.name, "--archive", address).returncode == 0
    assert told("pipeline", "compact", address, "--older-than", "1h").returncode == 0
    shown = told("consume", cache.name, "--archive", address, "--json")
    assert (shown.returncode, shown.stdout.count("\n")) == (0, 600), shown.stderr
    rebuilt = told("pipeline", "rebuild", cache.name, "--archive", address, "--into", f"{cache.name}-again", "--verify")
    assert rebuilt.returncode == 0, rebuilt.stderr
    refused = told("pipeline", "archive", cache.name, "--to", "ftp://host/a")
    assert (refused.returncode, refused.stderr.count("\n")) == (1, 1), refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_files_to_load_are_found_and_read_in_a_store(store: Any, address: str) -> None:
    folder = address.partition(f"{BUCKET}/")[2]
    for name, text in (("a.csv", "id,n\n1,2\n"), ("day=7/b.jsonl", '{"id": "2"}\n{"id": "3"}\n'), ("_c.csv", "id\n9\n")):
        store.put_object(Bucket=BUCKET, Key=f"{folder}/{name}", Body=text.encode())
    deltalake.write_deltalake(f"{address}/table", pa.table({"id": ["4"], "shop": ["x y"]}), partition_by=["shop"])

    def values_at(path: str, form: str = "") -> list[Any]:
        shape = LoadShape(key="id")
        pieces = [piece for file in load_files([path], form=form) for piece in pieces_of(file, nbytes=10)]
        return [row["value"] for piece in pieces for batch in writes_of(piece, shape) for row in batch.to_pylist()]

    assert values_at(f"{address}/a.csv") == values_at(f"{address}/a*.csv") == [{"id": "1", "n": "2"}]
    assert values_at(f"{address}/day=7") == ['{"id": "2"}', '{"id": "3"}']
    assert values_at(f"{address}/table") == [{"id": "4", "shop": "x y"}]
    assert [file.path for file in load_files([f"{address}/"], form="csv")][:2] == [f"{address}/a.csv", f"{address}/day=7/b.jsonl"]
    for path in (f"{address}/none.csv", f"{address}/none*.csv", f"{address}/none"):
        with pytest.raises(InvalidArgument, match="there is no file"):
            load_files([path])
