"""Files of an archive merged: fewer of them, the same events, whoever reads or dies meanwhile."""

import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from deltalake import DeltaTable

from eventlog import blocking
from eventlog.errors import ArchiveDamaged, ArchiveRefused, InvalidArgument
from eventlog.integrations import archive as archives
from eventlog.integrations.archive.merging import merges_of
from eventlog.integrations.archive.place import place_of
from eventlog.integrations.archive.ranges import Range
from eventlog.integrations.archive.rounds import Made, write_range
from eventlog.integrations.archive.table import ArchiveTable, File

pytestmark = [pytest.mark.process, pytest.mark.timeout(120)]


def file(number: int, *, day: str = "2026-11-20", nbytes: int = 10) -> File:
    return File(path=f"day={day}/{number}.parquet", nbytes=nbytes, rows=1, low=number * 10, high=number * 10 + 5)


def test_files_of_a_day_are_merged_up_to_a_size_and_new_ones_are_left() -> None:
    files = [*map(file, range(7)), file(7, nbytes=40), file(8, day="2026-11-21"), file(9, day="2026-11-21"), file(10, day="2026-11-22")]
    merges = [[int(one.path.partition("/")[2].partition(".")[0]) for one in some] for some in merges_of(files, target_bytes=30, upto=1_000)]
    assert merges == [[0, 1, 2], [3, 4, 5], [8, 9]]
    assert [len(some) for some in merges_of(files, target_bytes=30, upto=25)] == [3]
    assert not list(merges_of(files, target_bytes=5, upto=1_000))


