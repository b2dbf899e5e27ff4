"""A cache's events in a table of files, from a real node: each once, named where something is missing, gone on with where it ends."""

import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import date
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyarrow.fs import PyFileSystem

from eventlog import blocking
from eventlog.errors import ArchiveDamaged, ArchiveRefused, ArchiveTaken, CorruptData, EventLogError, EventsTrimmed, InvalidArgument
from eventlog.hashing import hash_key, segment_of
from eventlog.ids import ID_MAX, TIME_SHIFT, id_before, time_of
from eventlog.integrations import archive as archives
from eventlog.integrations.archive.auditing import DIFFERENCES_MAX, DifferingHours, HourDifference, first_unlike, unlike_hours
from eventlog.integrations.archive.digest import bounds_of, digest_of
from eventlog.integrations.archive.files import write_parts
from eventlog.integrations.archive.place import place_of
from eventlog.integrations.archive.ranges import Range
from eventlog.integrations.archive.rounds import Made, ends_of, read_range, write_range
from tests.process.nodes import NodeProcess
from tests.process.terminals import seen_on_terminal

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]
PLACES = 20  # at which an archiver is killed


@pytest.fixture
def cache(client: blocking.Client, request: pytest.FixtureRequest) -> blocking.Cache:
    return client.create_cache(f"c{abs(hash(request.node.name)) % 10**9}", before=True)


def write(cache: blocking.Cache, rounds: int = 3, keys: int = 200) -> None:
    for number in range(rounds):
        cache.put_many([(f"k{key} ä", {"n": number, "key": key}) for key in range(keys)])
    cache.put("with", {"n": -1}, headers={"trace": b"\x00\xff", "b": b""})
    cache.remove("k7 ä")


def remove_all(client: blocking.Client, cache: blocking.Cache) -> None:
    """Have retention remove every event."""
    client.alter_cache(cache.name, retain_time_ms=1)
    while cache.log_ends().first_id is not None:
        client.run_retention(cache.name)
        time.sleep(0.01)


def rows_of(batches: Iterator[pa.RecordBatch]) -> list[tuple[object, ...]]:
    return [
        (row["id"], row["segment"], row["offset"], row["kind"], row["key"], row["value"], row["before"], dict(row["headers"]))
        for batch in batches
        for row in batch.to_pylist()
    ]


def events_of(cache: blocking.Cache, after: int = 0) -> list[tuple[object, ...]]:
    found = []
    for batch in cache.event_batches(after):
        found += rows_of(iter([batch.arrow()]))
    return found


def test_a_beginning_that_nobody_can_have_issued_yet_is_refused(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache, 1, 5)
    soon = id_before(int(time.time() * 1000) + 1_000)
    assert archives.archive(client, cache.name, tmp_path / "soon", after=soon).after == soon
    with pytest.raises(InvalidArgument, match="ahead of every id"):
        archives.archive(client, cache.name, tmp_path / "never", after=id_before(int(time.time() * 1000) + 86_400_000))


def test_stored_values_that_go_out_whole_between_others_are_archived_in_order(
    client: blocking.Client, cache: blocking.Cache, tmp_path: Path
) -> None:
    for _ in range(2):
        cache.put_many([(f"k{key}", key) for key in range(100)])
        of_segment = [key for key in (f"k{key}" for key in range(8_000)) if segment_of(hash_key(key.encode()), client.segments_count) % 2]
        cache.put_many([(key, {"key": key, "text": "x" * 800}) for key in of_segment])
    archives.archive(client, cache.name, tmp_path / "a")
    assert archives.audit(client, cache.name, archives.open(tmp_path / "a")).differing == 0


