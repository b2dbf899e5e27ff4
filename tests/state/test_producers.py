"""Idempotent producers: first results again, gaps refused, the same table from the log alone."""

import random
from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.build import Columns, build_write, segments_of
from eventlog.batch.marks import ABSENT
from eventlog.batch.stored import make_values
from eventlog.batch.views import decode_value
from eventlog.errors import CorruptData, Overloaded, ProducerUnknown, SequenceGap
from eventlog.limits import PRODUCER_IDLE_MS_MAX, PRODUCER_IDLE_MS_MIN, PRODUCER_RESULTS_KEPT
from eventlog.state.caches import CacheRules
from eventlog.state.key_table import KeyTable
from eventlog.state.producers import TRANSACTIONS_FROM, FrameResult, ProducerBounds, ProducerTable, read_row, runs_of
from eventlog.write import INTERCEPTORS, Share, Submitted, admit, lay_out
from tests.examples import examples

RULES = CacheRules(cache_id=3, name="c", state=True, before=False, by_prefix=False, lifespan_ms=0, may_expire=False, segments=4)
PRODUCER = 77
_ZERO = np.zeros(1, np.int64)
_NO_KIND = np.zeros(0, np.uint8)


def share_of(frames: list[tuple[list[bytes], int]], *, kind: int = 0, table: KeyTable | None = None) -> tuple[Share, list[int]]:
    """Return a share of frames (keys, sequence of every block) of one producer, and the bounds of the frames."""
    bodies = []
    for keys, sequence in frames:
        columns = Columns(kinds=np.full(len(keys), kind, np.uint8), keys=keys, values=[b"v" if kind == 0 else b""] * len(keys))
        frame = build_write(columns, segments=4)
        frame.table["sequence"] = sequence
        bodies.append(frame)
    tables = np.concatenate([frame.table for frame in bodies])
    submitted = Submitted(
        data=np.frombuffer(b"".join(frame.blocks for frame in bodies), np.uint8),
        segments=tables["segment"].astype(np.int64),
        lengths=tables["length"].astype(np.int64),
        counts=tables["count"].astype(np.int64),
        producers=np.full(len(tables), PRODUCER, np.uint64),
        sequences=tables["sequence"].astype(np.int64),
    )
    bounds = [0, *np.cumsum([len(frame.table) for frame in bodies]).tolist()]
    return admit(submitted, rules=RULES, table=table if table is not None else KeyTable()), bounds


def log(table: ProducerTable, share: Share, bounds: list[int], base: int) -> list[tuple[int, bytes]]:
    """Run the share through to stored values, record it, and return (segment, value)."""
    for intercept in INTERCEPTORS:
        intercept(share)
    stamped = lay_out(share)
    values = make_values(stamped.sections, base=base, epochs=np.ones(4, np.uint32), next_offsets=np.zeros(4, np.int64), seeds=_seeds())
    ids = values.ids(stamped.rank)
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(share.blocks.counts)))
    for low, high in pairwise(bounds):
        rows = slice(int(starts[low]), int(starts[high]))
        table.record(
            PRODUCER,
            FrameResult(
                segments=share.submitted.segments[low:high],
                sequences=share.submitted.sequences[low:high],
                starts=starts[low : high + 1] - starts[low],
                ids=ids[rows],
                kinds=share.kinds[rows],
            ),
            last_ids=np.full(high - low, values.last_id),
        )
    return list(zip(values.segments.tolist(), values.data, strict=True))


def _seeds() -> list[int]:
    from eventlog.batch.layout import place_seed

    return [place_seed(segment, 3) for segment in range(4)]


def first_result() -> tuple[ProducerTable, np.ndarray, list[tuple[int, bytes]]]:
    table = ProducerTable(4)
    share, bounds = share_of([([b"a", b"b", b"c"], 0)])
    assert not table.sort_out(share, bounds).answered
    values = log(table, share, bounds, 1 << 40)
    return table, share.submitted.segments, values


