"""Stories of the window."""

import numpy as np
import pytest

from eventlog.limits import PRODUCER_RESULTS_KEPT
from eventlog.routing.window import BEHIND_MAX, SEQUENCE_MAX, NumberedFrame, Numbering, State, Window

SEGMENTS = 3


def frame(name: int, *segments: int) -> NumberedFrame[int]:
    return NumberedFrame(cache=1, segments=np.array(segments, np.int64), content=name)


def window(*, numbered: bool = True, numbering: Numbering | None = None) -> Window[int]:
    opened: Window[int] = Window(numbering or Numbering(SEGMENTS), numbered=numbered)
    opened.resume()
    return opened


def send(opened: Window[int], *frames: NumberedFrame[int]) -> list[NumberedFrame[int]]:
    for each in frames:
        opened.add(each)
    return list(iter(opened.take, None))


def in_turn(opened: Window[int]) -> list[tuple[int, list[int]]]:
    """What is sent when each frame is answered before the next: content and numbers."""
    found = []
    while (taken := opened.take()) is not None:
        found.append((taken.content, taken.sequences.tolist()))
        opened.answered(taken)
    return found


def test_numbers_are_dense_in_each_segment() -> None:
    sent = send(window(), frame(0, 0, 1), frame(1, 1), frame(2, 0, 1, 2))
    assert [each.sequences.tolist() for each in sent] == [[0, 0], [1], [1, 2, 0]]


def test_caches_are_numbered_apart() -> None:
    opened = window()
    other: NumberedFrame[int] = NumberedFrame(cache=2, segments=np.array([0]), content=1)
    assert [each.sequences.tolist() for each in send(opened, frame(0, 0), other)] == [[0], [0]]


def test_a_segment_has_no_more_unanswered_blocks_than_results_are_remembered() -> None:
    opened = window()
    sent = send(opened, *(frame(n, 0) for n in range(PRODUCER_RESULTS_KEPT + 2)))
    assert len(sent) == PRODUCER_RESULTS_KEPT
    opened.answered(sent[0])
    following = opened.take()
    assert following is not None
    assert following.content == PRODUCER_RESULTS_KEPT
    assert opened.take() is None


def test_nothing_is_sent_before_there_is_a_connection() -> None:
    opened: Window[int] = Window(Numbering(SEGMENTS))
    assert send(opened, frame(0, 0)) == []
    assert opened.resume() == []
    assert opened.take() is not None


def test_a_new_connection_first_gets_what_the_old_one_did_not_answer_with_the_same_numbers() -> None:
    opened = window()
    sent = send(opened, frame(0, 0), frame(1, 0, 1), frame(2, 1))
    opened.answered(sent[1])
    opened.lost()
    assert opened.take() is None
    again = opened.resume()
    assert [(each.content, each.sequences.tolist()) for each in again] == [(0, [0]), (2, [1])]
    assert all(each.doubtful for each in again)


def test_after_a_refusal_nothing_new_is_sent_until_all_is_answered_and_then_numbers_close_up() -> None:
    opened = window()
    first, second, third = send(opened, frame(0, 0), frame(1, 0, 1), frame(2, 1))
    opened.refused(first)
    opened.add(frame(3, 0))
    assert opened.is_draining
    assert opened.take() is None
    opened.refused(second, told={0: -1})
    assert opened.take() is None
    opened.refused(third, told={1: -1})
    assert in_turn(opened) == [(0, [0]), (1, [1, 0]), (2, [1]), (3, [2])]


def test_a_refused_frame_that_nobody_wants_any_more_leaves_its_number_to_the_next() -> None:
    opened = window()
    first, second = send(opened, frame(0, 0), frame(1, 0))
    first.wanted = False
    opened.refused(first)
    opened.refused(second)
    assert in_turn(opened) == [(1, [0])]
    assert first.state is State.DONE


def test_a_frame_refused_in_part_goes_on_with_the_rest_in_its_place() -> None:
    opened = window()
    first, second = send(opened, frame(0, 0, 1, 2), frame(1, 1))
    rest = frame(10, 1)
    opened.refused_in_part(first, rest, free=np.array([1]), again=np.array([1]), told={})
    opened.refused(second)
    assert in_turn(opened) == [(10, [0]), (1, [1])]
    assert send(opened, frame(2, 0))[0].sequences.tolist() == [1]


def test_a_merged_frame_is_taken_apart_in_its_place() -> None:
    opened = window()
    first, second = send(opened, frame(0, 0, 1), frame(1, 0))
    opened.replaced(first, [frame(10, 0), frame(11, 1)])
    opened.refused(second)
    assert in_turn(opened) == [(10, [0]), (11, [0]), (1, [1])]


def test_frames_keep_their_order_when_those_in_doubt_are_refused_last() -> None:
    opened = window()
    frames = send(opened, *(frame(n, 0) for n in range(4)))
    opened.refused(frames[0])
    opened.refused(frames[2], told={0: -1})
    opened.refused(frames[3], told={0: -1})
    opened.lost()
    assert opened.resume() == [frames[1]]
    opened.refused(frames[1], told={0: -1})
    assert in_turn(opened) == [(0, [0]), (1, [1]), (2, [2]), (3, [3])]