def test_it_has_every_event_once_in_the_order_of_ids_and_goes_on_where_it_ends(
    client: blocking.Client, cache: blocking.Cache, tmp_path: Path
) -> None:
    write(cache)
    first = archives.archive(client, cache.name, tmp_path / "a", round_events=150)
    assert (first.events, first.rounds > 4) == (602, True)
    assert archives.archive(client, cache.name, tmp_path / "a").events == 0
    write(cache, rounds=1)
    second = archives.archive(client, cache.name, tmp_path / "a")
    assert (second.after, second.events, second.rounds) == (first.upto, 202, 1)
    found = archives.open(tmp_path / "a")
    assert rows_of(found.history()) == events_of(cache)
    assert rows_of(found.history(first.upto)) == events_of(cache, first.upto)
    middle = events_of(cache)[300][0]
    assert isinstance(middle, int)
    assert rows_of(found.history(upto=middle, batch_rows=7)) == events_of(cache)[:301]
    verified = found.verify()
    assert (verified.events, verified.upto, verified.rounds) == (804, second.upto, first.rounds + 1)
    assert next(found.history(columns=["key"])).schema.names == ["key"]
    with pytest.raises(InvalidArgument, match="no column 'x'"):
        found.history(columns=["x"])
    with pytest.raises(InvalidArgument, match="the archive has ids"):
        found.history(upto=second.upto + 1)


def test_a_round_ends_with_as_many_bytes_as_it_may_have(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    for _ in range(8):
        cache.put_many([(f"k{key}", os.urandom(1_000).hex()) for key in range(100)])
    plan = cache.plan(1)
    done = archives.archive(client, cache.name, tmp_path / "a", round_bytes=plan.bytes // 8)
    assert (done.events, 6 <= done.rounds <= 12) == (plan.events, True)
    assert archives.open(tmp_path / "a").verify().events == plan.events


def test_an_archive_is_proved_as_it_was_when_it_was_opened_whatever_comes_later(
    client: blocking.Client, cache: blocking.Cache, tmp_path: Path
) -> None:
    write(cache, rounds=1)
    archives.archive(client, cache.name, tmp_path / "a")
    found = archives.open(tmp_path / "a")
    write(cache, rounds=1)
    archives.archive(client, cache.name, tmp_path / "a")
    assert (found.verify().events, archives.audit(client, cache.name, found).differences) == (202, ())
    assert archives.open(tmp_path / "a").verify().rounds == 2


def test_other_tools_read_it(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache)
    archives.archive(client, cache.name, tmp_path / "a")
    dataset = archives.open(tmp_path / "a").dataset()
    assert dataset.count_rows() == 602
    assert not isinstance(dataset.filesystem, PyFileSystem), "threads that call Python abort a process that ends (arrow 45017)"
    table = dataset.to_table(filter=pc.field("key") == "k7 ä")
    assert sorted(table.column("kind").to_pylist()) == ["CREATED", "MODIFIED", "MODIFIED", "REMOVED"]
    assert all(isinstance(day, date) for day in table.column("day").to_pylist())


@pytest.mark.parametrize("form", ["bytes", "avro"])
def test_values_of_every_format_are_kept_as_they_are(client: blocking.Client, tmp_path: Path, form: str) -> None:
    if form == "avro":
        schema = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "total", "type": "double"}]})
        cache = client.create_cache(f"f-{form}", format="avro", schema=schema)
        cache.put("k", {"total": 1.5})
    else:
        cache = client.create_cache(f"f-{form}", format="bytes", key_format="bytes")
        cache.put_many([(bytes([n]), bytes([n, 0, 255]) * n) for n in range(200)])
    archives.archive(client, cache.name, tmp_path / "a")
    found = archives.open(tmp_path / "a")
    assert found.verify().events == cache.size()
    if form == "avro":
        assert [row[5] for row in rows_of(found.history())] == [struct.pack("<d", 1.5)]
    else:
        assert {row[4]: row[5] for row in rows_of(found.history())} == {bytes([n]): bytes([n, 0, 255]) * n for n in range(200)}


