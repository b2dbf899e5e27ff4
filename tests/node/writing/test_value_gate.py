"""Values checked before they are written: on the loop or in the thread, in order, and answered as before where they are written already."""

import asyncio
import json
import threading
from pathlib import Path

import pytest

from eventlog.errors import BadValue, InvalidArgument, Stopping
from eventlog.hashing import hash_key, segment_of
from eventlog.limits import CHECKED_SCHEMAS_BYTES_MAX
from eventlog.node.node import Node
from eventlog.schema.meter import Meter
from tests.node.nodes import SEGMENTS, cache_of, submit, with_node

ORDER = {"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}
CHECKED = {"format": "json", "schema": json.dumps(ORDER), "validate": True}
GOOD, BAD = b'{"id":1}', b'{"id":"x"}'
KEY = b"k"


class Held:
    """Takes the place of a schema's check: it ends when it is released."""

    def __init__(self) -> None:
        self.released = threading.Event()

    def hold(self, node: Node) -> None:
        """Have it be what checks values at a node."""
        node.value_gate.make = lambda _: self

    def check(self, _value: bytes, _meter: Meter) -> None:
        assert self.released.wait(30)


def same_segment(count: int) -> list[bytes]:
    """Return keys of the segment of KEY, that one first."""
    found = [KEY]
    number = 0
    while len(found) < count:
        key = b"%d" % number
        number += 1
        if segment_of(hash_key(key), SEGMENTS) == segment_of(hash_key(KEY), SEGMENTS):
            found.append(key)
    return found


def test_a_value_is_refused_with_key_and_field_and_nothing_is_logged(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        cache = await cache_of(node, **CHECKED)
        for _ in range(2):  # the first time in the thread, where the schema is made ready
            refused = await submit(node, cache, [(KEY, BAD)])
            assert isinstance(refused, BadValue)
            assert (refused.key, refused.why, refused.outcome) == ("k", "value.id is a string, not an integer", "none")
        assert int(cache.next_offsets.sum()) == 0
        assert (await submit(node, cache, [(KEY, GOOD)])).ids.item(0) > 0
        assert (await submit(node, cache, [(KEY, None)])).ids.item(0) > 0, "what removes has no value"

    with_node(tmp_path, act)


@pytest.mark.parametrize("rows", [10, 20_000])
def test_a_frame_with_one_value_that_is_refused_is_refused_whole(tmp_path: Path, rows: int) -> None:
    async def act(node: Node) -> None:
        cache = await cache_of(node, **CHECKED)
        await submit(node, cache, [(KEY, GOOD)])
        frame = [(b"%d" % row, GOOD) for row in range(rows)]
        frame[rows // 2] = (b"odd", BAD)
        refused = await submit(node, cache, frame)
        assert isinstance(refused, BadValue)
        assert refused.key == "odd"
        assert int(cache.next_offsets.sum()) == 1
        del frame[rows // 2]
        assert len((await submit(node, cache, frame)).ids) == rows - 1

    with_node(tmp_path, act)


def test_writes_of_a_cache_keep_their_order_around_the_thread(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        cache, other = await cache_of(node, **CHECKED), await cache_of(node, "other", **CHECKED)
        await asyncio.gather(submit(node, cache, [(b"first", GOOD)]), submit(node, other, [(b"first", GOOD)]))
        keys = same_segment(3_000)
        large = submit(node, cache, [(key, GOOD) for key in keys], producer=7, sequence=0)
        assert (cache.unchecked, node.value_gate.nbytes > 0) == (1, True)
        small = submit(node, cache, [(KEY, GOOD)], producer=7, sequence=1)
        assert cache.unchecked == 2, "it waits behind what came before it"
        beside = submit(node, other, [(KEY, GOOD)])
        assert other.unchecked == 0, "the loop has said all of it"
        first, second = await large, await small
        assert int(first.ids.max()) < second.ids.item(0)
        await beside
        assert (cache.unchecked, node.value_gate.nbytes) == (0, 0)
        assert node.value_gate.figures()["unchecked_bytes"][2] > 0

    with_node(tmp_path, act)


def test_a_cache_that_validates_no_more_keeps_the_order_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Held()

    async def act(node: Node) -> None:
        held.hold(node)
        cache = await cache_of(node, **CHECKED)
        first = submit(node, cache, [(KEY, GOOD)], producer=7, sequence=0)
        await node.cache_changes.alter("c", {"validate": False})
        second = submit(node, cache, [(KEY, BAD)], producer=7, sequence=1)
        assert cache.unchecked == 2
        monkeypatch.undo()  # a schema that is made ready from now on is checked by
        held.released.set()
        assert (await first).ids.item(0) < (await second).ids.item(0)
        assert not cache.is_gated

    with_node(tmp_path, act)


def test_what_removes_is_written_without_a_look_at_its_value(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        cache = await cache_of(node, format="avro", schema='"long"', validate=True)
        for rows in ([(KEY, b"\x02")], [(KEY, None)], [(b"a", b"\x02"), (KEY, b"\x02"), (b"a", None)]):
            assert (await submit(node, cache, rows)).ids.min() > 0

    with_node(tmp_path, act)


def test_what_was_written_before_is_answered_as_then_whatever_the_schema_has_become(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        cache = await cache_of(node, **CHECKED)
        written = await submit(node, cache, [(KEY, GOOD)], producer=7, sequence=0)
        await node.cache_changes.alter("c", {"schema": '{"type": "string"}'})
        again = await submit(node, cache, [(KEY, GOOD)], producer=7, sequence=0)
        assert again.ids.tolist() == written.ids.tolist()
        assert isinstance(await submit(node, cache, [(KEY, GOOD)], producer=7, sequence=1), BadValue)
        assert (await submit(node, cache, [(KEY, b'"text"')], producer=7, sequence=1)).ids.item(0) > 0, "the number is still free"

    with_node(tmp_path, act)


def test_what_is_with_the_thread_at_the_end_is_written(tmp_path: Path) -> None:
    held = Held()

    late: list[asyncio.Future[object]] = []

    async def act(node: Node) -> None:
        held.hold(node)
        cache = await cache_of(node, **CHECKED)
        late.extend(submit(node, cache, [(KEY, GOOD)]) for _ in range(2))
        asyncio.get_running_loop().call_later(0.2, held.released.set)  # when the node is being closed

    with_node(tmp_path, act)
    assert all(found.result().ids.item(0) > 0 for found in late)  # type: ignore[attr-defined]


def test_a_thread_that_has_ended_refuses_all_that_stands_in_line(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        cache = await cache_of(node, **CHECKED)
        waiting = [submit(node, cache, [(key, GOOD) for key in same_segment(3_000)]) for _ in range(4)]
        await node.value_gate.stop()
        told = [*await asyncio.gather(*waiting), await submit(node, cache, [(KEY, GOOD)] * 2_000)]
        assert isinstance(told[-1], Stopping)
        assert {isinstance(one, Stopping) for one in told[2:]} == {True}
        assert (cache.unchecked, node.value_gate.nbytes) == (0, 0)

    with_node(tmp_path, act)


def test_a_value_that_asks_for_too_much_work_is_refused(tmp_path: Path) -> None:
    doubling = {f"d{level}": {"anyOf": [{"$ref": f"#/definitions/d{level + 1}"}] * 2} for level in range(40)}
    schema = {"allOf": [{"$ref": "#/definitions/d0"}], "definitions": {**doubling, "d40": {"type": "string"}}}

    async def act(node: Node) -> None:
        cache = await cache_of(node, format="json", schema=json.dumps(schema), validate=True)
        for _ in range(2):
            refused = await submit(node, cache, [(KEY, b"1")])
            assert isinstance(refused, BadValue)
            assert refused.why == "its check by the schema takes more than 1,016 steps"

    with_node(tmp_path, act)


def test_a_cache_that_asks_for_much_work_delays_another_by_a_turn(tmp_path: Path) -> None:
    wide = {"properties": {"id": {"oneOf": [{"const": number} for number in range(200)]}}}

    async def act(node: Node) -> None:
        busy = await cache_of(node, "busy", format="json", schema=json.dumps(wide), validate=True)
        other = await cache_of(node, **CHECKED)
        large = submit(node, busy, [(b"%d" % row, b'{"id":199}') for row in range(20_000)])  # many turns
        small = submit(node, other, [(KEY, GOOD)])
        behind = (await large).ids
        assert (await small).ids.item(0) < behind.min(), "it was written first"
        assert len(behind) == 20_000

    with_node(tmp_path, act)


def test_an_avro_chain_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    chain = {"type": "record", "name": "L", "fields": [{"name": "next", "type": ["null", "L"]}]}

    async def act(node: Node) -> None:
        cache = await cache_of(node, format="avro", schema=json.dumps(chain), validate=True)
        for _ in range(2):
            refused = await submit(node, cache, [(KEY, b"\x02" * 100_000 + b"\0")])
            assert isinstance(refused, BadValue)
            assert refused.why == "it is nested too deep to be checked by the schema"
        assert (await submit(node, cache, [(KEY, b"\x02" * 50 + b"\0")])).ids.item(0) > 0

    with_node(tmp_path, act)


def test_few_schemas_are_kept_ready(tmp_path: Path) -> None:
    wide = json.dumps({"description": "x" * (CHECKED_SCHEMAS_BYTES_MAX // 20)})

    async def act(node: Node) -> None:
        for number in range(24):
            cache = await cache_of(node, f"c{number}", format="json", schema=wide, validate=True)
            await submit(node, cache, [(KEY, GOOD)])
        kept = node.value_gate._checks
        assert list(kept) == [cache.cache_id - place for place in reversed(range(19))]

    with_node(tmp_path, act)


def test_a_frame_that_is_none_is_for_the_writer_to_refuse(tmp_path: Path) -> None:
    def spoil(body: bytearray) -> None:
        body[-8:] = b"\xff" * 8

    async def act(node: Node) -> None:
        cache = await cache_of(node, **CHECKED)
        for value in (b"{", GOOD):
            refused = await submit(node, cache, [(KEY, value)], spoil=spoil if value == GOOD else None)
            assert not isinstance(refused, BadValue)
            assert refused.code == "BAD_BLOCK"

    with_node(tmp_path, act)


def test_options_that_go_together_alone_are_taken(tmp_path: Path) -> None:
    async def act(node: Node) -> None:
        for given in (
            {"format": "json", "validate": True},
            {"format": "bytes", "schema": "{}"},
            {"format": "json", "schema": '{"pattern": "(?=x)"}', "validate": True},
        ):
            with pytest.raises(InvalidArgument):
                await cache_of(node, **given)

    with_node(tmp_path, act)