def test_a_repeated_frame_is_answered_with_its_first_ids_and_not_written():
    table, _, values = first_result()
    share, bounds = share_of([([b"a", b"b", b"c"], 0)])
    verdict = table.sort_out(share, bounds)
    assert not share.live.any()
    assert not share.refusals
    known = {id_ for ids, _ in verdict.answered.values() for id_ in ids.tolist()}
    assert known == {id_ for segment, data in values for id_ in decode_value(segment, 3, data).ids.tolist()}


def test_a_gap_is_refused_and_the_next_block_is_not():
    table, segments, _ = first_result()
    share, bounds = share_of([([b"a", b"b", b"c"], 2)])
    table.sort_out(share, bounds)
    assert {type(error) for error in share.refusals.values()} == {SequenceGap}
    share, bounds = share_of([([b"a", b"b", b"c"], 1)])
    table.sort_out(share, bounds)
    assert share.live.all()
    assert len(segments) == len(share.live)


def test_who_was_forgotten_is_told_so():
    share, bounds = share_of([([b"a"], 5)])
    ProducerTable(4).sort_out(share, bounds)
    assert isinstance(share.refusals[0], ProducerUnknown)


def test_a_frame_sent_twice_within_one_group_waits_for_its_own_first_copy():
    table = ProducerTable(4)
    share, bounds = share_of([([b"a"], 0), ([b"a"], 0)])
    verdict = table.sort_out(share, bounds)
    assert verdict.deferred == {1}
    assert share.live.tolist() == [True, False]


def test_what_is_given_back_leaves_what_another_primary_has_logged_meanwhile():
    table, segments, _ = first_result()
    waiting, bounds = share_of([([b"a", b"b", b"c"], 1)])
    table.sort_out(waiting, bounds)
    table.rewind(segments)  # another one leads, gets the same blocks, and the next ones
    for sequence in (1, 2):
        frame = FrameResult(
            segments=segments,
            sequences=np.full(len(segments), sequence),
            starts=np.arange(len(segments) + 1),
            ids=np.full(len(segments), sequence << 41),
            kinds=np.zeros(len(segments), np.uint8),
        )
        table.learn_frame(PRODUCER, frame, last_ids=frame.ids)
    table.give_back(waiting)
    following, bounds = share_of([([b"a", b"b", b"c"], 3)])
    assert not table.sort_out(following, bounds).answered
    assert following.live.all(), following.refusals


def test_a_whole_window_on_its_way_does_not_make_a_rewound_table_forget_what_is_logged():
    table, segments, _ = first_result()
    for sequence in range(1, PRODUCER_RESULTS_KEPT + 1):
        waiting, bounds = share_of([([b"a", b"b", b"c"], sequence)])
        table.sort_out(waiting, bounds)
    unused = next(iter({0, 1, 2, 3} - set(segments.tolist())))
    frame = FrameResult(segments=np.array([unused]), sequences=_ZERO, starts=_ZERO, ids=_ZERO, kinds=_NO_KIND)
    table.learn_frame(PRODUCER, frame, last_ids=np.array([1 << 42]))
    table.rewind(segments)
    again, bounds = share_of([([b"a", b"b", b"c"], 1)])
    table.sort_out(again, bounds)
    assert again.live.all(), again.refusals


def test_neither_the_state_nor_a_copy_is_told_of_blocks_on_their_way():
    table, segments, _ = first_result()
    waiting, bounds = share_of([([b"a", b"b", b"c"], 1)])
    table.sort_out(waiting, bounds)
    stored = [(segment, producer, data) for segment, producer, data in table.take_dirty() if data is not None]
    copied = [(segment, producer, data) for segment in segments.tolist() for producer, data in table.export(segment)]
    for rows in (stored, copied):
        loaded = ProducerTable(4)
        loaded.load(rows)
        again, bounds = share_of([([b"a", b"b", b"c"], 1)])
        verdict = loaded.sort_out(again, bounds)
        assert not verdict.deferred
        assert again.live.all(), again.refusals