def test_merges_of_rounds_with_several_files_do_not_chain_a_day_together() -> None:
    rounds = [
        [replace(file(number), path=f"day=2026-11-20/{number}-{task}", low=number * 10 + task) for task in range(5)] for number in range(9)
    ]
    files = [one for of_round in rounds for one in of_round]
    inside = list(merges_of(files, target_bytes=30, upto=1_000))
    assert [len(some) for some in inside] == [3, 2] * 9, "a round is larger than a file is to be: it is merged by itself"
    assert all(some[0].low // 10 == some[-1].low // 10 for some in inside)
    whole = list(merges_of(files, target_bytes=130, upto=1_000))
    assert [len(some) for some in whole] == [10, 10, 10, 10, 5], "rounds are merged as a whole"
    assert [some[0].low for some in whole] == [0, 20, 40, 60, 80]
    newer = list(merges_of(files, target_bytes=130, upto=35))
    assert [some[-1].low // 10 for some in newer] == [1, 3], "a round with newer events has none of another beside it"


def ids_of(path: Path) -> list[int]:
    return [id_ for batch in archives.open(path).history(columns=["id"]) for id_ in batch.column("id").to_pylist()]


def filled(client: blocking.Client, name: str, path: Path) -> blocking.Cache:
    cache = client.create_cache(name, before=True)
    for number in range(6):
        cache.put_many([(f"k{key}", {"n": number}) for key in range(100)])
        archives.archive(client, name, path, round_events=40)
    return cache


def test_the_same_events_are_in_fewer_files_and_archiving_goes_on(client: blocking.Client, tmp_path: Path) -> None:
    cache = filled(client, "merged", tmp_path / "a")
    before, reading = archives.open(tmp_path / "a"), archives.open(tmp_path / "a").history(batch_rows=50)
    first = next(reading)
    done = archives.compact(tmp_path / "a", older_than_ms=0)
    assert (done.events, done.files_after) == (600, 1)
    assert done.files_before == len(before.files) >= 15
    found = archives.open(tmp_path / "a")
    assert len(found.files) == 1
    assert ids_of(tmp_path / "a") == [event.id for event in cache.events()]
    verified = found.verify()
    assert (verified.events, verified.rounds) == (600, before.verify().rounds)
    assert len(first) + sum(map(len, reading)) == 600, "who read before goes on with the files that there were"
    assert archives.compact(tmp_path / "a", older_than_ms=0).files_before == 0
    cache.put_many([(f"k{key}", {"n": 6}) for key in range(100)])
    archives.archive(client, "merged", tmp_path / "a")
    assert archives.open(tmp_path / "a").verify().events == 700
    assert archives.audit(client, "merged", archives.open(tmp_path / "a")).differences == ()
    assert len(list(archives.event_batches(archives.open(tmp_path / "a"), client, "merged", where="value.n = 3"))) > 0


def test_an_archiver_is_not_disturbed_by_a_merge_in_the_middle_of_its_round(client: blocking.Client, tmp_path: Path) -> None:
    cache = filled(client, "both", tmp_path / "a")
    cache.put_many([(f"k{key}", {"n": 6}) for key in range(100)])

    def merged_meanwhile(ranges: Sequence[Range], _values: str) -> Iterator[Made]:
        archives.compact(tmp_path / "a", older_than_ms=0, target_bytes=20_000)
        yield from (write_range(cache, wanted, place_of(tmp_path / "a")) for wanted in ranges)

    assert archives.archive(client, "both", tmp_path / "a", run=merged_meanwhile).events == 100
    assert archives.open(tmp_path / "a").verify().events == 700
    assert ids_of(tmp_path / "a") == [event.id for event in cache.events()]
    last = ArchiveTable.open(place_of(tmp_path / "a")).last_round()
    assert last is not None


def test_what_no_commit_names_goes_when_it_is_old_and_not_before(client: blocking.Client, tmp_path: Path) -> None:
    filled(client, "vacuumed", tmp_path / "a")
    day = next((tmp_path / "a").glob("day=*"))
    (day / "young.parquet").write_bytes(b"of a round in the making")
    (day / "old.parquet").write_bytes(b"of a round that died")
    os.utime(day / "old.parquet", times=(time.time() - 3 * 86_400,) * 2)
    done = archives.compact(tmp_path / "a", older_than_ms=0, vacuum_hours=24)
    assert done.vacuumed == 1
    assert (day / "young.parquet").exists()
    assert not (day / "old.parquet").exists()
    assert archives.open(tmp_path / "a").verify().events == 600


def test_a_merged_file_stays_for_as_long_as_asked_though_the_log_of_its_removal_is_packed(client: blocking.Client, tmp_path: Path) -> None:
    cache = filled(client, "kept", tmp_path / "a")
    days_ago = {days: time.time() - days * 86_400 for days in (8, 40)}
    for path in (tmp_path / "a").rglob("*.parquet"):
        os.utime(path, times=(days_ago[40],) * 2)
    assert archives.compact(tmp_path / "a", older_than_ms=0).files_after == 1
    merge = max((tmp_path / "a" / "_delta_log").glob("*.json"))
    merge.write_text(re.sub(r'"deletionTimestamp":\d+', f'"deletionTimestamp":{int(days_ago[8] * 1000)}', merge.read_text()))
    DeltaTable(tmp_path / "a").create_checkpoint()
    assert archives.compact(tmp_path / "a", vacuum_hours=9 * 24).vacuumed == 0
    assert archives.compact(tmp_path / "a", vacuum_hours=7 * 24).vacuumed > 0
    with pytest.raises(InvalidArgument, match="90 days"):
        archives.compact(tmp_path / "a", vacuum_hours=91 * 24)
    assert archives.audit(client, cache.name, archives.open(tmp_path / "a")).differing == 0


def test_a_size_of_nothing_and_fewer_than_no_tasks_are_refused(client: blocking.Client, tmp_path: Path) -> None:
    filled(client, "nothing", tmp_path / "a")
    with pytest.raises(InvalidArgument, match="target_bytes"):
        archives.compact(tmp_path / "a", target_bytes=0)
    with pytest.raises(InvalidArgument, match="tasks"):
        archives.archive(client, "nothing", tmp_path / "a", tasks=-1)


def test_nothing_is_merged_with_what_is_damaged_and_one_merges_at_a_time(client: blocking.Client, tmp_path: Path) -> None:
    filled(client, "damaged", tmp_path / "a")
    table = ArchiveTable.open(place_of(tmp_path / "a"))
    path = tmp_path / "a" / table.files()[3].path
    data = path.read_bytes()
    path.write_bytes(data[:-20])
    with pytest.raises(ArchiveDamaged, match=path.name):
        archives.compact(tmp_path / "a", older_than_ms=0)
    path.write_bytes(data)
    archives.compact(tmp_path / "a", older_than_ms=0)
    files = table.files()
    with pytest.raises(ArchiveRefused, match="another process"):
        table.replace(files[:2], [])
    assert archives.open(tmp_path / "a").verify().events == 600
