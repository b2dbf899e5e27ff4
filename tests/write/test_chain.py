"""The interceptors together, against a model: a dictionary that the same writes are done to one by one."""

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.build import Columns, WriteFrame, build_write, read_table
from eventlog.batch.check import BadBlocks
from eventlog.batch.entries import StoredEntry
from eventlog.batch.layout import place_seed
from eventlog.batch.marks import ABSENT
from eventlog.batch.one import build_one
from eventlog.batch.stored import make_values
from eventlog.batch.views import decode_value
from eventlog.errors import KeyExists, NoState, VersionMismatch
from eventlog.events import Kind
from eventlog.state.caches import CacheRules
from eventlog.state.key_table import KeyTable, update_table
from eventlog.write import INTERCEPTORS, Share, Submitted, admit, lay_out, plan_reads
from eventlog.write.share import KeyCondition
from tests.examples import examples

SEGMENTS = 4
CACHE = 7
NOW = 1_000
Write = tuple[bytes, bytes, int, int]  # key, value, kind, lifespan


def rules(**changes) -> CacheRules:
    given_rules = {"state": True, "before": False, "lifespan_ms": 0, "may_expire": False, "by_prefix": False} | changes
    return CacheRules(cache_id=CACHE, name="c", segments=SEGMENTS, **given_rules)


def submitted(frames: list[WriteFrame], *, conditions=(), internal: bool = False, previous_rows=()) -> Submitted:
    tables = np.concatenate([frame.table for frame in frames])
    return Submitted(
        data=np.frombuffer(b"".join(frame.blocks for frame in frames), np.uint8),
        segments=tables["segment"].astype(np.int64),
        lengths=tables["length"].astype(np.int64),
        counts=tables["count"].astype(np.int64),
        producers=np.zeros(len(tables), np.uint64),
        sequences=np.zeros(len(tables), np.int64),
        conditions=tuple(conditions),
        previous_rows=tuple(previous_rows),
        internal=internal,
        now=NOW,
    )


@dataclass
class Model:
    """What one write after the other makes of a dictionary of entries, and the events it would log."""

    entries: dict[bytes, StoredEntry] = field(default_factory=dict)
    log: dict[bytes, list[tuple[int, bytes, bytes]]] = field(default_factory=dict)  # key -> [(kind, value, before)]

    def write(self, key: bytes, value: bytes, kind: int, lifespan: int) -> int:
        known = self.entries.get(key)
        if known is not None and 0 < known.expiry <= NOW:
            self.log.setdefault(key, []).append((Kind.EXPIRED, b"", known.value))
            del self.entries[key]
            known = None
        if kind == Kind.REMOVED:
            if known is None:
                return ABSENT
            del self.entries[key]
            self.log.setdefault(key, []).append((Kind.REMOVED, b"", known.value))
            return Kind.REMOVED
        done = Kind.CREATED if known is None else Kind.MODIFIED
        self.log.setdefault(key, []).append((done, value, b"" if known is None else known.value))
        self.entries[key] = StoredEntry(version=1, expiry=NOW + lifespan if lifespan else 0, schema_id=None, value=value)
        return done


def run_chain(share: Share, entries: dict[bytes, StoredEntry]) -> None:
    for key in plan_reads(share):
        share.entries[key] = entries.get(key)
    for intercept in INTERCEPTORS:
        intercept(share)


def stored_events(share: Share):
    """Return the share's events as stored: id -> (key, value, kind, before, expiry), and the id of each row."""
    stamped = lay_out(share)
    if not len(stamped.sections.segments):
        return {}, [0] * len(share.kinds), stamped
    values = make_values(
        stamped.sections,
        base=1 << 40,
        epochs=np.ones(SEGMENTS, np.uint32),
        next_offsets=np.zeros(SEGMENTS, np.int64),
        seeds=[place_seed(segment, CACHE) for segment in range(SEGMENTS)],
    )
    found = {}
    for segment, data in zip(values.segments.tolist(), values.data, strict=True):
        value = decode_value(segment, CACHE, data)
        ids = iter(value.ids.tolist())
        kinds = 0
        for block in value.blocks:
            before = block.before.to_list() if block.before else [b""] * block.count
            expiry = block.expiry.tolist() if block.expiry is not None else [0] * block.count
            rows = zip(block.keys.to_list(), block.values.to_list(), block.kinds.tolist(), before, expiry, strict=True)
            for row in rows:
                found[next(ids)] = row
                kinds |= 1 << row[2]
        assert value.head.kinds == kinds
    return found, values.ids(stamped.rank).tolist(), stamped


KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e", b"", b"k\0x"])
WRITES = st.lists(
    st.tuples(KEYS, st.binary(max_size=6), st.sampled_from([Kind.CREATED, Kind.CREATED, Kind.REMOVED]), st.sampled_from([0, 0, 50])),
    min_size=1,
    max_size=12,
)
ENTRY = st.builds(
    StoredEntry,
    version=st.integers(1, 9),
    expiry=st.sampled_from([0, NOW - 1, NOW, NOW + 1]),
    schema_id=st.none(),
    value=st.binary(max_size=4),
)


def frames_of(groups: list[list[Write]], *, lifespans: bool) -> tuple[list[WriteFrame], list[Write]]:
    """Return the frames, and the writes in the order of their rows."""
    frames, rows = [], []
    for group in groups:
        columns = Columns(
            kinds=np.array([kind for _, _, kind, _ in group], np.uint8),
            keys=[key for key, _, _, _ in group],
            values=[b"" if kind == Kind.REMOVED else value for _, value, kind, _ in group],
            expiry=np.array([span for _, _, _, span in group], np.int64) if lifespans else None,
        )
        frame = build_write(columns, segments=SEGMENTS)
        frames.append(frame)
        rows += [(*group[item][:3], group[item][3] if lifespans else 0) for item in frame.order.tolist()]
    return frames, rows


@settings(max_examples=examples(300))
@given(st.lists(WRITES, min_size=1, max_size=3), st.dictionaries(KEYS, ENTRY), st.booleans(), st.booleans(), st.booleans())
def test_a_group_does_what_its_writes_do_one_by_one(groups, entries, before, lifespans, with_table):
    frames, rows = frames_of(groups, lifespans=lifespans)
    table = None
    if with_table:
        table = KeyTable()
        table.add(np.array([_hash(key) for key in entries], np.uint64))
    share = admit(submitted(frames), rules=rules(before=before, may_expire=True), table=table)
    run_chain(share, entries)
    model = Model(entries=dict(entries))
    expected = [model.write(key, b"" if kind == Kind.REMOVED else value, kind, span) for key, value, kind, span in rows]
    assert share.kinds.tolist() == expected
    found, ids, stamped = stored_events(share)
    assert sorted(found) == [(1 << 40) + (place << 10) for place in range(stamped.events)]
    by_key: dict[bytes, list[tuple[int, bytes, bytes]]] = {}
    for id_ in sorted(found):
        key, value, kind, image, expiry = found[id_]
        by_key.setdefault(key, []).append((kind, value, image if before else b""))
        if expiry:
            assert expiry == NOW + 50
    wanted = {key: [(kind, value, image if before else b"") for kind, value, image in events] for key, events in model.log.items()}
    assert by_key == wanted
    for (key, value, kind, _), id_, done in zip(rows, ids, expected, strict=True):
        assert (id_ == 0) == (done == ABSENT)
        if id_:
            assert found[id_][:3] == (key, b"" if kind == Kind.REMOVED else value, done)
    if table is not None:
        update_table(table, hashes=share.hashes, kinds=share.kinds, rows=stamped.changed_rows)
        assert table.size == len(model.entries)
        assert table.contains(np.array([_hash(key) for key in model.entries] or [0], np.uint64))[: len(model.entries)].all()


def _hash(key: bytes) -> int:
    from eventlog.hashing import hash_key

    return hash_key(key)


@given(st.lists(WRITES, min_size=1, max_size=3))
def test_a_cache_without_state_logs_every_write_as_it_came(groups):
    frames, rows = frames_of(groups, lifespans=False)
    share = admit(submitted(frames), rules=rules(state=False))
    assert plan_reads(share) == {}
    run_chain(share, {})
    found, ids, _ = stored_events(share)
    assert [found[id_][:3] for id_ in ids] == [(key, b"" if kind == Kind.REMOVED else value, kind) for key, value, kind, _ in rows]


def single(key: bytes, *, kind: int = Kind.CREATED, condition: int | None = 0, internal: bool = False) -> Share:
    body = build_one(key, b"new" if kind == Kind.CREATED else b"", kind=kind, segment=0)
    segment = int(_hash(key) >> 62)
    body = segment.to_bytes(2, "little") + body[2:]
    table, blocks = read_table(memoryview(body), 1)
    frame = WriteFrame(table=table.rows, blocks=bytes(blocks), order=np.zeros(1, np.int64))
    conditions = [KeyCondition(block=0, key=key, version=condition)]
    return admit(submitted([frame], conditions=conditions, internal=internal), rules=rules(may_expire=True), table=KeyTable())