def test_older_results_than_are_kept_are_gaps():
    table = ProducerTable(4)
    for sequence in range(PRODUCER_RESULTS_KEPT + 3):
        share, bounds = share_of([([b"a"], sequence)])
        table.sort_out(share, bounds)
        log(table, share, bounds, (sequence + 1) << 40)
    share, bounds = share_of([([b"a"], 3)])
    assert list(table.sort_out(share, bounds).answered) == [0]
    share, bounds = share_of([([b"a"], 2)])
    assert not table.sort_out(share, bounds).answered
    assert isinstance(share.refusals[0], SequenceGap)


def test_the_log_alone_gives_the_same_answers():
    _, _, values = first_result()
    learned = ProducerTable(4)
    for segment, data in values:
        learned.learn(decode_value(segment, 3, data))
    share, bounds = share_of([([b"a", b"b", b"c"], 0)])
    verdict = learned.sort_out(share, bounds)
    assert len(verdict.answered) == len(share.live)


def test_a_removal_of_nothing_is_remembered_through_log_and_state():
    table = ProducerTable(4)
    share, bounds = share_of([([b"a"], 0)], kind=2)
    table.sort_out(share, bounds)
    values = log(table, share, bounds, 1 << 40)
    assert decode_value(*(values[0][0], 3, values[0][1])).head.count == 0
    learned = ProducerTable(4)
    for segment, data in values:
        learned.learn(decode_value(segment, 3, data))
    loaded = ProducerTable(4)
    loaded.load((segment, producer, data) for segment, producer, data in learned.take_dirty() if data is not None)
    for known in (table, learned, loaded):
        again, bounds = share_of([([b"a"], 0)], kind=2)
        ids, kinds = known.sort_out(again, bounds).answered[0]
        assert (ids.tolist(), kinds.tolist()) == ([0], [ABSENT])


def test_what_was_stored_and_damaged_is_refused():
    with pytest.raises(CorruptData):
        ProducerTable(4).load([(0, 1, b"\xc1")])


@given(st.integers(0, 400), st.integers(0, 7))
def test_what_was_stored_and_is_cut_off_or_says_another_size_is_refused(length, bit):
    table, segments, _ = first_result()
    [(number, data)] = table.export(segments.item(0))
    cut = data[: length % len(data)]
    lying = bytearray(data)
    lying[16 + length % 2] ^= 1 << bit  # how many results there are
    for damaged in (cut, bytes(lying), data + b"x"):
        with pytest.raises(CorruptData):
            ProducerTable(4).load([(segments.item(0), number, damaged)])


def test_a_block_on_its_way_is_not_answered_with_what_a_lost_log_made_of_its_number():
    table, segments, _ = first_result()
    rows = [(segment, PRODUCER, data) for segment in segments.tolist() for _, data in table.export(segment)]
    lost, bounds = share_of([([b"a", b"b", b"c"], 1)])
    table.sort_out(lost, bounds)
    log(table, lost, bounds, 2 << 40)
    table.forget(segments)
    table.load(rows)
    written, bounds = share_of([([b"a", b"b", b"c"], 1)])
    assert not table.sort_out(written, bounds).answered
    again, bounds = share_of([([b"a", b"b", b"c"], 1)])
    verdict = table.sort_out(again, bounds)
    assert (verdict.answered, verdict.deferred) == ({}, set(range(len(again.live))))
    assert [(segment, PRODUCER, data) for segment in segments.tolist() for _, data in table.export(segment)] == rows


def test_the_longest_silent_are_forgotten():
    table, minute = ProducerTable(4, bounds=ProducerBounds(silent_max=2)), PRODUCER_IDLE_MS_MIN << 22
    for producer in (1, 2, 3, 4):
        one_event(table, producer, segment=1, sequence=0, id_=producer * minute)
    table.forget_silent(4 * minute)
    assert numbers_of(table) == {3, 4}
    assert {number for _, number, data in table.take_dirty() if data is None} == {1, 2}


