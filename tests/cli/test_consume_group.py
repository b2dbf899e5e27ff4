"""`eventlog consume --group`, its reading given: what is committed, and what becomes of a commit that fails."""

from collections.abc import Iterator
from typing import Any, Self

import pytest

from eventlog.errors import StaleMember, TimedOut
from eventlog.events import Event
from tests.cli.fakes import Batch, event
from tests.cli.test_consume import printed_ids, run

BATCHES = [Batch([event(10), event(11)], 12), Batch([event(20)], 25)]
LATE = TimedOut(what="commit_group", timeout_ms=1)


class Group:
    """A cache and its group, some of whose commits fail."""

    last_id = 9

    def __init__(self, *fates: BaseException | None) -> None:
        self.fates = list(fates)
        self.committed: list[Event | None] = []
        self.joined_with: dict[str, Any] = {}

    def log_ends(self) -> Self:
        return self

    def consumer(self, group: str, **options: Any) -> Self:
        self.joined_with = {"group": group} | options
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def batches(self, max_events: int, *, until_id: int | None) -> Iterator[Batch]:
        assert max_events >= 0
        assert until_id is None or until_id > 0
        yield from BATCHES

    def commit(self, done: Event | None = None) -> None:
        fate = self.fates.pop(0) if self.fates else None
        if fate is not None:
            raise fate
        self.committed.append(done)


@pytest.mark.parametrize("fate", [LATE, StaleMember(group="g", member="m", why="its session is over")])
def test_a_follower_goes_on_where_a_commit_fails_for_now(fate: BaseException) -> None:
    group = Group(fate)
    code, stdout, _ = run(group, "--group", "g", "--follow")
    assert (code, printed_ids(stdout)) == (0, [10, 11, 20])
    assert group.committed == [None, None], "the next commit makes up for it; the last one is on leaving"
    assert group.joined_with["auto_commit"] is True, "or, where nothing follows, the consumer by itself"


@pytest.mark.parametrize("words", [(), ("--follow", "--max", "3")])
def test_what_has_an_end_fails_with_its_commit(words: tuple[str, ...]) -> None:
    group = Group(LATE)
    code, stdout, _ = run(group, "--group", "g", *words)
    assert (code, printed_ids(stdout)) == (3, [10, 11])
    assert group.joined_with["auto_commit"] is False


def test_of_a_batch_that_is_printed_in_part_this_part_is_committed() -> None:
    group = Group()
    code, stdout, _ = run(group, "--group", "g", "--max", "1")
    assert (code, printed_ids(stdout)) == (0, [10])
    assert [done.id for done in group.committed if done is not None] == [10]


def test_an_id_of_the_future_is_no_beginning_of_a_group() -> None:
    group = Group()
    code, stdout, stderr = run(group, "--group", "g", "--from-id", str((1 << 63) - 1))
    assert (code, stdout, group.joined_with) == (1, "", {})
    assert " is of the future: " in stderr
