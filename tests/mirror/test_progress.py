"""Where segments go on, from the records of a topic that others may have written into."""

import msgspec
import numpy as np
import pytest

from eventlog.errors import CorruptData, MirrorTaken
from eventlog.mirror import progress
from eventlog.mirror.progress import SnapshotProgress, StaleTerm
from eventlog.read.position import OFFSET_UNKNOWN
from tests.mirror.making import mirror

OF = np.array([1, 5, 9])


def records(*, cluster="c-1", term=4, generation=1, **more):
    one = mirror(generation=generation, **more)
    at = progress.places({}, one, of=OF, cluster=cluster, term=term)
    moved, rows = progress.moved(
        at, segments=np.array([1, 1, 9]), ids=np.array([110, 120, 130]), offsets=np.array([7, 8, 2]), epochs=np.array([3, 4, 4])
    )
    return progress.records_of(one, moved, rows.tolist(), cluster=cluster, term=term)


def test_what_was_written_is_where_it_goes_on_and_the_rest_begins_where_the_mirror_does():
    at = progress.places(records(), mirror(), of=OF, cluster="c-1", term=4)
    assert at.ids.tolist() == [120, 100, 130]
    assert at.offsets.tolist() == [9, OFFSET_UNKNOWN, 3]
    assert at.epochs.tolist() == [4, 0, 4]


def test_only_what_moved_is_written():
    assert sorted(records()) == [b"m/c/1", b"m/c/9"]


LOST = {"of": OF, "shard": 0}


def written(*segments, generation=1, has_snapshot=False):
    one = mirror(generation=generation, has_snapshot=has_snapshot)
    at = progress.places({}, one, of=OF, cluster="c-1", term=4)
    rows = [row for row, segment in enumerate(OF.tolist()) if segment in segments]
    return progress.records_of(one, at, rows, cluster="c-1", term=4)


def test_a_record_that_is_missing_among_others_was_lost_and_so_were_all_where_there_have_been_some():
    for has_begun in (False, True):
        assert not progress.is_lost(written(1, 5, 9), mirror(), has_begun=has_begun, **LOST)
        assert progress.is_lost(written(1, 9), mirror(), has_begun=has_begun, **LOST)
    assert not progress.is_lost({}, mirror(), has_begun=False, **LOST)
    assert progress.is_lost({}, mirror(), has_begun=True, **LOST)
    assert not progress.is_lost(written(1, generation=2), mirror(), has_begun=False, **LOST), "that is another beginning's"
    assert progress.is_lost(written(1, 5, 9, generation=2), mirror(), has_begun=True, **LOST)


def test_of_a_snapshot_its_own_record_may_be_there_alone():
    one = mirror(has_snapshot=True)
    own = {progress.snapshot_key(one, 0): msgspec.json.encode(SnapshotProgress(cluster="c-1", generation=1, term=4))}
    segments = written(1, 5, 9, has_snapshot=True)
    assert not any(progress.is_lost(own, one, has_begun=has_begun, **LOST) for has_begun in (False, True))
    assert progress.is_lost(own | written(1, 9, has_snapshot=True), one, has_begun=True, **LOST)
    assert not progress.is_lost(own | segments, one, has_begun=True, **LOST)
    assert progress.is_lost(segments, one, has_begun=True, **LOST)
    assert progress.is_lost(segments, one, has_begun=False, **LOST)
    assert progress.is_lost({}, one, has_begun=True, **LOST)


def test_a_later_term_is_a_successors():
    with pytest.raises(StaleTerm):
        progress.places(records(term=5), mirror(), of=OF, cluster="c-1", term=4)
    with pytest.raises(StaleTerm):
        progress.places(records(term=5, generation=9), mirror(), of=OF, cluster="c-1", term=4)


def test_an_earlier_generation_counts_no_more():
    at = progress.places(records(generation=9), mirror(), of=OF, cluster="c-1", term=4)
    assert at.ids.tolist() == [100, 100, 100]


def test_progress_of_another_cluster_is_not_gone_on_with():
    with pytest.raises(MirrorTaken, match="c-2"):
        progress.places(records(cluster="c-2"), mirror(), of=OF, cluster="c-1", term=4)


def test_another_mirrors_records_are_nobodys_business():
    assert progress.places(records(name="other"), mirror(), of=OF, cluster="c-1", term=4).ids.tolist() == [100, 100, 100]


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"id": "x"}', b"\xff"])
def test_a_record_that_is_none_of_ours_is_named(data):
    with pytest.raises(CorruptData, match="m/c/5"):
        progress.places({b"m/c/5": data}, mirror(), of=OF, cluster="c-1", term=4)


def test_places_only_move_where_there_were_events():
    at = progress.places({}, mirror(), of=OF, cluster="c-1", term=1)
    nothing = np.zeros(0, np.int64)
    moved, rows = progress.moved(at, segments=nothing, ids=nothing, offsets=nothing, epochs=nothing)
    assert rows.tolist() == []
    assert msgspec.json.encode(moved.ids.tolist()) == msgspec.json.encode(at.ids.tolist())


def test_a_shard_is_given_its_own_records_of_a_topic_that_all_mirrors_write_into():
    one, other = mirror(has_snapshot=True), mirror(name="other")
    own = {**records(), progress.snapshot_key(one, 3): b"1", progress.signal_key(one, 3): b"2"}
    others = {progress.key_of(one, 2): b"3", progress.key_of(other, 1): b"4"}
    others |= {progress.snapshot_key(one, 4): b"5", progress.signal_key(other, 3): b"6"}
    assert progress.of_shard({**others, **own}, one, 3, of=OF) == own
