"""Promoted fields from the alteration of a cache to the filter that uses them."""

import json
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from eventlog.batch.columns import columns_of_values
from eventlog.batch.join import pack
from eventlog.errors import InvalidArgument
from eventlog.ids import ID_MAX
from eventlog.node.reading.filters import context_of
from eventlog.predicate.compile import compile_filter
from eventlog.predicate.spec import FilterSpec
from eventlog.segment.keys import log_range
from tests.node.nodes import SEGMENTS, cache_of, submit, with_node


def stored(node, cache):
    """Return everything in the log of a cache as columns."""
    pairs = [
        (segment, data)
        for segment in range(SEGMENTS)
        for _, data in node.store.read_log(*log_range(segment, cache.cache_id, after=0, upto=ID_MAX), bytes_max=1 << 30)
    ]
    return columns_of_values(pack([segment for segment, _ in pairs], [data for _, data in pairs]), after=0, until=ID_MAX)


def test_fields_are_stored_beside_the_values_from_the_alteration_on(tmp_path):
    async def act(node):
        cache = await cache_of(node, format="json")
        await submit(node, cache, [(b"a", b'{"total": 1}')])
        await node.cache_changes.alter("c", {"promote": "value.total,value.customer.name"})
        await submit(node, cache, [(b"k%d" % n, b'{"total": %d, "customer": {"name": "n%d"}}' % (n, n % 3)) for n in range(20)])
        events = stored(node, cache)
        assert events.promoted("value.total") is None, "one was written before"
        later = events.take(np.flatnonzero(~events.keys.equals(b"a")))
        values = [json.loads(value) for value in later.values.to_list()]
        assert [int(item) for item in later.promoted("value.total").to_list()] == [value["total"] for value in values]
        assert later.promoted("value.customer.name").to_list() == [msgspec.json.encode(value["customer"]["name"]) for value in values]
        for where in ("value.total >= 7", "value.customer.name = 'n1' AND value.total IN (1, 4, 5)"):
            context = context_of(cache)
            beside = compile_filter(FilterSpec(where=where), context).mask
            decoded = compile_filter(FilterSpec(where=where), replace(context, promoted=frozenset())).mask
            assert beside(events).tolist() == decoded(events).tolist()
            assert beside(later).tolist() == decoded(later).tolist()
            assert beside(later).any()

    with_node(tmp_path, act)


def test_what_cannot_be_promoted_is_refused(tmp_path):
    async def act(node):
        await cache_of(node, format="json")
        await cache_of(node, "raw")
        for name, promote in (
            ("c", "total"),
            ("c", "value"),
            ("c", "value.a,value.a"),
            ("c", ",".join(f"value.f{n}" for n in range(9))),
            ("raw", "value.a"),
        ):
            with pytest.raises(InvalidArgument):
                await node.cache_changes.alter(name, {"promote": promote})
        await node.cache_changes.alter("c", {"promote": "value.a"})
        await node.cache_changes.alter("c", {"promote": ""})

    with_node(tmp_path, act)
