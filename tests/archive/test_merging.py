"""Files of an archive merged: fewer of them, the same events, whoever reads or dies meanwhile."""

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from eventlog import blocking
from eventlog.errors import ArchiveDamaged, ArchiveRefused, InvalidArgument
from eventlog.integrations import archive as archives
from eventlog.integrations.archive.digest import digest_of
from eventlog.integrations.archive.files import FileMemory, write_parts
from eventlog.integrations.archive.merging import merges_of
from eventlog.integrations.archive.place import place_of
from eventlog.integrations.archive.ranges import Range
from eventlog.integrations.archive.rounds import Made, read_range, write_range
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


def pressed(client: blocking.Client, name: str, path: Path) -> int:
    """Archive a cache of events that are large and take little room in files; return about how many bytes they are in memory."""
    cache = client.create_cache(name)
    for number in range(12):
        cache.put_many([(f"k{key}", {"n": number, "text": f"{key:04}" * 500}) for key in range(2_000)])
        if number % 3 == 2:
            archives.archive(client, name, path)
    return 12 * 2_000 * 2_000


MEMORY = """
import sys
import pyarrow as pa
from eventlog.integrations import archive
from eventlog.integrations.archive.files import FileMemory
memory = FileMemory(whole_bytes=0, read_bytes=1 << 20, part_bytes=4 << 20, row_group_bytes=2 << 20)
{doing}
print(pa.default_memory_pool().max_memory())
"""


def arrow_bytes(doing: str, path: Path) -> int:
    """Return how many bytes Arrow has at most in a process that does something."""
    done = subprocess.run(
        [sys.executable, "-c", MEMORY.format(doing=doing), str(path)], capture_output=True, check=True, text=True, timeout=60
    )
    return int(done.stdout)


def test_of_what_is_merged_or_read_in_the_order_of_ids_few_rows_are_in_memory(client: blocking.Client, tmp_path: Path) -> None:
    path = tmp_path / "a"
    nbytes, ids = pressed(client, "pressed", path), ids_of(path)
    assert 0 < arrow_bytes("archive.compact(sys.argv[1], older_than_ms=0, memory=memory)", path) < nbytes
    assert len(archives.open(path).files) == 1
    assert ids_of(path) == ids
    assert 0 < arrow_bytes("for _ in archive.open(sys.argv[1], memory=memory).history(batch_rows=500): pass", path) < nbytes
    assert 0 < arrow_bytes("for _ in archive.open(sys.argv[1], memory=memory).stretches(): pass", path) < 2 * nbytes, (
        "of whole rounds, which are four"
    )
    assert archives.open(path).verify().events == len(ids)


def test_rows_of_a_merged_file_are_by_segment_and_id_and_the_table_says_what_is_in_it(client: blocking.Client, tmp_path: Path) -> None:
    filled(client, "ordered", tmp_path / "a")
    archives.compact(tmp_path / "a", older_than_ms=0, memory=FileMemory(read_bytes=1, row_group_bytes=10_000))  # row by row
    [path] = archives.open(tmp_path / "a").files
    rows = pq.ParquetFile(path)
    assert rows.num_row_groups > 2
    table = rows.read()
    places = list(zip(table.column("segment").to_pylist(), table.column("id").to_pylist(), strict=True))
    assert places == sorted(set(places))
    [told] = pa.table(DeltaTable(tmp_path / "a").get_add_actions(flatten=True)).to_pylist()
    assert told["num_records"] == len(table) == 600
    for name in ("id", "segment", "offset", "key", "time"):
        assert (told[f"min.{name}"], told[f"max.{name}"]) == tuple(pc.min_max(table.column(name)).as_py().values())
    nulls = {name: told[f"null_count.{name}"] for name in ("id", "key", "value", "before")}
    assert nulls == {name: table.column(name).null_count for name in nulls}
    assert nulls["before"] == 100


def test_merged_files_are_read_part_by_part_and_no_round_in_two(client: blocking.Client, tmp_path: Path) -> None:
    cache = filled(client, "parted", tmp_path / "a")
    archives.compact(tmp_path / "a", older_than_ms=0)
    found = archives.open(tmp_path / "a")
    whole, rounds = found.verify(), len(list(found.stretches()))
    assert rounds == 1
    found = archives.open(tmp_path / "a", memory=FileMemory(whole_bytes=0, part_bytes=2_000))
    stretches = list(found.stretches())
    assert len(stretches) > 3
    for own, table in stretches:
        assert sum(one.events for one in own) == len(table)
    assert found.verify() == whole
    ids = [event.id for event in cache.events()]
    assert [id_ for batch in found.history(columns=["id"]) for id_ in batch.column("id").to_pylist()] == ids
    assert [id_ for batch in found.history() for id_ in batch.column("id").to_pylist()] == ids
    part = [id_ for batch in found.history(ids[70], ids[500], columns=["id"]) for id_ in batch.column("id").to_pylist()]
    assert part == ids[71:501]
    audited = archives.audit(client, "parted", found, until=ids[333])
    assert (audited.events, audited.differing) == (334, 0)


def test_more_files_than_are_open_at_once_become_one_all_the_same(client: blocking.Client, tmp_path: Path) -> None:
    filled(client, "many", tmp_path / "a")
    before = len(archives.open(tmp_path / "a").files)
    heard: list[tuple[str, int, int]] = []
    done = archives.compact(tmp_path / "a", older_than_ms=0, memory=FileMemory(files_max=4), told=lambda *told: heard.append(told))
    assert (done.events, done.files_before, done.files_after) == (600, before, 1)
    assert (done.cache, done.upto) == ("many", max(ids_of(tmp_path / "a")))
    assert done.after < min(ids_of(tmp_path / "a"))
    assert done.bytes_after == Path(archives.open(tmp_path / "a").files[0]).stat().st_size < done.bytes_before
    assert {what for what, _, _ in heard} == {"events"}
    assert [number for _, number, _ in heard] == sorted(number for _, number, _ in heard)
    assert all(number < whole for _, number, whole in heard)


@pytest.mark.parametrize("wrong", ["an event of it is in another file", "its rows are not by segment and id"])
def test_nothing_stays_of_a_merge_that_meets_rows_out_of_place(client: blocking.Client, tmp_path: Path, wrong: str) -> None:
    cache = client.create_cache(f"wrong-{len(wrong)}")
    path = tmp_path / "a"

    def lying(ranges: Sequence[Range], _values: str) -> Iterator[Made]:
        for wanted in ranges:
            rows = read_range(cache, wanted)
            if "not by segment" in wrong:
                rows = rows.take(list(reversed(range(len(rows)))))
            parts = [part for _ in range(2) for part in write_parts(place_of(path), rows, name="x")]
            yield Made(parts=tuple(parts), events=len(rows), digest=digest_of(rows), ends={})

    for number in range(2):
        cache.put_many([(f"k{key}", {"n": number}) for key in range(100)])
        archives.archive(client, cache.name, path, run=lying)
    before = set(path.rglob("*.parquet"))
    with pytest.raises(ArchiveDamaged, match=wrong):
        archives.compact(path, older_than_ms=0)
    assert set(path.rglob("*.parquet")) == before
