"""The clock of tests."""

import asyncio
import time

import pytest

from tests import loops


def test_a_process_that_stood_still_finds_no_more_than_a_step_gone():
    stood_still = [0.0]

    async def main():
        loop, called = asyncio.get_running_loop(), []
        loop.call_later(60, called.append, 1)
        began = loop.time()
        stood_still[0] += 3_600
        await asyncio.sleep(0.005)
        assert 0.005 <= loop.time() - began < 60
        assert not called

    loops.run(main(), monotonic=lambda: time.monotonic() + stood_still[0])


def test_time_goes_on_while_nothing_happens():
    async def main():
        began = time.monotonic()
        await asyncio.sleep(0.05)
        assert time.monotonic() - began >= 0.04
        await loops.until(lambda: time.monotonic() - began >= 0.06)

    loops.run(main())


def test_a_state_that_does_not_come_is_given_up():
    with pytest.raises(TimeoutError):
        loops.run(loops.until(list, within_s=0.01))