def test_the_primary_knows_better_which_number_is_next() -> None:
    opened = window()
    opened.answered(send(opened, frame(0, 0))[0])  # outcome unknown, taken as written, and then cut away
    (second,) = send(opened, frame(1, 0))
    opened.refused(second, told={0: -1})
    again = opened.take()
    assert again is not None
    assert again.sequences.tolist() == [0]


def test_a_frame_in_doubt_keeps_its_numbers_when_it_is_refused() -> None:
    opened = window()
    first, second = send(opened, frame(0, 0), frame(1, 0))
    opened.lost()
    opened.resume()
    (third,) = send(opened, frame(2, 0))
    for each in (first, second, third):
        opened.refused(each)
    assert in_turn(opened) == [(0, [0]), (1, [1]), (2, [2])]


def test_nothing_overtakes_a_frame_refused_in_doubt() -> None:
    opened = window()
    first, second = send(opened, frame(0, 0), frame(1, 1))
    opened.lost()
    opened.resume()
    opened.refused(first)
    opened.refused(second)
    opened.add(frame(2, 2))
    assert opened.take() is first
    opened.answered(first)
    assert opened.take() is second
    assert opened.take() is None
    opened.answered(second)
    assert in_turn(opened) == [(2, [0])]


def test_after_a_refusal_one_frame_goes_alone_and_the_others_when_it_is_answered() -> None:
    opened = window()
    for refused in send(opened, frame(0, 0), frame(1, 1), frame(2, 2)):
        opened.refused(refused)
    first = opened.take()
    assert first is not None
    assert opened.take() is None
    opened.answered(first)
    assert len(list(iter(opened.take, None))) == 2


def test_a_frame_in_doubt_never_gets_the_number_of_one_that_is_gone() -> None:
    opened = window()
    first, second = send(opened, frame(0, 0), frame(1, 0))
    first.wanted = False
    opened.refused(first)
    opened.lost()
    opened.resume()
    opened.refused(second, told={0: -1})
    opened.add(frame(2, 0))
    assert opened.take() is None
    assert opened.wants_anew
    opened.lost()
    assert opened.begin_anew() == [second]
    opened.resume()
    assert [(each.content, each.sequences.tolist()) for each in iter(opened.take, None)] == [(2, [0])]


def test_the_number_of_a_frame_in_doubt_is_not_given_away() -> None:
    opened = window()
    (first,) = send(opened, frame(0, 0))
    opened.lost()
    opened.resume()
    first.wanted = False
    opened.refused(first)
    opened.add(frame(1, 0))
    assert opened.take() is None
    assert opened.wants_anew


def test_numbers_answered_above_a_refused_frame_in_doubt_are_not_given_again() -> None:
    opened = window()
    first, second = send(opened, frame(0, 0), frame(1, 0))
    opened.lost()
    opened.resume()
    opened.refused(first)  # but its first copy was written, or the second could not be
    opened.answered(second)
    opened.add(frame(2, 0))
    assert [each.sequences.tolist() for each in iter(opened.take, None)] == [[0]]
    opened.answered(first)
    assert [each.sequences.tolist() for each in iter(opened.take, None)] == [[2]]


def test_what_a_primary_told_is_outdated_by_a_later_answer() -> None:
    opened = window()
    first, second, third = send(opened, frame(0, 0), frame(1, 0), frame(2, 0))
    opened.lost()
    opened.resume()
    opened.refused(first)
    opened.refused(second, told={0: -1})
    opened.answered(third)  # copies of the first two came through the old connection meanwhile
    assert in_turn(opened) == [(0, [0]), (1, [1])]


def test_a_primary_that_has_more_than_was_answered_has_a_frame_in_doubt() -> None:
    opened = window()
    first, second = send(opened, frame(0, 0), frame(1, 0))
    opened.lost()
    opened.resume()
    opened.refused(first)
    opened.refused(second, told={0: 3})
    assert in_turn(opened) == [(0, [0]), (1, [1])]


def test_of_a_frame_in_doubt_that_is_refused_for_good_nothing_is_sent_again() -> None:
    opened = window()
    (first,) = send(opened, frame(0, 0, 1))
    opened.lost()
    opened.resume()
    rest, none = frame(10), np.array([], np.int64)
    rest.wanted = False
    opened.refused_in_part(first, rest, free=none, again=none, told={})
    assert opened.take() is None
    assert not opened.wants_anew
    assert opened.withdraw() == []


def test_a_frame_in_doubt_refused_in_part_keeps_the_numbers_of_the_rest() -> None:
    opened = window()
    (first,) = send(opened, frame(0, 0, 1))
    opened.lost()
    opened.resume()
    rest = frame(10, 1)
    opened.refused_in_part(first, rest, free=np.array([1]), again=np.array([1]), told={})
    assert rest.doubtful
    assert [each.sequences.tolist() for each in iter(opened.take, None)] == [[0]]


