"""A node that does not know of columns answers all of them: the client shows what was asked for all the same."""

import pyarrow as pa
import pytest

from eventlog.errors import InvalidArgument
from tests.client.fake_node import FakeNode
from tests.process.client_ends import client_of, run


@pytest.mark.parametrize("columns", [("id",), ("key", "id"), ("value", "headers", "kind")])
def test_an_older_node_answers_more_than_is_shown(columns: tuple[str, ...]) -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            cache = await client.create_cache("c")
            await cache.put_many([(f"k{key}", {"n": key}) for key in range(40)])
            whole = pa.Table.from_batches([batch.arrow() async for batch in cache.event_batches()])
            batches = [batch async for batch in cache.event_batches(columns=columns)]
            assert pa.Table.from_batches([batch.arrow() for batch in batches]) == whole.select(columns)
            assert await cache.scan_events(columns=columns).to_arrow() == whole.select(columns)
            if "value" not in columns:
                with pytest.raises(InvalidArgument, match="column 'value' was not asked for"):
                    batches[0].values.to_list()

    run(main())