def test_a_round_that_ended_early_is_made_anew_and_what_it_wrote_is_in_no_table(
    client: blocking.Client, cache: blocking.Cache, tmp_path: Path
) -> None:
    write(cache)

    def dies(ranges: Sequence[Range], _values: str) -> Iterator[Made]:
        for wanted in ranges:
            yield write_range(cache, wanted, place_of(tmp_path / "a"))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        archives.archive(client, cache.name, tmp_path / "a", run=dies)
    assert list((tmp_path / "a").rglob("*.parquet"))
    assert archives.open(tmp_path / "a").dataset().count_rows() == 0
    archives.archive(client, cache.name, tmp_path / "a")
    found = archives.open(tmp_path / "a")
    assert rows_of(found.history()) == events_of(cache)
    found.verify()


def test_of_two_archivers_the_second_is_told_and_adds_nothing(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache)

    def slow(ranges: Sequence[Range], _values: str) -> Iterator[Made]:
        made = [write_range(cache, wanted, place_of(tmp_path / "a")) for wanted in ranges]
        archives.archive(client, cache.name, tmp_path / "a", round_events=100)
        yield from made

    with pytest.raises(ArchiveTaken, match=f"by process {os.getpid()} of "):
        archives.archive(client, cache.name, tmp_path / "a", run=slow)
    found = archives.open(tmp_path / "a")
    assert rows_of(found.history()) == events_of(cache)
    outcomes: list[str] = []

    def one() -> None:
        try:
            outcomes.append(str(archives.archive(client, cache.name, tmp_path / "b", round_events=50).events))
        except (ArchiveTaken, ArchiveRefused) as error:
            outcomes.append(error.code)

    together = [threading.Thread(target=one) for _ in range(3)]
    for thread in together:
        thread.start()
    for thread in together:
        thread.join()
    archives.archive(client, cache.name, tmp_path / "b")
    both = archives.open(tmp_path / "b")
    assert rows_of(both.history()) == events_of(cache), outcomes
    both.verify()


def test_what_is_no_archive_of_the_cache_is_refused(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache, rounds=1)
    archives.archive(client, cache.name, tmp_path / "a")
    client.create_cache(f"{cache.name}.other", before=True)
    with pytest.raises(ArchiveRefused, match="is another"):
        archives.archive(client, f"{cache.name}.other", tmp_path / "a")
    client.drop_cache(cache.name)
    client.create_cache(cache.name, before=True)
    with pytest.raises(ArchiveRefused, match="made again since"):
        archives.archive(client, cache.name, tmp_path / "a")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(ArchiveRefused, match="has files"):
        archives.archive(client, cache.name, tmp_path / "full")
    for address in ("ftp://host/orders", "file:///tmp/orders", Path("s3://bucket/orders")):
        with pytest.raises(ArchiveRefused, match="give a path, or the address of an object store"):
            archives.archive(client, cache.name, address)
    with pytest.raises(ArchiveRefused, match="give a path, or the address"):
        archives.archive(client, cache.name, "s3:/bucket/orders")
    with pytest.raises(ArchiveRefused, match="it is no folder"):
        archives.archive(client, cache.name, tmp_path / "full" / "file")
    for name in ("a%20b", "100%25/a", "a\\b"):
        with pytest.raises(ArchiveRefused, match="in a path as another letter"):
            archives.archive(client, cache.name, tmp_path / name)
    client.cache(cache.name).put("k", {"n": 1})
    archives.archive(client, cache.name, tmp_path / "100% ü#x?y z")
    assert archives.open(tmp_path / "100% ü#x?y z").verify().events == 1
    assert {found.name for found in tmp_path.iterdir()} == {"a", "full", "100% ü#x?y z"}
    with pytest.raises(ArchiveRefused, match="there is none"):
        archives.open(tmp_path / "nowhere")


def test_what_retention_took_is_an_error_and_no_gap(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache, rounds=1)
    archives.archive(client, cache.name, tmp_path / "a")
    write(cache, rounds=3)
    client.alter_cache(cache.name, retain_events=100)
    client.run_retention(cache.name)
    with pytest.raises(EventsTrimmed):
        archives.archive(client, cache.name, tmp_path / "a")
    assert archives.open(tmp_path / "a").verify().events == 202