def test_nobody_who_wrote_within_the_last_minute_is_forgotten_however_many_there_are():
    table = ProducerTable(4, bounds=ProducerBounds(silent_max=2))
    for producer in range(1, 10):
        one_event(table, producer, segment=1, sequence=0, id_=producer << 22)
    table.forget_silent(PRODUCER_IDLE_MS_MIN << 22)
    again, bounds = share_of([([b"a"], 0)])
    again.submitted.producers[:] = 1
    again.submitted.segments[:] = 1
    assert len(table.sort_out(again, bounds).answered) == 1, "its first block would be written twice"


def test_a_transaction_is_forgotten_when_its_day_is_over_and_not_for_want_of_room():
    table, day = ProducerTable(4, bounds=ProducerBounds(silent_max=2)), PRODUCER_IDLE_MS_MAX << 22
    lasting = [TRANSACTIONS_FROM + number for number in range(3)]
    for producer in (1, *lasting, 2, 3):
        one_event(table, producer, segment=1, sequence=0, id_=1 << 22)
    table.forget_silent(day)
    assert numbers_of(table) == set(lasting), "those that may be forgotten are, though they come behind"
    assert [table.last_logged(producer, segment) for producer, segment in [(lasting[0], 1), (lasting[0], 2), (1, 1)]] == [0, -1, -1]
    table.forget_silent(day + (2 << 22))
    assert numbers_of(table) == set()


def test_copies_that_forget_at_different_moments_agree_about_all_that_was_written_lately():
    """Each has the producers of the segments that it holds, applies them at its own pace, and looks who is silent when it likes.

    It may start again from what it stored, be replaced by a copy, and have blocks on their way cut off.
    """
    minute = PRODUCER_IDLE_MS_MIN << 22
    differ = 0
    for seed in range(examples(30)):
        chance, sequences, last_id = random.Random(seed), Counter[tuple[int, int]](), 0
        history: list[tuple[int, int, int, int]] = []
        for _ in range(300):
            last_id += chance.choice((1 << 22, 5_000 << 22, minute))
            number, segment = chance.randrange(1, 13), chance.randrange(4)
            history.append((number, segment, sequences[number, segment], last_id))
            sequences[number, segment] += 1
        copies = [_copy_of(history, frozenset(chance.sample(range(4), chance.randint(2, 4))), chance) for _ in range(3)]
        latest = {(number, segment): sequence for number, segment, sequence, _ in history}
        for number, segment, sequence, id_ in history:
            holding = [(table, number in numbers) for held, table, numbers in copies if segment in held]
            differ += len({is_known for _, is_known in holding}) > 1
            if last_id - id_ <= minute:
                assert all(is_known for _, is_known in holding)
                for table, _ in holding:
                    assert table.is_next(number, segment, latest[number, segment] + 1)
                    assert answer_of(table, producer=number, segment=segment, sequence=sequence, count=1) == ([id_], [0])
    assert differ, "they did forget at different moments"


def _copy_of(history, held, chance):
    bounds = ProducerBounds(silent_max=3)
    table, left, stored = ProducerTable(4, bounds=bounds), list(history), {}
    while left:
        some, left = left[: (count := chance.randint(1, 20))], left[count:]
        for number, segment, sequence, id_ in some:
            if segment in held:
                one_event(table, number, segment=segment, sequence=sequence, id_=id_)
        act = chance.choice(("forget", "forget", "forget", "restart", "copy", "cut", ""))
        if act == "forget":
            table.forget_silent(some[-1][3])
        elif act == "cut":
            for number, segment, sequence, _ in some:
                if segment in held:
                    table.advance_one(number, segment, sequence + 1)
            table.rewind(np.arange(4))
        elif act:
            stored |= {(segment, number): data for segment, number, data in table.take_dirty()}
            if act == "copy":
                stored = {(segment, number): data for segment in held for number, data in table.export(segment)}
            table = ProducerTable(4, bounds=bounds)
            table.load((segment, number, data) for (segment, number), data in stored.items() if data is not None)
    return held, table, numbers_of(table)


