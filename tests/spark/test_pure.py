"""What decides in the Spark source, without Spark: options, offsets, ranges, columns."""

import json
import pickle
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.client.reports import Plan, PlannedSegment
from eventlog.errors import CacheRecreated, InvalidArgument, PositionMismatch
from eventlog.ids import ID_MAX
from eventlog.integrations.archive.columns import ArchiveColumns
from eventlog.integrations.archive.ranges import (
    PARTITION_BYTES_MIN,
    PARTITION_EVENTS_MIN,
    PARTITIONS_MAX,
    packed,
    ranges_of,
    ranges_of_owners,
)
from eventlog.integrations.spark.columns import check_columns
from eventlog.integrations.spark.offsets import Scope, after_of, id_of, offset_of
from eventlog.integrations.spark.options import Start, check_stream, read_options, sink_options
from eventlog.integrations.spark.releases import check_release
from eventlog.integrations.spark.travelling import own_version

NEEDED = {"servers": "a:1,b:2", "cache": "c"}
SCOPE = Scope(cluster="c-1", cache="orders", cache_id=7)


@pytest.mark.parametrize(
    ("version", "is_taken"), [("3.5.4", False), ("4.0.9", False), ("4.1.0", True), ("4.10.0.dev1", True), ("none", False)]
)
def test_a_release_of_pyspark_that_is_too_old_is_refused_by_name_and_version(version, is_taken):
    if is_taken:
        check_release(version)
        return
    with pytest.raises(InvalidArgument, match=f"PySpark {version} is too old for eventlog, which needs 4.1 or newer"):
        check_release(version)


@pytest.mark.parametrize("options", [read_options(NEEDED | {"startingPosition": "id:5"}), sink_options(NEEDED | {"mode": "insert"})])
def test_what_another_version_has_made_is_refused_by_its_name(options):
    sent = pickle.dumps(options)
    assert pickle.loads(sent) == options
    own = own_version()
    other = "9" * len(own)
    with pytest.raises(InvalidArgument, match=f"the driver has eventlog {other}, and an executor {own}: install one version"):
        pickle.loads(sent.replace(own.encode(), other.encode()))


def test_options_are_read_in_any_case_and_sparks_own_are_left_alone():
    found = read_options(
        NEEDED
        | {
            "StartingPosition": "id:5",
            "endingposition": "earliest",
            "SEGMENTS": "3,0-1",
            "failOnDataLoss": "FALSE",
            "checkpointLocation": "x",
        }
        | {"parameters": "[1]", "where": "value.n = ?", "client.timeout_ms": "5", "client.routing": "any", "path": "y", "select": "a, b"}
    )
    assert (found.servers, found.cache) == (("a:1", "b:2"), "c")
    assert (found.starting_position, found.ending_position) == (Start(id=5), Start(word="earliest"))
    assert (found.segments, found.fail_on_data_loss, found.client) == ((0, 1, 3), False, {"timeout_ms": 5, "routing": "any"})
    assert found.reading() == {"where": "value.n = ?", "parameters": [1], "select": ["a", "b"]}
    assert read_options(NEEDED).reading() == {}


def test_times_are_the_last_id_before_them():
    early = read_options(NEEDED | {"startingPosition": "time:2026-11-20T10:00:00Z"}).starting_position
    late = read_options(NEEDED | {"startingPosition": "time:2026-11-20T11:00:00.001+01:00"}).starting_position
    assert early is not None
    assert late is not None
    assert 0 < early.id < late.id


