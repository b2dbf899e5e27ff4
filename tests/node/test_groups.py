"""Which frames go into one group."""

from dataclasses import replace

import numpy as np

from eventlog.batch.build import build_one
from eventlog.batch.check import read_table
from eventlog.hashing import hash_key, segment_of
from eventlog.interceptor.share import Condition
from eventlog.limits import GROUP_BYTES_MAX
from eventlog.node.groups import Pending, Queue, join_frames


class Cache:
    def __init__(self, cache_id: int) -> None:
        self.cache_id = cache_id


ONE, TWO = Cache(1), Cache(2)


def pending(key: bytes, *, cache=ONE, value: bytes = b"v", conditional: bool = False, internal: bool = False) -> Pending:
    body = build_one(key, value, kind=0, segment=segment_of(hash_key(key), 4))
    table, blocks = read_table(memoryview(body), 1)
    conditions = (Condition(block=0, key=key, version=1),) if conditional else ()
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
    elsewhere = replace(pending(b"a"), conditions=(Condition(block=0, key=b"b", version=0),))
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