def entry(version: int = 5, expiry: int = 0) -> StoredEntry:
    return StoredEntry(version=version, expiry=expiry, schema_id=None, value=b"old")


@pytest.mark.parametrize(
    ("condition", "known", "error"),
    [
        (0, None, None),
        (0, entry(), KeyExists),
        (0, entry(expiry=NOW), None),
        (5, entry(), None),
        (5, entry(version=6), VersionMismatch),
        (5, entry(expiry=NOW), VersionMismatch),
        (5, None, VersionMismatch),
        (None, entry(), None),
        (None, None, VersionMismatch),
    ],
)
def test_a_condition_holds_or_its_block_is_refused(condition, known, error):
    share = single(b"k", condition=condition)
    if known is not None:
        share.table.add(share.hashes)
    run_chain(share, {} if known is None else {b"k": known})
    assert type(share.refusals.get(0)) is (type(None) if error is None else error)
    found, _, _ = stored_events(share)
    assert bool(found) == (error is None)


def test_what_follows_a_refused_write_replaces_what_that_one_would_have_replaced():
    keys = [b"k"]
    frames = [
        build_write(Columns(kinds=np.zeros(1, np.uint8), keys=keys, values=[value]), segments=SEGMENTS) for value in (b"refused", b"second")
    ]
    refused = KeyCondition(block=0, key=b"k", version=0)
    share = admit(submitted(frames, conditions=[refused]), rules=rules(before=True), table=KeyTable())
    share.table.add(share.hashes[:1])
    run_chain(share, {b"k": entry()})
    found, _, _ = stored_events(share)
    assert [row[1:4] for row in found.values()] == [(b"second", Kind.MODIFIED, b"old")]


def test_expiring_meets_the_version_it_looked_at():
    for version, done in ((5, [Kind.EXPIRED]), (4, [])):
        share = single(b"k", kind=Kind.REMOVED, condition=version, internal=True)
        share.table.add(share.hashes)
        run_chain(share, {b"k": entry(expiry=NOW)})
        found, _, _ = stored_events(share)
        assert [row[2] for row in found.values()] == done


def test_a_condition_on_a_cache_without_state_is_refused():
    share = single(b"k")
    object.__setattr__(share, "rules", rules(state=False))
    run_chain(share, {})
    assert isinstance(share.refusals[0], NoState)


def test_a_lifespan_in_a_cache_without_state_is_refused_and_named():
    columns = [Columns(kinds=np.zeros(1, np.uint8), keys=[b"a"], values=[b""], expiry=expiry) for expiry in (None, np.array([5]), None)]
    frames = [build_write(column, segments=SEGMENTS) for column in columns]
    with pytest.raises(BadBlocks) as refused:
        admit(submitted(frames), rules=rules(state=False))
    assert refused.value.found == [(1, "a lifespan needs state")]
    assert admit(submitted(frames), rules=rules()).is_whole


def test_a_key_of_another_segment_is_found_in_every_row_of_a_cache_with_state():
    frame = build_write(Columns(kinds=np.zeros(2, np.uint8), keys=[b"a", b"a"], values=[b"", b""]), segments=SEGMENTS)
    data = bytearray(frame.blocks)
    at = data.index(b"aa")
    other = next(bytes([byte]) for byte in range(256) if _hash(bytes([byte])) >> 62 != _hash(b"a") >> 62)
    data[at + 1 : at + 2] = other
    wrong = WriteFrame(table=frame.table, blocks=bytes(data), order=frame.order)
    with pytest.raises(BadBlocks, match="another segment"):
        admit(submitted([wrong]), rules=rules())


@pytest.mark.parametrize("state", [True, False])
def test_a_block_without_events_is_refused_and_named(state: bool):
    frame = build_write(Columns(kinds=np.zeros(1, np.uint8), keys=[b"a"], values=[b""]), segments=SEGMENTS)
    empty = bytes(16 + 16)  # the head, and the first offset of both columns
    table = np.concatenate([frame.table, frame.table])
    table["count"][1], table["length"][1] = 0, len(empty)
    with pytest.raises(BadBlocks) as refused:
        admit(submitted([WriteFrame(table=table, blocks=bytes(frame.blocks) + empty, order=frame.order)]), rules=rules(state=state))
    assert refused.value.found == [(1, "it is empty")]


def test_segments_out_of_range_are_refused():
    frame = build_write(Columns(kinds=np.zeros(1, np.uint8), keys=[b"a"], values=[b""]), segments=SEGMENTS)
    frame.table["segment"] = SEGMENTS
    with pytest.raises(BadBlocks, match="there are 4 segments"):
        admit(submitted([frame]), rules=rules())
