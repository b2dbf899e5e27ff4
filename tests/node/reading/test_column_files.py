"""Filtered history from files of columns: the same answers as from the log, and the log whenever a file cannot be trusted."""

import random
from dataclasses import replace

import numpy as np
import pytest

from eventlog.ids import ID_MAX
from eventlog.node.reading.column_files import ColumnFiles, ColumnPace
from eventlog.read import token
from eventlog.read.cursor import Cursor
from eventlog.segment.keys import log_range
from eventlog.wire.eventlog_pb2 import Filter
from tests.loops import until
from tests.node.asking import ask, by_id, fill, read_all, run
from tests.node.reading.test_answers_filtered import by_hand, wanted_of

SEVENS = Filter(where="7")


AT_ONCE = ColumnPace(log_bytes=2_000, look_s=0.001, quiet_s=0.0, rest_times=0)
"""Small files, made without waiting."""


@pytest.fixture
def files(tmp_path):
    return ColumnFiles(tmp_path / "columns", pace=AT_ONCE)


def run_filed(scenario, files, **options):
    run(by_hand(scenario), files=files, tail_bytes=1_000, step_events=7, step_bytes=500, **options)


def last_of(node):
    return max(row.id for row in node.rows[1])


async def filed(node, files, **asked):
    """Ask with a filter, and wait until files hold all there is."""
    await read_all(node, filter=SEVENS, **asked)
    await until(lambda: reached(files) >= last_of(node))


async def filled(node, files):
    """Return a cache that files hold all of."""
    cache = node.cache()
    fill(node, cache, 60)
    await filed(node, files)
    return cache


def reached(files):
    """Return up to where files hold everything."""
    at = 0
    for one in files.of(1):
        at = one.span.upto if one.span.after <= at else at
    return at


def empty_log(node):
    for segment in range(node.segments):
        node.store.trim([log_range(segment, 1, after=0, upto=ID_MAX - 1)], [])


@pytest.mark.parametrize("seed", range(8))
def test_files_answer_what_the_log_would(seed, files):
    chance = random.Random(seed)

    async def scenario(node):
        cache, other = node.cache(), node.cache(2, "other")
        fill(node, cache, 60, seed=seed, other=other)
        await filed(node, files)
        assert len(files.of(1)) > 1
        assert not files.of(2)
        fill(node, cache, chance.choice((0, 1, 60)), seed=seed + 1, other=other)
        segments = chance.choice(([], [0, 2, 3]))
        expected = [row for row in wanted_of(node.rows[1]) if not segments or row.segment in segments]
        answer, found = await read_all(node, filter=SEVENS, segments=segments, max_events=chance.choice((1, 3, 50)))
        assert by_id(found) == expected
        await filed(node, files)
        empty_log(node)
        again, found = await read_all(node, filter=SEVENS, segments=segments, max_bytes=chance.choice((0, 300)))
        assert by_id(found) == expected, "the files hold it all"
        if segments:
            at, before = token.decode(again.position).at, token.decode(answer.position).at
            assert at.offsets.tolist() == before.offsets.tolist() == [cache.next_offsets[segment] for segment in segments]
        await node.reads.stop()

    run_filed(scenario, files)


@pytest.mark.parametrize("moment_s", [60.0, 0.0])
def test_an_answer_goes_on_from_file_to_file_for_a_moment(moment_s, tmp_path):
    files = ColumnFiles(tmp_path / "columns", pace=replace(AT_ONCE, moment_s=moment_s))

    async def scenario(node):
        await filled(node, files)
        empty_log(node)
        expected = wanted_of(node.rows[1])
        answer, found = await ask(node, filter=SEVENS, max_events=len(expected) - 1)
        if moment_s:
            assert by_id(found) == expected[:-1], "all that was asked for, though no file has it all"
            assert len(answer.parts) > 1
            return
        assert by_id(found) == [row for row in expected if row.id <= answer.last_id]
        assert sum(one.span.after < answer.last_id for one in files.of(1)) < len(files.of(1)), "others have their turn"

    run_filed(scenario, files)


def test_no_answer_grows_beyond_what_was_asked_for_with_the_next_file(files):
    async def scenario(node):
        await filled(node, files)
        empty_log(node)
        answer, found = await ask(node, filter=SEVENS, max_bytes=300)
        while not answer.end:
            answer, rows = await ask(node, filter=SEVENS, max_bytes=300, position=answer.position)
            assert len(answer.parts) <= 1 or sum(part.length for part in answer.parts) <= 600
            found += rows
        assert by_id(found) == wanted_of(node.rows[1])

    run_filed(scenario, files)