def test_where_retention_took_everything_that_comes_next_that_is_said_and_not_that_there_is_nothing(
    client: blocking.Client, cache: blocking.Cache, tmp_path: Path
) -> None:
    write(cache, rounds=1)
    archives.archive(client, cache.name, tmp_path / "a")
    write(cache, rounds=1)
    remove_all(client, cache)
    with pytest.raises(EventsTrimmed, match="nothing after it is kept"):
        archives.archive(client, cache.name, tmp_path / "a")
    assert archives.archive(client, cache.name, tmp_path / "anew").events == 0


@pytest.mark.parametrize("how", ["removed", "cut", "flipped", "shorter", "retyped", "another"])
def test_a_damaged_file_is_named_and_nothing_less_is_served(
    client: blocking.Client, cache: blocking.Cache, tmp_path: Path, how: str
) -> None:
    write(cache)
    archives.archive(client, cache.name, tmp_path / "a", round_events=300)
    found = archives.open(tmp_path / "a")
    whole = rows_of(found.history())
    for path in (tmp_path / "a").rglob("*.parquet"):
        data = path.read_bytes()
        if how == "removed":
            path.unlink()
        elif how == "cut":
            path.write_bytes(data[: len(data) // 2])
        elif how == "flipped":
            path.write_bytes(data[:60] + bytes([data[60] ^ 4]) + data[61:])
        elif how == "shorter":
            pq.write_table(pq.ParquetFile(path).read().slice(1), path)
        elif how == "retyped":
            table = pq.ParquetFile(path).read()
            pq.write_table(
                table.set_column(table.schema.get_field_index("offset"), "offset", table.column("offset").cast(pa.int32())), path
            )
        else:
            table = pq.read_table(path)
            pq.write_table(table.set_column(table.schema.get_field_index("value"), "value", pa.array(["{}"] * len(table))), path)
        if how != "another":
            served: list[tuple[object, ...]] = []
            said = {
                "shorter": r": it has \d+ rows, and had \d+; \d+ of \d+ were read; put",
                "retyped": ": its columns are int64, int32, int32, ",
            }
            with pytest.raises(ArchiveDamaged, match=path.name + said.get(how, "")):
                served.extend(row for batch in found.history() for row in rows_of(iter([batch])))
            assert served == whole[: len(served)]
        with pytest.raises(ArchiveDamaged):
            found.verify()
        path.write_bytes(data)
    assert found.verify().events == 602


def test_a_log_with_a_gap_is_refused_in_a_line(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache)
    archives.archive(client, cache.name, tmp_path / "a", round_events=200)
    (tmp_path / "a" / "_delta_log" / f"{2:020}.json").unlink()
    with pytest.raises(ArchiveRefused) as refused:
        archives.open(tmp_path / "a")
    assert len(str(refused.value).splitlines()) == 1
    assert len(refused.value.why) <= 400


def test_what_is_not_archived_yet_is_held_back_and_goes_when_it_is(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache, rounds=1)
    client.alter_cache(cache.name, retain_events=10)
    archives.archive(client, cache.name, tmp_path / "a", hold=1 << 30)
    write(cache)
    client.run_retention(cache.name)
    done = archives.archive(client, cache.name, tmp_path / "a", hold=1 << 29)
    assert (done.events, client.listeners.describe(f"archive.{cache.name}").hold_bytes) == (602, 1 << 29)
    archives.open(tmp_path / "a").verify()
    client.run_retention(cache.name)
    assert cache.log_ends().first_id > done.after
    write(cache, rounds=1)
    done = archives.archive(client, cache.name, tmp_path / "a")
    client.run_retention(cache.name)
    assert cache.log_ends().first_id > done.after, "a hold that is there moves on, whoever archives"


def test_a_round_that_is_not_committed_is_held_back_all_the_same(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache, rounds=1)
    path = tmp_path / "a"
    archives.archive(client, cache.name, path, hold=1 << 30)
    write(cache)

    in_the_way = path / "_delta_log" / f"{len(list(path.glob('_delta_log/*.json'))):020}.json"

    def lost_before_commit(ranges: Sequence[Range], _values: str) -> Iterator[Made]:
        yield from [write_range(cache, wanted, place_of(path)) for wanted in ranges]
        in_the_way.mkdir()

    with pytest.raises((EventLogError, OSError)):
        archives.archive(client, cache.name, path, run=lost_before_commit)
    in_the_way.rmdir()
    assert client.listeners.describe(f"archive.{cache.name}").position_id == archives.open(path).upto
    client.alter_cache(cache.name, retain_events=10)
    client.run_retention(cache.name)
    archives.archive(client, cache.name, path)
    archives.open(path).verify()


def test_an_audit_says_of_how_many_events_the_log_has_forgotten_the_digests(
    client: blocking.Client, node: NodeProcess, cache: blocking.Cache, tmp_path: Path
) -> None:
    write(cache)
    archives.archive(client, cache.name, tmp_path / "a", round_events=200)

    def told() -> str:
        return node.command("pipeline", "audit", cache.name, "--archive", str(tmp_path / "a")).stdout.decode()

    assert archives.open(tmp_path / "a").verify().undigested == 0
    assert ": 602 events in " in told()
    assert "forgotten" not in told()
    DeltaTable(tmp_path / "a").create_checkpoint()
    for version in range(3):  # as Delta's own cleanup does after 90 days: that of the table itself, and those of two rounds
        (tmp_path / "a" / "_delta_log" / f"{version:020}.json").unlink()
    found = archives.open(tmp_path / "a").verify()
    assert (found.events, found.undigested > 300) == (602, True)
    assert f": {602 - found.undigested} events in " in told()
    assert f"of {found.undigested} more the table has forgotten the digests" in told()


def test_an_audit_finds_what_differs_and_compares_what_the_nodes_keep(
    client: blocking.Client, cache: blocking.Cache, tmp_path: Path
) -> None:
    write(cache)
    archives.archive(client, cache.name, tmp_path / "a", round_events=200)
    found = archives.audit(client, cache.name, archives.open(tmp_path / "a"))
    assert (found.events, found.differences, found.verified.events) == (602, (), 602)
    client.alter_cache(cache.name, retain_events=50)
    client.run_retention(cache.name)
    found = archives.audit(client, cache.name, archives.open(tmp_path / "a"))
    assert 50 <= found.events < 602
    assert (found.differences, found.verified.events) == ((), 602)
    other = client.create_cache(f"{cache.name}.other", before=True)
    write(other)
    with pytest.raises(ArchiveRefused, match="is another"):
        archives.audit(client, other.name, archives.open(tmp_path / "a"))


def value_changed(events: pa.Table, at: int) -> pa.Table:
    values = events.column("value").to_pylist()
    values[at] = "{}"
    return events.set_column(events.schema.get_field_index("value"), "value", pa.array(values, events.schema.field("value").type))


def id_changed(events: pa.Table, at: int) -> pa.Table:
    ids = [id_ - (place == at) for place, id_ in enumerate(events.column("id").to_pylist())]
    return events.set_column(events.schema.get_field_index("id"), "id", pa.array(ids, pa.int64()))


@pytest.mark.parametrize(
    ("lie", "at", "differs"),
    [
        (value_changed, 7, (True, True, ("value",))),
        (id_changed, 3, (False, True, ())),
    ],
)
def test_an_audit_names_the_hours_of_a_segment_that_are_not_alike_and_the_first_event(
    client: blocking.Client,
    cache: blocking.Cache,
    tmp_path: Path,
    lie: Callable[..., pa.Table],
    at: int,
    differs: tuple[bool, bool, tuple[str, ...]],
) -> None:
    write(cache, rounds=1)

    def lying(ranges: Sequence[Range], _values: str) -> Iterator[Made]:
        for wanted in ranges:
            whole = read_range(cache, wanted)
            parts = [whole.slice(low, high - low) for low, high in bounds_of(whole)]
            lied = pa.concat_tables([lie(part, at) if part.column("segment")[0].as_py() == of else part for part in parts])
            made = tuple(write_parts(place_of(tmp_path / "a"), lied, name="x"))
            yield Made(parts=made, events=len(lied), digest=digest_of(lied), ends={})

    events = list(cache.events())
    of = next(event.segment for event in events if event.segment != events[-1].segment)  # the very last event shows that all are there
    own = [event for event in events if event.segment == of]
    archives.archive(client, cache.name, tmp_path / "a", run=lying)
    filed = [row for row in rows_of(archives.open(tmp_path / "a").history()) if row[1] == of]
    found = archives.audit(client, cache.name, archives.open(tmp_path / "a"))
    first = found.first
    assert first is not None
    assert first.id == (own[at].id if first.in_log else own[at].id - 1)
    assert (first.segment, first.in_log, first.in_archive, first.columns) == (of, *differs)
    assert {one.segment for one in found.differences} == {of}
    assert len(found.differences) == found.differing
    assert [one.hour_ms for one in found.differences] == sorted({one.hour_ms for one in found.differences})
    assert first.hour_ms == found.differences[0].hour_ms == time_of(first.id) // 3_600_000 * 3_600_000
    assert (sum(one.in_log for one in found.differences), sum(one.in_archive for one in found.differences)) == (len(own), len(filed))
    until = archives.audit(client, cache.name, archives.open(tmp_path / "a"), until=first.id - 1)
    assert (until.upto, until.differences, until.first) == (max(first.id - 1, until.after), (), None)
    upto = archives.audit(client, cache.name, archives.open(tmp_path / "a"), until=first.id)
    assert upto.first == first


def test_an_audit_of_the_command_line_names_the_first_difference_and_compares_a_mirror_of_this_cache_alone(
    client: blocking.Client, cache: blocking.Cache, node: NodeProcess, tmp_path: Path
) -> None:
    write(cache, rounds=1)

    def lying(ranges: Sequence[Range], _values: str) -> Iterator[Made]:
        for wanted in ranges:
            lied = value_changed(read_range(cache, wanted), 0)
            made = tuple(write_parts(place_of(tmp_path / "a"), lied, name="x"))
            yield Made(parts=made, events=len(lied), digest=digest_of(lied), ends={})

    archives.archive(client, cache.name, tmp_path / "a", run=lying)
    words = ("pipeline", "audit", cache.name, "--archive", str(tmp_path / "a"))

    def ended(code: int, *more: str) -> subprocess.CompletedProcess[bytes]:
        done = node.command(*words, *more, ok=False)
        assert done.returncode == code, done.stderr
        return done

    told = json.loads(ended(1, "--json").stdout)
    first, [hour] = told["first_difference"], told["differences"]
    assert (told["differing"], told["mirror"], first["columns"], first["id_str"]) == (1, None, ["value"], str(first["id"]))
    assert first["hour"] == hour["hour"] == time.strftime("%Y-%m-%dT%H:00Z", time.gmtime(time_of(first["id"]) / 1000))
    assert f"event {first['id']} of segment {first['segment']}, in value".encode() in ended(1).stdout
    assert b"of 0 events no hours of segments differ" in ended(0, "--until", "24h").stdout
    assert b"MIRROR_NOT_FOUND" in ended(1, "--mirror", "none").stderr


def test_hours_of_a_segment_are_told_apart() -> None:
    def of_hours(*hours: float) -> pa.Table:
        ids = [int(hour * 3_600_000) << TIME_SHIFT for hour in hours]
        return pa.table({"id": pa.array(ids, pa.int64()), "segment": pa.array([5] * len(ids), pa.int32())})

    kept, filed = of_hours(1.1, 1.2, 2.0, 2.999, 3.5), of_hours(1.1, 1.2, 2.999, 3.5, 7.0)
    begin = time_of(0)
    assert [((one.hour_ms - begin) // 3_600_000, one.in_log, one.in_archive) for one in unlike_hours(kept, filed)] == [(2, 2, 1), (7, 0, 1)]
    first = first_unlike(kept, filed)
    assert (first.segment, (first.hour_ms - begin) // 3_600_000, first.in_log, first.in_archive) == (5, 2, True, False)
    assert first_unlike(filed, of_hours(1.1)).id == int(1.2 * 3_600_000) << TIME_SHIFT


def test_an_hour_in_two_stretches_is_one_and_of_many_the_first_are_told() -> None:
    def hour(number: int, segment: int) -> HourDifference:
        return HourDifference(segment=segment, hour_ms=number, in_log=2, in_archive=1)

    hours = DifferingHours()
    for one in (hour(8, 1), hour(7, 2), hour(7, 1)):
        hours.add(one)
    hours.settle(8)
    assert (hours.count, hours.first) == (2, [hour(7, 1), hour(7, 2)])
    hours.add(hour(8, 1))
    hours.settle(9)
    assert (hours.count, hours.first[2]) == (3, HourDifference(segment=1, hour_ms=8, in_log=4, in_archive=2))
    for segment in range(DIFFERENCES_MAX):
        hours.add(hour(9, segment))
    hours.settle(10)
    assert (hours.count, len(hours.first), hours.first[-1]) == (DIFFERENCES_MAX + 3, DIFFERENCES_MAX, hour(9, DIFFERENCES_MAX - 4))


def test_a_terminal_sees_a_bar_of_the_rounds(cache: blocking.Cache, node: NodeProcess, tmp_path: Path) -> None:
    write(cache, rounds=30)
    shown = seen_on_terminal(
        "pipeline", "archive", cache.name, "--to", str(tmp_path / "a"), "--round-events", "40", "--server", node.address
    )
    assert re.search(rb"archiving  \[#*\.*\] +\d+%  [\d,]+ events  [\d,]+/s", shown)
    assert re.search(rb"\d+ events up to id \d+\r\n(\r[^\n]*\r *\r)?$", shown), "the last bar is taken away"


def test_a_terminal_sees_how_far_what_reads_archives_is(
    client: blocking.Client, cache: blocking.Cache, node: NodeProcess, tmp_path: Path
) -> None:
    write(cache, rounds=3)
    archives.archive(client, cache.name, tmp_path / "a", round_events=40)
    last = (cache.name, "--archive", str(tmp_path / "a"), "--server", node.address)
    rollup = ("rollup", str(tmp_path / "a"), "--window", "1ms", "--after", "0", "--to", str(tmp_path / "r"))
    for words, whats in (
        (("audit", *last), [b"auditing  BAR events verified", b"auditing  BAR events compared"]),
        (
            ("rebuild", "--into", f"{cache.name}-again", "--verify", *last),
            [b"rebuilding  BAR events read", b"rebuilding  BAR entries written", b"rebuilding  BAR entries compared"],
        ),
        (rollup, [rb"rolling up  [\d,]+ events  [\d,]+/s"]),
        (("compact", str(tmp_path / "a"), "--older-than", "1ms"), [b"merging  BAR events"]),
    ):
        assert seen_on_terminal("pipeline", *words, "--json") == b""
        shutil.rmtree(tmp_path / "r", ignore_errors=True)
        if words[0] == "compact":
            cache.put("k", {"n": 0})
            archives.archive(client, cache.name, tmp_path / "a")
        if words[0] == "rebuild":
            client.drop_cache(f"{cache.name}-again")
        shown = seen_on_terminal("pipeline", *words)
        for what in whats:
            assert re.search(what.replace(b"BAR", rb"\[#*\.*\] +\d+%  [\d,]+"), shown), (what, shown)
        assert shown.endswith((b" \r", b"\r\n")), "the last bar is taken away"


def test_killed_anywhere_it_goes_on_where_the_table_ends(cache: blocking.Cache, node: NodeProcess, tmp_path: Path) -> None:
    write(cache, rounds=30)
    words = ("pipeline", "archive", cache.name, "--to", str(tmp_path / "a"), "--round-events", "40", "--server", node.address)
    command = [sys.executable, "-m", "eventlog_cli", *words]
    kills, chance = 0, random.Random(24)
    for _ in range(PLACES):
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as running:
            assert running.stderr is not None
            lines = chance.randrange(5)
            while lines and running.stderr.readline():  # a line a round
                lines -= 1
            time.sleep(chance.uniform(0.0, 0.05))
            kills += running.poll() is None
            running.kill()
    assert kills == PLACES, "the log was too short"
    done = subprocess.run([*command, "--json"], capture_output=True, check=True, text=True, timeout=60)
    told = json.loads(done.stdout)
    assert (told["pipeline"], told["cache"], told["upto_str"]) == ("archive", cache.name, str(told["upto"]))
    assert rows_of(archives.open(tmp_path / "a").history()) == events_of(cache)
    audit = [
        sys.executable,
        "-m",
        "eventlog_cli",
        "pipeline",
        "audit",
        cache.name,
        "--archive",
        str(tmp_path / "a"),
        "--server",
        node.address,
    ]
    found = subprocess.run([*audit, "--json"], capture_output=True, check=True, text=True, timeout=60)
    assert json.loads(found.stdout)["events"] == len(events_of(cache))


def test_tasks_of_one_segment_each_are_a_round_that_verifies(client: blocking.Client, cache: blocking.Cache, tmp_path: Path) -> None:
    write(cache, rounds=1, keys=40)

    def apart(ranges: Sequence[Range], _values: str) -> Iterator[Made]:
        for wanted in ranges:
            yield from (write_range(cache, replace(wanted, segments=(segment,)), place_of(tmp_path / "a")) for segment in wanted.segments)

    for _ in range(2):
        archives.archive(client, cache.name, tmp_path / "a", run=apart)
        cache.put_many([(f"k{key}", key) for key in range(10)])
    archives.archive(client, cache.name, tmp_path / "a", run=apart)
    found = archives.open(tmp_path / "a")
    assert found.verify().events == len(events_of(cache))
    assert rows_of(found.history()) == events_of(cache)
    ids = [event[0] for event in events_of(cache)]
    assert [found.cut(0, count) for count in (1, 7, 50)] == [(ids[count - 1], count) for count in (1, 7, 50)]
    assert found.cut(ids[20], 5) == (ids[25], 5)
    assert found.cut(ids[20], 0) == (ids[-1], len(ids) - 21)


def test_a_round_that_does_not_join_on_or_lacks_something_is_not_committed(
    client: blocking.Client, cache: blocking.Cache, tmp_path: Path
) -> None:
    write(cache, rounds=1)
    archives.archive(client, cache.name, tmp_path / "a")
    write(cache, rounds=1)

    def lying(change: Callable[[Made], Made]) -> Callable[[Sequence[Range], str], Iterator[Made]]:
        return lambda ranges, _values: (change(write_range(cache, wanted, place_of(tmp_path / "a"))) for wanted in ranges)

    def shifted(made: Made) -> Made:
        return replace(made, ends={segment: (first + (segment == 5), last) for segment, (first, last) in made.ends.items()})

    with pytest.raises(CorruptData, match="segment 5: its next offset"):
        archives.archive(client, cache.name, tmp_path / "a", run=lying(shifted))
    with pytest.raises(CorruptData, match="events were read, and 202 planned"):
        archives.archive(client, cache.name, tmp_path / "a", run=lying(lambda made: replace(made, events=made.events - 1)))
    assert archives.open(tmp_path / "a").verify().events == 202
    table = read_range(cache, Range(after=0, upto=ID_MAX, segments=tuple(range(client.segments_count))))
    for gap in (table.filter(np.arange(len(table)) != 9), table.take([0, 2, 1, *range(3, len(table))])):
        with pytest.raises(CorruptData, match="gap in its offsets"):
            ends_of(gap, "c")
