"""Metadata made again from what nodes keep: the highest epoch wins, and nothing that was issued can be issued again."""

import msgspec
import pytest

from eventlog.control.metastore import Item, Listing
from eventlog.control.rebuilding import EPOCHS_RAISED, decode_kept, encode_kept, rebuild
from eventlog.control.records import (
    IDENTITY_KEY,
    ClusterIdentity,
    NodeRecord,
    ReplicaRecord,
    SegmentRecord,
    decode,
    encode,
    node_key,
    segment_key,
)
from eventlog.errors import CorruptData, InvalidArgument, WrongCluster
from tests.control.worlds import node, segment

CEILING = 10_000_000


def kept(records: dict[str, object], *, revision: int, cluster: str = "c", copies: int = 0, revisions: dict[str, int] | None = None):
    all_records = {IDENTITY_KEY: ClusterIdentity(cluster=cluster, segments=4, created_ms=1, copies=copies), **records}
    items = [Item(key=key, value=encode(record), revision=(revisions or {}).get(key, 1)) for key, record in sorted(all_records.items())]
    items.append(Item(key="writer/x", value=b"nonce", revision=revision))
    return decode_kept(encode_kept(Listing(items=tuple(items), revision=revision)), where="d")


def record_of(found, key: str, kind):
    return decode(found.records[key], kind, where=key)


def test_one_copy_gives_what_it_holds_with_epochs_and_ceilings_raised():
    found = rebuild({"d1": kept({segment_key(0): segment(0, epoch=3), node_key(1): node(1, ceiling=7)}, revision=9)}, ceiling=CEILING)
    assert record_of(found, segment_key(0), SegmentRecord).epoch == 3 + EPOCHS_RAISED
    assert record_of(found, node_key(1), NodeRecord).ceiling == CEILING
    assert found.identity.copies == 1
    assert found.choices == []
    assert "writer/x" not in found.records


def test_a_ceiling_that_is_higher_stays():
    found = rebuild({"d1": kept({node_key(1): node(1, ceiling=CEILING + 5)}, revision=9)}, ceiling=CEILING)
    assert record_of(found, node_key(1), NodeRecord).ceiling == CEILING + 5


def test_of_a_segment_the_highest_epoch_wins_though_another_copy_is_newer():
    old = kept({segment_key(0): segment(0, owners=(1, 2), epoch=5)}, revision=10)
    new = kept({segment_key(0): segment(0, owners=(2, 1), epoch=4)}, revision=20)
    found = rebuild({"d1": old, "d2": new}, ceiling=CEILING)
    assert record_of(found, segment_key(0), SegmentRecord).owners == (1, 2)
    assert [(choice.segment, choice.taken_from, choice.epoch) for choice in found.choices] == [(0, "d1", 5)]


def test_within_an_epoch_the_newest_in_sync_set_wins():
    key = segment_key(0)
    before = segment(0, owners=(1, 2), epoch=5)
    after = msgspec.structs.replace(before, in_sync=(ReplicaRecord(node=1, incarnation="i1"),))
    found = rebuild(
        {"d1": kept({key: before}, revision=30, revisions={key: 7}), "d2": kept({key: after}, revision=12, revisions={key: 11})},
        ceiling=CEILING,
    )
    assert record_of(found, key, SegmentRecord).in_sync == after.in_sync


def test_a_dropped_cache_does_not_come_back_from_an_older_copy():
    found = rebuild(
        {"d1": kept({"cache/gone": ClusterIdentity(cluster="c", segments=1, created_ms=1)}, revision=5), "d2": kept({}, revision=8)},
        ceiling=CEILING,
    )
    assert "cache/gone" not in found.records


def test_copies_from_after_a_move_go_before_older_ones_whatever_their_revision():
    found = rebuild(
        {
            "d1": kept({"settings": ClusterIdentity(cluster="old", segments=1, created_ms=1)}, revision=500),
            "d2": kept({"settings": ClusterIdentity(cluster="new", segments=1, created_ms=1)}, revision=3, copies=1),
        },
        ceiling=CEILING,
    )
    assert b"new" in found.records["settings"]
    assert found.identity.copies == 2


def test_what_cannot_be_rebuilt_from_is_named():
    with pytest.raises(InvalidArgument):
        rebuild({}, ceiling=CEILING)
    with pytest.raises(WrongCluster):
        rebuild({"d1": kept({}, revision=1), "d2": kept({}, revision=2, cluster="other")}, ceiling=CEILING)
    for damaged in (b"", b"{", b"[]", b'{"revision": 1, "items": [{"key": "k"}]}', b"\xff"):
        with pytest.raises(CorruptData):
            decode_kept(damaged, where="d")
    with pytest.raises(CorruptData, match="no identity"):
        rebuild({"d1": decode_kept(b'{"revision": 1, "items": []}', where="d")}, ceiling=CEILING)