def test_producers_that_begin_in_the_same_group_are_all_remembered():
    table = ProducerTable(4)
    share, bounds = share_of([([b"a"], 0), ([b"b"], 0)])
    share.submitted.producers[bounds[1] :] = PRODUCER + 1
    table.sort_out(share, bounds)
    last_id = 1 << 60
    for number in (PRODUCER + 1, PRODUCER):
        frame = FrameResult(
            segments=np.array([1]), sequences=np.array([0]), starts=np.array([0, 1]), ids=np.array([last_id]), kinds=np.zeros(1, np.uint8)
        )
        table.record(number, frame, last_ids=np.array([last_id]))
        table.forget_silent(last_id)
    assert len(table) == 2


def test_who_was_silent_for_a_day_of_ids_is_forgotten_and_told_so():
    table, _, _ = first_result()
    table.forget_silent((1 << 40) + (PRODUCER_IDLE_MS_MAX << 22))
    assert len(table) == 1
    table.forget_silent((1 << 41) + (PRODUCER_IDLE_MS_MAX << 22))
    assert len(table) == 0
    share, bounds = share_of([([b"a"], 1)])
    table.sort_out(share, bounds)
    assert isinstance(share.refusals[0], ProducerUnknown)


def test_a_quiet_segment_does_not_keep_the_results_of_busy_ones():
    def result(segment: int, sequence: int) -> FrameResult:
        one = np.array([segment])
        return FrameResult(
            segments=one, sequences=np.array([sequence]), starts=np.array([0, 2]), ids=np.full(2, sequence), kinds=np.zeros(2, np.uint8)
        )

    table = ProducerTable(4)
    sizes = []
    for segment, sequence in [(0, 0), *((1, sequence) for sequence in range(2_000))]:
        table.learn_frame(PRODUCER, result(segment, sequence), last_ids=np.array([1 + sequence]))
        sizes.append(table.nbytes)
    assert max(sizes) == max(sizes[: 4 * PRODUCER_RESULTS_KEPT])
    assert answer_of(table, segment=0, sequence=0, count=2) is not None
    assert all(answer_of(table, segment=1, sequence=1_999 - back, count=2) is not None for back in range(PRODUCER_RESULTS_KEPT))
    assert answer_of(table, segment=1, sequence=1_000, count=2) is None


def test_a_block_for_a_seldom_written_segment_does_not_hold_back_the_results_of_others() -> None:
    table = ProducerTable(4)
    by_segment = {int(segment): key for key, segment in zip(_keys(100), segments_of(_keys(100), segments=4).tolist(), strict=True)}
    rare, busy = by_segment[0], by_segment[1]
    share, bounds = share_of([([rare, rare], 0)])
    table.sort_out(share, bounds)
    log(table, share, bounds, 1 << 20)
    sizes = []
    for sequence in range(300):
        share, bounds = share_of([([busy, busy], sequence)])
        assert not table.sort_out(share, bounds).answered
        log(table, share, bounds, (sequence + 2) << 20)
        sizes.append(table.nbytes)
    assert max(sizes) == max(sizes[: 8 * PRODUCER_RESULTS_KEPT])
    repeated, bounds = share_of([([rare, rare], 0)])
    assert list(table.sort_out(repeated, bounds).answered) == [0], "the last block of every segment is still known"


def test_frames_of_one_group_that_follow_each_other_in_one_segment_are_one_step() -> None:
    table = ProducerTable(4)
    share, bounds = share_of([([b"a"], 0)])
    table.sort_out(share, bounds)
    log(table, share, bounds, 1 << 20)
    share, bounds = share_of([([b"a"], 1), ([b"a"], 2), ([b"a"], 3)])
    assert not table.sort_out(share, bounds).answered
    assert not share.refusals
    share, bounds = share_of([([b"a"], 4), ([b"a"], 6)])
    table.sort_out(share, bounds)
    assert [type(error) for error in share.refusals.values()] == [SequenceGap], "a gap within the group is found"
    assert table.is_next(PRODUCER, share.submitted.segments.item(0), 5)


def test_neighbouring_frames_of_one_producer_are_one_run() -> None:
    producers = np.array([5, 5, 5, 7, 5, 0, 0], np.uint64)
    assert runs_of(producers, [0, 1, 3, 4, 5, 6, 7]) == [(0, 3), (3, 4), (4, 5), (5, 7)]