def test_a_number_in_doubt_that_nobody_will_use_needs_another_producer() -> None:
    opened = window()
    (first,) = send(opened, frame(0, 0, 1))
    opened.lost()
    opened.resume()
    opened.refused_in_part(first, frame(10, 1), free=np.array([0, 1]), again=np.array([1]), told={})
    assert opened.wants_anew


def test_an_answered_number_is_never_given_again_whatever_a_node_knows() -> None:
    opened = window()
    (first,) = send(opened, frame(0, 0))
    opened.answered(first)
    (second,) = send(opened, frame(1, 0))
    for _ in range(BEHIND_MAX):
        opened.refused_in_part(second, rest := frame(1, 0), free=np.array([0]), again=np.array([0]), told={}, is_behind=True)
        (second,) = iter(opened.take, None)
        assert second is rest
        assert second.sequences.tolist() == [1]
    opened.refused_in_part(second, frame(1, 0), free=np.array([0]), again=np.array([0]), told={}, is_behind=True)
    assert opened.take() is None
    assert opened.wants_anew
    opened.lost()
    assert opened.begin_anew() == []
    opened.resume()
    assert [each.sequences.tolist() for each in iter(opened.take, None)] == [[0]]


def test_a_node_that_was_behind_once_in_a_while_is_not_given_up() -> None:
    opened = window()
    for number in range(2 * BEHIND_MAX):
        (sent,) = send(opened, frame(number, 0))
        opened.refused_in_part(sent, frame(number, 0), free=np.array([0]), again=np.array([0]), told={}, is_behind=True)
        (again,) = iter(opened.take, None)
        opened.answered(again)
    assert not opened.wants_anew


def test_beginning_anew_names_what_stays_unknown() -> None:
    opened = window()
    first, second = send(opened, frame(0, 0), frame(1, 1))
    opened.lost()
    first.wanted = second.wanted = False
    assert opened.is_pointless
    assert opened.begin_anew() == [first, second]
    assert len(opened) == 0


def test_a_resumption_that_somebody_waits_for_is_not_pointless() -> None:
    opened = window()
    first, _ = send(opened, frame(0, 0), frame(1, 1))
    opened.lost()
    first.wanted = False
    assert not opened.is_pointless


def test_a_chain_without_numbers_left_asks_for_another_producer() -> None:
    numbering = Numbering(SEGMENTS)
    opened = window(numbering=numbering)
    (first,) = send(opened, frame(0, 2))
    opened.answered(first)
    numbering.chains[1].next[2] = SEQUENCE_MAX  # four billion blocks later
    opened.add(frame(1, 2))
    assert opened.take() is None
    assert opened.wants_anew
    opened.begin_anew()
    again = opened.take()
    assert again is not None
    assert again.sequences.tolist() == [0]


def test_without_numbers_a_refused_frame_is_not_sent_again() -> None:
    opened = window(numbered=False)
    first, second = send(opened, frame(0, 0), frame(1, 0))
    opened.refused(first)
    assert not opened.is_draining
    assert first.state is State.DONE
    opened.lost()
    opened.give_up(second)
    assert len(opened) == 0


def test_an_illegal_change_is_our_own_bug() -> None:
    done = frame(0, 0)
    done.change(State.DONE)
    with pytest.raises(AssertionError, match="never goes"):
        done.change(State.SENT)


def test_what_nobody_may_know_for_a_repeated_block_by_now_is_not_sent_again() -> None:
    opened = window()
    [first, other] = send(opened, frame(0, 0), frame(1, 1))
    opened.answered(other)
    following = send(opened, frame(2, 1))
    for sent in (first, *following):
        sent.sent_at = 5.0
    opened.lost()
    assert not opened.is_outlived(5.0)
    assert not opened.wants_anew
    assert opened.is_outlived(5.1), "nothing of the first one's chain was answered"
    assert opened.wants_anew
    assert opened.in_doubt == [first, *following]
    assert opened.begin_anew() == [first, *following]
    assert opened.in_doubt == []


def test_a_block_behind_one_that_was_answered_is_known_or_refused_and_may_be_sent_again_at_any_time() -> None:
    opened = window()
    [first] = send(opened, frame(0, 0))
    opened.answered(first)
    send(opened, frame(1, 0))
    opened.lost()
    assert not opened.is_outlived(1e9)
    assert len(opened.resume()) == 1


def test_what_moves_to_another_window_in_doubt_is_outlived_there() -> None:
    numbering = Numbering(SEGMENTS)
    opened = window(numbering=numbering)
    [sent] = send(opened, frame(0, 0))
    sent.sent_at = 5.0
    opened.lost()
    other: Window[int] = Window(numbering)
    other.resume()
    assert not other.has_doubts
    other.put_back(opened.withdraw())
    assert other.has_doubts
    assert (other.is_outlived(5.0), other.is_outlived(5.1)) == (False, True)
    assert other.take() is None