@pytest.mark.parametrize("harm", ["flip", "cut", "remove"])
def test_a_harmed_file_is_dropped_and_the_log_read(harm, files):
    async def scenario(node):
        await filled(node, files)
        harmed = files.of(1)[1]
        data = harmed.path.read_bytes()
        if harm == "remove":
            harmed.path.unlink()
        else:
            harmed.path.write_bytes(bytes([data[0] ^ 4]) + data[1:] if harm == "flip" else data[:3])
        _, found = await read_all(node, filter=SEVENS)
        assert by_id(found) == wanted_of(node.rows[1])
        assert harmed not in files.of(1)
        await filed(node, files)

    run_filed(scenario, files)


def test_what_is_trimmed_is_in_no_answer_and_its_files_go(files):
    async def scenario(node):
        cache = await filled(node, files)
        paths, cut = [one.path for one in files.of(1)], files.of(1)[1].span.upto + 1
        node.trim(cache, cut)
        assert not paths[0].exists()
        assert paths[-1].exists()
        _, found = await read_all(node, filter=SEVENS, earliest=True)
        assert by_id(found) == wanted_of(node.rows[1])

    run_filed(scenario, files)


def test_nothing_is_answered_from_files_when_copies_moved(files, tmp_path):
    async def scenario(node):
        await filled(node, files)
        empty_log(node)
        here = np.ones(node.segments, bool)
        here[1] = False
        node.reads.place(here)
        assert not files.of(1)
        assert not list((tmp_path / "columns").iterdir())
        assert files.nbytes == 0

    run_filed(scenario, files)


def test_files_of_some_segments_answer_for_these_alone(files):
    async def scenario(node):
        fill(node, node.cache(), 60)
        node.reads.place(np.array([True, False, True, True]))
        asked = [0, 2, 3]
        await filed(node, files, segments=asked)
        empty_log(node)
        _, found = await read_all(node, filter=SEVENS, segments=asked)
        assert by_id(found) == [row for row in wanted_of(node.rows[1]) if row.segment in asked]
        assert files.find(1, Cursor.at_id(node.segments, 0, asked=np.array(asked)))
        assert not files.find(1, Cursor.at_id(node.segments, 0, asked=np.array([0, 1])))
        assert not files.find(1, Cursor(node.segments, 0))

    run_filed(scenario, files)


def test_a_file_that_was_begun_before_all_were_dropped_is_not_kept(files, tmp_path):
    async def scenario(node):
        await filled(node, files)
        first = files.of(1)[0]
        before = files.clears
        files.clear()
        assert files.add(first.span, first.contents, [b"late"], clears=before)
        assert not files.of(1)
        assert not list((tmp_path / "columns").iterdir())

    run_filed(scenario, files)


def test_nothing_is_made_where_there_is_no_room(tmp_path):
    files = ColumnFiles(tmp_path / "columns", has_room=lambda _: False, pace=AT_ONCE)

    async def scenario(node):
        fill(node, node.cache(), 60)
        for _ in range(20):
            _, found = await read_all(node, filter=SEVENS)
            assert by_id(found) == wanted_of(node.rows[1])
        assert not files.of(1)

    run_filed(scenario, files)


def test_no_more_is_kept_than_is_allowed(tmp_path):
    files = ColumnFiles(tmp_path / "columns", bytes_max=8_000, pace=AT_ONCE)

    async def scenario(node):
        fill(node, node.cache(), 200)
        await read_all(node, filter=SEVENS)
        await until(lambda: not files.has_room(4_000))
        _, found = await read_all(node, filter=SEVENS)
        assert by_id(found) == wanted_of(node.rows[1])
        assert sum(one.path.stat().st_size for one in files.of(1)) == files.nbytes <= 8_000

    run_filed(scenario, files)


def test_a_dropped_cache_leaves_no_files(files, tmp_path):
    async def scenario(node):
        cache = await filled(node, files)
        node.caches.drop(cache)
        node.reads.dropped(cache)
        assert not list((tmp_path / "columns").iterdir())

    run_filed(scenario, files)


def test_a_start_begins_without_files(files, tmp_path):
    (tmp_path / "columns").mkdir()
    (tmp_path / "columns" / "1-1").write_bytes(b"of an earlier process")
    files.open()
    assert not list((tmp_path / "columns").iterdir())


def test_a_node_that_cannot_make_files_goes_without(tmp_path):
    (tmp_path / "file").write_bytes(b"where a directory should be")
    files = ColumnFiles(tmp_path / "file" / "columns", pace=AT_ONCE)
    files.open()
    assert not files.has_room(1)


def test_readers_without_a_filter_have_no_files_made(files):
    async def scenario(node):
        fill(node, node.cache(), 60)
        for _ in range(20):
            await read_all(node)
        assert not files.of(1)
        answer, _ = await ask(node, filter=SEVENS)
        assert answer.last_id

    run_filed(scenario, files)