def _keys(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=5), max_size=25), st.integers(1, 9))
def test_what_is_stored_of_a_segment_are_its_last_results_however_they_came(frames, every):
    """Frames of blocks (segment, events); what changed is taken after every few of them."""
    table, said, next_id = ProducerTable(4), {}, 1
    wanted = {segment: [] for segment in range(4)}
    for number, blocks in enumerate(frames, 1):
        rows = []
        for segment, count in blocks:
            rows.append((segment, sum(row[0] == segment for row in rows) + len(wanted[segment]), np.arange(next_id, next_id + count)))
            next_id += count
        frame = FrameResult(
            segments=np.array([segment for segment, _, _ in rows], np.int64),
            sequences=np.array([sequence for _, sequence, _ in rows], np.int64),
            starts=np.cumsum([0, *(len(ids) for _, _, ids in rows)]),
            ids=np.concatenate([np.zeros(0, np.int64), *(ids for _, _, ids in rows)]),
            kinds=np.zeros(sum(len(ids) for _, _, ids in rows), np.uint8),
        )
        table.learn_frame(PRODUCER, frame, last_ids=np.full(len(rows), next_id))
        for segment, sequence, ids in rows:
            wanted[segment].append((sequence, ids.tolist()))
        if number % every == 0:
            said.update({segment: data for segment, _, data in table.take_dirty()})
    said.update({segment: data for segment, _, data in table.take_dirty()})
    assert said.keys() == {segment for segment, rows in wanted.items() if rows}
    for segment, data in said.items():
        assert [(PRODUCER, data)] == list(table.export(segment))
        loaded = ProducerTable(4)
        loaded.load([(segment, PRODUCER, data)])
        [(_, stored)] = loaded.export(segment)
        assert stored == data
        _, _, results = read_row(segment, data)
        found = [(results.sequences.item(index), results.block(index)[0].tolist()) for index in range(len(results.segments))]
        assert found == wanted[segment][-PRODUCER_RESULTS_KEPT:]


def test_who_was_silent_for_long_is_not_forgotten_while_a_block_is_on_its_way():
    table, _, _ = first_result()
    share, bounds = share_of([([b"a"], 1)])
    table.sort_out(share, bounds)
    late = (1 << 41) + (PRODUCER_IDLE_MS_MAX << 22)
    table.forget_silent(late)
    assert len(table) == 1
    table.give_back(share)
    table.forget_silent(late)
    assert len(table) == 0


def one_event(table, producer, *, segment, sequence, id_, kind=0):
    table.learn_one(producer, segment=segment, sequence=sequence, id_=id_, kind=kind)


def numbers_of(table):
    """Return the producers that have written and are not forgotten."""
    return {number for segment in range(4) for number, _ in table.export(segment)}


def answer_of(table, *, segment, sequence, count, producer=PRODUCER):
    """Return ids and kinds that a block sent again is answered with, None where it is refused."""
    share, bounds = share_of([([b"a"], sequence)])
    submitted = share.submitted
    submitted.producers[:], submitted.segments[:], submitted.counts[:] = producer, segment, count
    answered = table.sort_out(share, bounds).answered
    assert len(answered) + len(share.refusals) == 1
    return None if not answered else (answered[0][0].tolist(), answered[0][1].tolist())


def test_results_of_single_events_are_kept_beside_those_of_many_and_come_back_from_the_store():
    table = ProducerTable(4)
    for sequence in range(40):
        if sequence % 3:
            one_event(table, PRODUCER, segment=2, sequence=sequence, id_=1_000 + sequence, kind=sequence % 2)
        else:
            frame = FrameResult(
                segments=np.array([2]),
                sequences=np.array([sequence]),
                starts=np.array([0, 2]),
                ids=np.array([0, 1_000 + sequence]),
                kinds=np.array([ABSENT, 1], np.uint8),
            )
            table.learn_frame(PRODUCER, frame, last_ids=np.array([1_000 + sequence]))
    loaded = ProducerTable(4)
    loaded.load([row for row in table.take_dirty() if row[2] is not None])
    assert list(loaded.export(2)) == list(table.export(2))
    assert 0 < loaded.nbytes <= table.nbytes
    for of in (table, loaded):
        for sequence in range(40 - PRODUCER_RESULTS_KEPT, 40):
            single, many = ([1_000 + sequence], [sequence % 2]), ([0, 1_000 + sequence], [ABSENT, 1])
            found = answer_of(of, segment=2, sequence=sequence, count=1 if sequence % 3 else 2)
            assert found == (single if sequence % 3 else many)
        assert answer_of(of, segment=2, sequence=4, count=1) is None
        assert answer_of(of, segment=1, sequence=30, count=1) is None


