"""Which frames go into one group."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_write, read_table
from eventlog.batch.one import build_one
from eventlog.batch.stored import make_values
from eventlog.hashing import hash_key, segment_of
from eventlog.limits import GROUP_BYTES_MAX
from eventlog.state.caches import CacheRules
from eventlog.wire.flow import reserve
from eventlog.write import admit, lay_out
from eventlog.write.groups import JoinedFrames, Pending, Queue, join_frames
from eventlog.write.share import KeyCondition


class Cache:
    def __init__(self, cache_id: int) -> None:
        self.cache_id = cache_id


ONE, TWO = Cache(1), Cache(2)


def pending(key: bytes, *, cache=ONE, value: bytes = b"v", conditional: bool = False, internal: bool = False) -> Pending:
    body = build_one(key, value, kind=0, segment=segment_of(hash_key(key), 4))
    table, blocks = read_table(memoryview(body), 1)
    conditions = (KeyCondition(block=0, key=key, version=1),) if conditional else ()
    return Pending(
        cache=cache, table=table, blocks=blocks, producer=0, conditions=conditions, previous=False, internal=internal, done=lambda _: None
    )


def queue_of(*frames: Pending) -> Queue:
    queue = Queue()
    for frame in frames:
        queue.put(frame)
    return queue


def test_everything_that_waits_goes_together():
    frames = [pending(b"a"), pending(b"a"), pending(b"b", cache=TWO)]
    assert queue_of(*frames).take() == frames


def test_a_group_has_a_limit_in_bytes_and_at_least_one_frame():
    large = pending(b"a", value=bytes(GROUP_BYTES_MAX))
    queue = queue_of(large, pending(b"b"), pending(b"c"))
    assert queue.take() == [large]
    assert len(queue.take()) == 2
    assert queue.nbytes == 0


def test_a_condition_waits_for_an_earlier_write_to_its_segment():
    first, conditional, later = pending(b"a"), pending(b"a", conditional=True), pending(b"a")
    queue = queue_of(first, conditional, later)
    assert queue.take() == [first]
    assert queue.take() == [conditional, later]


def test_another_cache_does_not_wait_with_it():
    first, conditional, other = pending(b"a"), pending(b"a", conditional=True), pending(b"a", cache=TWO)
    queue = queue_of(first, conditional, other)
    assert queue.take() == [first, other]
    assert queue.take() == [conditional]


def test_two_conditions_on_one_key_go_one_after_the_other():
    first, second = pending(b"a", conditional=True), pending(b"a", conditional=True)
    queue = queue_of(first, second)
    assert queue.take() == [first]
    assert queue.take() == [second]


def test_conditions_on_different_keys_share_a_group():
    frames = [pending(b"a", conditional=True), pending(b"b", conditional=True)]
    assert queue_of(*frames).take() == frames


def test_a_condition_sees_what_another_condition_lets_be_written_beside_its_key():
    elsewhere = replace(pending(b"a"), conditions=(KeyCondition(block=0, key=b"b", version=0),))
    second = pending(b"a", conditional=True)
    queue = queue_of(elsewhere, second)
    assert queue.take() == [elsewhere]
    assert queue.take() == [second]


def test_malformed_blocks_do_not_break_the_grouping():
    cut = replace(pending(b"a", conditional=True), blocks=memoryview(b"abc"))
    assert queue_of(cut, pending(b"c", conditional=True)).take()[0] is cut


def test_expiring_and_writing_do_not_mix():
    frames = [pending(b"a", internal=True), pending(b"b")]
    queue = queue_of(*frames)
    assert queue.take() == [frames[0]]
    assert queue.take() == [frames[1]]


def test_what_is_put_back_comes_first():
    queue = queue_of(pending(b"c"))
    frames = [pending(b"a"), pending(b"b")]
    queue.put_back(frames)
    assert queue.take()[:2] == frames
    assert queue.nbytes == 0


def test_joined_frames_know_their_blocks_and_rows():
    frames = [pending(b"a"), pending(b"b", conditional=True), pending(b"c")]
    joined = join_frames(frames, now=9)
    assert joined.blocks == [0, 1, 2, 3]
    assert joined.rows == [0, 1, 2, 3]
    assert [(condition.block, condition.key) for condition in joined.submitted.conditions] == [(1, b"b")]
    assert joined.submitted.data.nbytes == sum(len(frame.blocks) for frame in frames)
    assert np.array_equal(joined.submitted.counts, [1, 1, 1])


def received(slab: memoryview, at: int, rows: list[tuple[bytes, bytes]]) -> tuple[Pending, int]:
    """Return a frame whose body lies in `slab` at `at`, and where it ends."""
    columns = Columns(kinds=np.zeros(len(rows), np.uint8), keys=[key for key, _ in rows], values=[value for _, value in rows])
    frame = build_write(columns, segments=4)
    body = b"".join(frame.buffers)
    slab[at : at + len(body)] = body
    table, blocks = read_table(slab[at : at + len(body)].toreadonly(), len(frame.table))
    return replace(pending(b"a"), table=table, blocks=blocks), at + len(body)


@given(st.lists(st.tuples(st.lists(st.tuples(st.binary(min_size=1, max_size=9), st.binary(max_size=30)), min_size=1), st.integers(0, 4))))
def test_frames_side_by_side_are_written_as_if_they_had_been_copied_together(shapes):
    slab, at, frames = reserve(1 << 20), 0, []
    for rows, gap in shapes:
        frame, at = received(slab, at + 8 * gap, rows)
        frames.append(frame)
    if len(frames) < 2:
        return
    copies = [replace(frame, blocks=memoryview(bytes(frame.blocks))) for frame in frames]
    there, copied = stored_of(join_frames(frames, now=0)), stored_of(join_frames(copies, now=0))
    assert there == copied


def stored_of(joined: JoinedFrames) -> list[bytes]:
    share = admit(joined.submitted, rules=rules_of(segments=4))
    values = make_values(
        lay_out(share).sections, base=1 << 30, epochs=np.ones(4, np.uint32), next_offsets=np.zeros(4, np.int64), seeds=range(4)
    )
    return values.data


def test_frames_side_by_side_are_not_copied_and_cannot_be_written_to():
    slab = reserve(1 << 20)
    first, at = received(slab, 0, [(b"a", bytes(50_000))])
    second, _ = received(slab, at + 64, [(b"b", bytes(50_000))])
    joined = join_frames([second, first], now=0)
    assert np.shares_memory(joined.submitted.data, slab.obj)
    assert not joined.submitted.data.flags.writeable
    assert slab.obj.flags.writeable


def test_frames_far_apart_in_one_slab_are_copied_together():
    slab = reserve(1 << 20)
    first, at = received(slab, 0, [(b"a", b"1")])
    second, _ = received(slab, at + 500_000, [(b"b", b"2")])
    joined = join_frames([first, second], now=0)
    assert joined.submitted.starts is None
    assert joined.submitted.data.nbytes == len(first.blocks) + len(second.blocks)


def rules_of(*, segments: int) -> CacheRules:
    return CacheRules(cache_id=1, name="c", state=False, before=False, by_prefix=False, lifespan_ms=0, may_expire=False, segments=segments)


def segment_held(frame: Pending) -> np.ndarray:
    return frame.table.segments.astype(np.int64)


def keys_by_segment(count: int) -> list[bytes]:
    found: dict[int, bytes] = {}
    number = 0
    while len(found) < count:
        key = b"%d" % number
        found.setdefault(segment_of(hash_key(key), 4), key)
        number += 1
    return [found[segment] for segment in sorted(found)]


def frame_of(*keys: bytes) -> Pending:
    """Return a frame with a block for each key."""
    table, blocks = read_table(memoryview(b"".join(build_write(columns_of(keys), segments=4).buffers)), len(keys))
    return Pending(cache=ONE, table=table, blocks=blocks, producer=0, conditions=(), previous=False, internal=False, done=lambda _: None)


def columns_of(keys: tuple[bytes, ...]) -> Columns:
    return Columns(kinds=np.zeros(len(keys), np.uint8), keys=list(keys), values=[b"v"] * len(keys))


def test_frames_of_segments_in_flight_wait_and_others_pass():
    a, b, c, _ = keys_by_segment(4)
    held, other, same, last = pending(a), pending(b), pending(a), pending(c)
    queue = queue_of(held)
    assert queue.take() == [held]
    queue.hold(segment_held(held))
    for frame in (same, other, last):
        queue.put(frame)
    assert queue.take() == [other, last]
    assert queue.take() == []
    assert len(queue) == 1
    queue.release(segment_held(held))
    assert queue.take() == [same]
    assert (len(queue), queue.nbytes) == (0, 0)


def test_what_comes_behind_a_frame_that_waits_keeps_its_place_in_every_segment_of_it():
    a, b, c, _ = keys_by_segment(4)
    held, wide, behind, free = pending(a), frame_of(a, b), pending(b), pending(c)
    queue = queue_of(held)
    queue.take()
    queue.hold(segment_held(held))
    for frame in (wide, behind, free):
        queue.put(frame)
    assert queue.take() == [free]
    queue.hold(segment_held(free))
    queue.release(segment_held(held))
    assert queue.take() == [wide, behind]


@given(st.lists(st.sets(st.integers(0, 3), min_size=1, max_size=3), max_size=30), st.randoms(use_true_random=False))
def test_frames_of_a_segment_are_taken_in_their_order_whatever_is_in_flight(wanted, chance):
    keys = keys_by_segment(4)
    queue, in_flight, taken = Queue(), [], []
    frames = [frame_of(*(keys[segment] for segment in sorted(segments))) for segments in wanted]
    waiting = list(frames)
    while waiting or len(queue) or in_flight:
        act = chance.choice(["put", "take", "release"])
        if act == "put" and waiting:
            queue.put(waiting.pop(0))
        elif act == "release" and in_flight:
            queue.release(in_flight.pop(chance.randrange(len(in_flight))))
        elif group := queue.take():
            segments = np.unique(np.concatenate([segment_held(frame) for frame in group]))
            assert not any(np.intersect1d(segments, other).size for other in in_flight)
            queue.hold(segments)
            in_flight.append(segments)
            taken += group
    for segment in range(4):
        assert [frame for frame in taken if segment in segment_held(frame)] == [frame for frame in frames if segment in segment_held(frame)]


def test_frames_that_wait_for_other_replicas_go_in_groups_of_their_own_and_keep_their_order():
    a, b, c, d = keys_by_segment(4)
    fates = np.array([5, 5, 9, 9])
    first, second, third, wide, behind, fourth = pending(a), pending(c), pending(b), frame_of(a, c), pending(a), pending(d)
    queue = queue_of(first, second, third, wide, behind, fourth)
    assert queue.take(fates) == [first, third]
    assert queue.take(fates) == [second, fourth]
    assert queue.take(fates) == [wide]
    assert queue.take(fates) == [behind]


def test_frames_that_touch_some_segments_are_taken_out_and_what_waited_for_them_alone_goes_on():
    keys = {segment_of(hash_key(b"%d" % n), 4): b"%d" % n for n in range(99)}
    frames = [pending(keys[segment]) for segment in (0, 1, 0, 2)]
    queue = queue_of(*frames)
    queue.hold(np.array([0]))
    assert queue.take() == [frames[1], frames[3]]
    assert queue.take() == []
    later = pending(keys[0])
    queue.put(later)
    assert queue.withdraw(np.array([True, False, False, False])) == [frames[0], frames[2], later]
    assert (len(queue), queue.nbytes) == (0, 0)
    queue.release(np.array([0]))
    assert queue.take() == []
