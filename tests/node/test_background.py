"""Work by the clock that fails: told, counted, tried again; the others and the node go on."""

import asyncio
import logging
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import Unavailable
from eventlog.node.background import due, every
from eventlog.node.figures import counters
from eventlog.node.periodic import Periodic
from tests.loops import until
from tests.node.nodes import cache_of, submit, with_node

WORKS = {"lease", "checkpoint", "expiry", "disk", "clocks", "groups", "close_up", "retention"}


class Broken:
    """A part of a node in which everything is a bug."""

    def __getattr__(self, name):
        return self

    def __iter__(self):
        raise ZeroDivisionError("planted")

    def __call__(self, *given, **named):
        raise ZeroDivisionError("planted")


@given(now=st.floats(0, 1e7), pause_ms=st.integers(0, 20_000))
def test_pauses_end_on_the_tenths_of_the_clock_and_are_about_as_long_as_asked_for(now, pause_ms):
    end = due(now, pause_ms)
    if pause_ms < 100:
        assert end == now + pause_ms / 1000
    else:
        assert abs(10 * end - round(10 * end)) < 1e-6
        assert abs(end - now - pause_ms / 1000) < 0.0501
        assert end > now


@pytest.mark.parametrize("error", [Unavailable(why="planted"), ZeroDivisionError("planted")])
def test_work_that_fails_is_logged_counted_and_tried_again(caplog, error):
    failures: Counter[str] = Counter()
    done = 0

    async def act() -> None:
        nonlocal done
        done += 1
        if done % 2:
            raise error

    async def run() -> None:
        task = asyncio.create_task(every(0, act, name="planted", failures=failures))
        await until(lambda: done >= 4)
        assert not task.done()
        task.cancel()

    with caplog.at_level(logging.WARNING, logger="eventlog.node"):
        asyncio.run(run())
    assert failures["planted"] >= 2
    assert len([record for record in caplog.records if "periodic_failed name=planted" in record.message]) == failures["planted"]


class HalfBroken:
    """A node as its periodic work sees it: with bugs wherever that reaches to, while the node itself is whole."""

    def __init__(self, node) -> None:
        self._node = node
        self.checkpoints = self.retention = self.caches = self.disk = self.peers = self.close_up = self.coordinators = self.lease = Broken()
        self.config = replace(node.config, retention_interval_ms=100)

    def __getattr__(self, name):
        return getattr(self._node, name)


def test_a_bug_in_every_periodic_work_stops_neither_the_others_nor_the_node(tmp_path, caplog):
    async def act(node) -> list[str]:
        cache = await cache_of(node)
        Periodic(HalfBroken(node)).start()
        await until(lambda: set(node.failures) >= WORKS and node.failures["disk"] >= 3)
        await submit(node, cache, [(b"k", b"v")])
        return [row[-1] for row in counters(node) if row[0] == "eventlog_periodic_failed_total"]

    with caplog.at_level(logging.CRITICAL, logger="eventlog.node"):
        labels = with_node(tmp_path, act)
    assert set(labels) == {f'work="{name}"' for name in WORKS}