@pytest.mark.parametrize("is_single", [True, False])
def test_of_a_number_that_was_lost_and_given_again_the_later_result_counts(is_single):
    table = ProducerTable(4)
    many = FrameResult(
        segments=np.array([2]), sequences=np.array([0]), starts=np.array([0, 2]), ids=np.array([70, 71]), kinds=np.zeros(2, np.uint8)
    )
    if is_single:
        table.learn_frame(PRODUCER, many, last_ids=np.array([71]))
        one_event(table, PRODUCER, segment=2, sequence=0, id_=90)
    else:
        one_event(table, PRODUCER, segment=2, sequence=0, id_=60)
        table.learn_frame(PRODUCER, many, last_ids=np.array([71]))
    [(_, data)] = table.export(2)
    loaded = ProducerTable(4)
    loaded.load([(2, PRODUCER, data)])
    for known in (table, loaded):
        assert answer_of(known, segment=2, sequence=0, count=1 if is_single else 2) == (([90], [0]) if is_single else ([70, 71], [0, 0]))


def test_a_thousand_single_events_in_many_segments_take_little_room():
    table = ProducerTable(256)
    for number in range(16 * 256):
        one_event(table, PRODUCER, segment=number % 256, sequence=number // 256, id_=1 + number)
    assert table.nbytes < 100_000


def test_beyond_the_room_of_a_cache_who_has_been_silent_for_a_while_is_forgotten_longest_silent_first():
    minute = PRODUCER_IDLE_MS_MIN << 22

    def ten_of(bounds):
        table = ProducerTable(4, bounds=bounds)
        for number in range(10):
            one_event(table, PRODUCER + number, segment=1, sequence=0, id_=1 + number * minute)
        size = table.nbytes // 10
        table.advance_one(PRODUCER, 1, 1)  # on its way
        table.forget_silent(10 * minute)
        return table, size

    roomy, size = ten_of(ProducerBounds())
    assert len(roomy) == 10
    tight, _ = ten_of(ProducerBounds(nbytes_max=7 * size))
    assert numbers_of(tight) == {PRODUCER, *range(PRODUCER + 4, PRODUCER + 10)}
    none, _ = ten_of(ProducerBounds(nbytes_max=0))
    assert numbers_of(none) == {PRODUCER, PRODUCER + 9}, "it wrote within the last minute"
    assert none.nbytes == 2 * size
    assert {number for _, number, data in none.take_dirty() if data is None} == set(range(PRODUCER + 1, PRODUCER + 9))


def test_more_new_producers_than_can_be_remembered_are_refused_and_the_known_ones_go_on():
    table = ProducerTable(4, bounds=ProducerBounds(late_max=2))
    for number in (PRODUCER, PRODUCER + 1):
        one_event(table, number, segment=1, sequence=0, id_=1)
    new, bounds = share_of([([b"a"], 0)])
    new.submitted.producers[:] = PRODUCER + 2
    table.sort_out(new, bounds)
    assert isinstance(new.refusals[0], Overloaded)
    known, bounds = share_of([([b"a"], 1)])
    known.submitted.segments[:] = 1
    table.sort_out(known, bounds)
    assert known.refusals == {}
    table.forget_silent(2 * PRODUCER_IDLE_MS_MAX << 22)
    again, bounds = share_of([([b"a"], 0)])
    again.submitted.producers[:] = PRODUCER + 2
    table.sort_out(again, bounds)
    assert again.refusals == {}
