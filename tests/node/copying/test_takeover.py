"""What the log says of segments that begin or end: a line a moment, not a line a segment."""

import asyncio
import logging

from eventlog.node.copying.takeover import Tally


def test_segments_that_begin_one_by_one_are_one_line(caplog):
    logged = asyncio.Event()

    class Watch(logging.Handler):
        def emit(self, _record: logging.LogRecord) -> None:
            logged.set()

    async def begin() -> None:
        tally = Tally(of=lambda: 256)
        for _ in range(256):
            tally.add("leading", 1)
        tally.add("resigned", 2)
        await logged.wait()

    watch = Watch()
    logging.getLogger("eventlog.node").addHandler(watch)
    try:
        with caplog.at_level(logging.INFO):
            asyncio.run(asyncio.wait_for(begin(), 60))
    finally:
        logging.getLogger("eventlog.node").removeHandler(watch)
    assert caplog.messages == ["leading segments=256 of=256", "resigned segments=2 of=256"]