@pytest.mark.parametrize(
    ("differs", "why"),
    [
        ({"cach": "x"}, "no option 'cach'; did you mean cache?"),
        ({"zzz": "x"}, "there are servers"),
        ({"client.tls": "x"}, "no option client.tls"),
        ({"servers": ""}, "servers is missing"),
        ({"cache": ""}, "cache is missing"),
        ({"startingPosition": "id:x"}, "startingPosition is 'x'"),
        ({"startingPosition": "time:2026-11-20"}, "of which zone"),
        ({"startingPosition": "time:soon"}, "Invalid isoformat"),
        ({"endingPosition": "now"}, "use earliest, latest, id:N, time:ISO, listener:ID or a token"),
        ({"startingPosition": "listener:"}, "use earliest, latest"),
        ({"rows": "state", "asOf": "listener:x"}, "use id:N or time:ISO"),
        ({"maxPartitions": "0"}, "one task at least"),
        ({"holdBytes": "5"}, "holdBytes says how much hold keeps"),
        ({"segments": "5-3"}, "numbers and ranges"),
        ({"parameters": "{"}, "parameters is no JSON"),
        ({"parameters": "[1]"}, "parameters are for where"),
        ({"params": '{"a": 1}', "where": "key = 'a'"}, "params are for filter"),
        ({"failOnDataLoss": "no"}, "use true or false"),
        ({"fetchBytes": str(1 << 40)}, "fetchBytes"),
        ({"partitions": "-1"}, "partitions is '-1'"),
        ({"maxEventsPerTrigger": "1", "maxBytesPerTrigger": "1"}, "one limit"),
    ],
)
def test_what_cannot_be_is_named(differs, why):
    with pytest.raises(InvalidArgument, match=why.replace("(", "\\(")):
        read_options(NEEDED | differs)


@pytest.mark.parametrize(
    ("differs", "why"), [({"rows": "ranges"}, "one plan"), ({"rows": "state"}, "of a moment"), ({"endingPosition": "id:5"}, "AvailableNow")]
)
def test_a_stream_refuses_what_is_for_a_batch(differs, why):
    check_stream(read_options(NEEDED | {"endingPosition": "latest"}))
    with pytest.raises(InvalidArgument, match=why):
        check_stream(read_options(NEEDED | differs))


def test_a_sink_puts_unless_it_is_to_insert_and_shares_its_rate_among_tasks():
    assert (sink_options(NEEDED).mode, sink_options(NEEDED).rate) == ("upsert", 0)
    found = sink_options(NEEDED | {"Mode": "insert", "rate": "500", "tasks": "4"})
    assert (found.mode, found.rate, found.tasks) == ("insert", 500, 4)


@pytest.mark.parametrize(
    ("differs", "why"),
    [
        ({"mode": "put"}, "mode is 'put': use upsert, insert"),
        ({"mode": "insert", "removeColumn": "gone"}, "writes new ones alone"),
        ({"rate": "5"}, "give rate and tasks"),
        ({"tasks": "5"}, "give rate and tasks"),
        ({"rate": "5", "tasks": "6"}, "one event a second"),
        ({"rate": "-1", "tasks": "6"}, "rate is '-1'"),
        ({"rates": "1"}, "did you mean rate?"),
    ],
)
def test_what_a_sink_cannot_do_is_named(differs, why):
    with pytest.raises(InvalidArgument, match=why.replace("?", "[?]")):
        sink_options(NEEDED | differs)


@given(st.integers(0, ID_MAX))
def test_an_offset_is_the_same_text_for_the_same_place_and_read_back(id_):
    text = json.dumps(offset_of(id_, SCOPE))
    assert text == json.dumps(offset_of(id_, SCOPE))
    assert id_of(json.loads(text), SCOPE) == id_


def test_an_offset_of_version_1_stays_readable():
    golden = json.loads((Path(__file__).parents[1] / "golden" / "spark_offset.json").read_text())
    assert id_of(golden, SCOPE) == 913795201019936769
    assert offset_of(913795201019936769, SCOPE) == golden


def test_a_micro_batch_begins_where_its_start_is_and_the_first_one_where_its_end_says():
    begun = {"v": 1, "cluster": "c-1", "cache": "orders", "cache_id": 7, "id": "5", "after": "9"}
    assert offset_of(5, SCOPE, after=9) == begun
    assert id_of(begun, SCOPE) == 5
    assert after_of(offset_of(5, SCOPE), offset_of(8, SCOPE), SCOPE) == 5
    assert [after_of(begun, end, SCOPE) for end in (begun, offset_of(12, SCOPE))] == [9, 9], "nothing before the id is read, whatever comes"
    ended = offset_of(12, SCOPE, after=9)
    assert [after_of(offset_of(found, SCOPE), ended, SCOPE) for found in (5, 11, 20)] == [9, 9, 9], "found elsewhere when it is done again"
    assert [after_of(ended, end, SCOPE) for end in (ended, offset_of(15, SCOPE))] == [12, 12]
    with pytest.raises(InvalidArgument, match="'x' in the checkpoint is none"):
        after_of(begun, ended | {"after": "x"}, SCOPE)


