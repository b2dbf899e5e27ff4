"""How the demo waits for its writers: for as long as they get on."""

from collections.abc import Callable

import pytest

from eventlog.errors import Unavailable
from eventlog_cli.demo import story


class Clock:
    """Time passes while somebody sleeps, and at no other moment."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def wait_for(reached: Callable[[], int], goal: int, *, check: Callable[[], None], seconds_max: float) -> None:
    clock = Clock()
    story.wait_for(reached, goal, check=check, seconds_max=seconds_max, monotonic=clock.monotonic, sleep=clock.sleep)


def test_writers_that_get_on_are_waited_for_longer_than_a_standstill() -> None:
    done: list[None] = []
    wait_for(lambda: len(done), 30, check=lambda: done.append(None), seconds_max=0.05)
    assert len(done) == 30


def test_writers_that_stand_still_are_given_up() -> None:
    with pytest.raises(Unavailable, match="no write acknowledged for"):
        wait_for(lambda: 7, 8, check=lambda: None, seconds_max=0.02)


def test_there_is_no_waiting_for_writers_whose_nodes_are_gone() -> None:
    def check() -> None:
        raise Unavailable(why="node n1 ended")

    with pytest.raises(Unavailable, match="node n1 ended"):
        wait_for(lambda: 0, 1, check=check, seconds_max=60)
