"""When a lane sends again what was refused for now."""

import asyncio
from typing import Any

from eventlog.client.writing.contents import rest_of
from eventlog.client.writing.lane import Lane, LaneShared
from eventlog.routing.lanes import Lanes, lane_apart
from eventlog.routing.window import Numbering
from tests import loops

SEGMENT = 3


def lane_of_its_own() -> Lane:
    """Return the lane of a segment that is set apart, with nothing to send."""
    nobody: Any = None
    connection: Any = object()
    shared = LaneShared(
        nodes=nobody,
        options=nobody,
        lanes=Lanes(Numbering(8), split=rest_of),
        undecided=nobody,
        send_soon=nobody,
        answered=nobody,
        set_apart=nobody,
        rejoin=nobody,
        hold=nobody,
    )
    lane = Lane(lane_apart(SEGMENT), shared)
    lane.connection = connection
    return lane


def test_one_timer_is_set_for_a_wait_where_the_clock_counts_whole_milliseconds() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, loops.CoarseLoop)
        lane = lane_of_its_own()
        for _ in range(20):
            lane.not_before = loop.time() + 0.02
            lane.send()
            while lane.not_before:  # noqa: ASYNC110 -- a timer's own to end
                await asyncio.sleep(0)
        assert loop.timers == 20

    with asyncio.Runner(loop_factory=loops.CoarseLoop) as runner:
        runner.run(main())