@pytest.mark.parametrize(
    ("differs", "kind"),
    [
        ({"cluster": "c-2"}, PositionMismatch),
        ({"cache": "others"}, PositionMismatch),
        ({"cache_id": 8}, CacheRecreated),
        ({"v": 2}, InvalidArgument),
        ({"id": 5}, InvalidArgument),
        ({"id": "-5"}, InvalidArgument),
        ({"id": str(1 << 63)}, InvalidArgument),
    ],
)
def test_an_offset_of_something_else_is_refused(differs, kind):
    with pytest.raises(kind):
        id_of(offset_of(5, SCOPE) | differs, SCOPE)


@given(st.integers(1, 4_096), st.integers(0, 10**10), st.integers(0, 10**12), st.integers(0, 5_000))
def test_ranges_cover_the_segments_once(segments, events, nbytes, asked):
    found = ranges_of(5, 9, segments=range(segments), events=events, nbytes=nbytes, asked=asked)
    if not events:
        assert found == []
        return
    assert [segment for one in found for segment in one.segments] == list(range(segments))
    assert all(one.segments and (one.after, one.upto) == (5, 9) for one in found)
    assert len(found) == min(asked, segments) if asked else len(found) <= PARTITIONS_MAX
    assert found == ranges_of(5, 9, segments=range(segments), events=events, nbytes=nbytes, asked=asked)


def test_few_events_are_one_task_and_many_as_many_as_they_are_worth():
    assert len(ranges_of(0, 9, segments=range(256), events=10**9, nbytes=0, most=40)) == 40

    def count(events, nbytes=0):
        return len(ranges_of(0, 9, segments=range(256), events=events, nbytes=nbytes))

    assert (count(1), count(PARTITION_EVENTS_MIN), count(PARTITION_EVENTS_MIN + 1), count(10**9)) == (1, 1, 2, PARTITIONS_MAX)
    assert count(1, 3 * PARTITION_BYTES_MIN) == 3
    assert ranges_of(9, 9, segments=range(4), events=3, nbytes=1) == []


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({"asked": 0, "most": 4}, (3, 1)),
        ({"asked": 0, "most": 16}, (12, 4)),
        ({"asked": 8, "most": 2}, (6, 2)),
        ({"asked": 1, "most": 16}, (1, 1)),
    ],
)
def test_ranges_of_owners_share_as_many_as_are_asked_or_there_may_be(options, counts):
    by_owner = {"a": range(48), "b": range(48, 64)}
    parts = tuple(PlannedSegment(segment, "", 10**7, 10**9) for segment in range(64))
    plan = Plan(after=5, upto=9, events=64 * 10**7, bytes=64 * 10**9, segments=parts)
    found = list(ranges_of_owners(plan, by_owner, **options))
    assert tuple(sum(own == owner for own, _ in found) for owner in by_owner) == counts
    assert [segment for _, one in found for segment in one.segments] == list(range(64))
    assert {(one.after, one.upto) for _, one in found} == {(5, 9)}


@given(st.lists(st.integers(0, 10**9), max_size=40), st.integers(1, 50))
def test_files_are_dealt_out_in_their_order_to_as_many_tasks_as_are_asked_for(sizes, count):
    files = [SimpleNamespace(place=place, nbytes=nbytes) for place, nbytes in enumerate(sizes)]
    parts = packed(files, count)
    assert [file for part in parts for file in part] == files
    assert len(parts) <= count
    assert all(parts)
    assert packed(files, 0) == [(file,) for file in files]
    even = [SimpleNamespace(place=place, nbytes=7) for place in range(4 * count)]
    assert [len(part) for part in packed(even, count)] == [4] * count


def test_columns_are_those_of_the_caches_formats():
    text, plain = ArchiveColumns(has_text_keys=True, is_json=True), ArchiveColumns(has_text_keys=False, is_json=False)
    assert [text.types[name] for name in ("key", "value", "headers")] == ["STRING", "STRING", "MAP<STRING, BINARY>"]
    assert [plain.types[name] for name in ("before", "key")] == ["BINARY", "BINARY"]
    with pytest.raises(InvalidArgument, match="there is no column 'x'"):
        check_columns(("x",), text.types)
    with pytest.raises(InvalidArgument, match="twice"):
        check_columns(("id", "id"), text.types)
