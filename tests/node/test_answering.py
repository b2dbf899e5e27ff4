"""A request whose work fails in a way that nobody expected: refused, and the node goes on."""

import asyncio

import pytest

from eventlog.errors import UNEXPECTED, EventLogError
from eventlog.node.handlers import events
from eventlog.predicate.spec import FilterSpec
from eventlog.wire.eventlog_pb2 import Fetch, Filter, Message
from tests.node.nodes import cache_of, with_node
from tests.node.polling import FakeExchange, poll_exchange


@pytest.mark.parametrize("kind", ["poll", "state", "fetch"])
def test_an_unexpected_error_is_the_answer_of_the_request_that_met_it_and_nothing_else(tmp_path, kind):
    def fail(spec: FilterSpec, *_: object) -> None:
        raise RecursionError(str(spec.where))

    async def act(node):
        cache = await cache_of(node, format="json")
        node.reads.filters.compiler = fail
        wanted = Filter(where="value.a > 1")
        if kind == "fetch":
            exchange = FakeExchange(Message(fetch=Fetch(cache_id=cache.cache_id, filter=wanted)))
            events.give(node, exchange)
        else:
            exchange = poll_exchange(cache_id=cache.cache_id, filter=wanted, state_first=kind == "state")
            events.poll(node, exchange)
        while exchange.error is None:  # noqa: ASYNC110 -- the node's own task ends it
            await asyncio.sleep(0)
        return exchange.error

    error = with_node(tmp_path, act)
    assert type(error) is EventLogError
    assert str(error) == UNEXPECTED  # and not what its own text holds
