import asyncio
from collections.abc import AsyncGenerator
from types import SimpleNamespace

import pytest

from eventlog.client.reading.iterating import EntryBatch, EntryReader, IterationOptions, IterationProgress, deal
from eventlog.routing.routes import Routes

MANY = 1 << 62  # more than there are moments to look at each


@pytest.mark.parametrize(
    ("owners", "parallel", "groups"),
    [
        ([[0, 1, 2], [3]], 1, [[0, 1, 2, 3]]),
        ([[0, 1, 2], [3]], 2, [[0, 1, 2], [3]]),
        ([[0, 1, 2], [3]], 3, [[0, 2], [1], [3]]),
        ([[0, 1, 2], [3]], MANY, [[0], [1], [2], [3]]),
        ([], MANY, [[]]),
    ],
)
def test_segments_are_dealt_to_as_many_streams_as_there_can_be(owners, parallel, groups):
    assert deal(owners, parallel) == groups


class Odd(EntryReader):
    """A reader one of whose streams brings what it cannot read."""

    def __init__(self) -> None:
        super().__init__(SimpleNamespace(routes=Routes(segments=8)), None, info=None, form=None)

    async def group(self, progress: IterationProgress, _: IterationOptions) -> AsyncGenerator[EntryBatch, None]:
        if progress.next[0][0]:
            raise ZeroDivisionError
        await asyncio.sleep(60)
        yield None


def test_what_one_of_several_streams_cannot_read_is_told_and_not_waited_for() -> None:
    async def act() -> None:
        async with asyncio.timeout(5):
            with pytest.raises(ZeroDivisionError):
                await anext(Odd().batches(IterationOptions(batch_entries=1, batch_bytes=1, parallel=2)))

    asyncio.run(act())
