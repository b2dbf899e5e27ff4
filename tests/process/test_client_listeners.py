"""Listeners through the client and the command line, against a node of its own process."""

import asyncio
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import eventlog
import eventlog.blocking
from eventlog.client.connections.requests import Requests
from eventlog.client.reading.wanted import shortest
from eventlog.errors import (
    BadPredicate,
    ConnectionLost,
    EventsTrimmed,
    InvalidArgument,
    ListenerNotFound,
    ListenerTimeout,
    OperationRefused,
)
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.session import Reply
from tests.process.cli_ends import Shell
from tests.process.nodes import NodeProcess
from tests.process.one_node import using


def test_a_listener_goes_on_from_where_it_has_acknowledged(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("listened")
        await cache.put("before", {"total": 9})
        listener = await cache.register(where="value.total > 2", select="value.total", durable=True, hold=1 << 30)
        ids = [(await cache.put(f"k{n}", {"total": n, "other": 1})).id for n in range(6)]
        answer = await cache.poll(listener=listener.id, after=listener.last_id, max_events=2, wait_ms=5_000)
        assert [(event.id, event.value) for event in answer.events] == [(ids[3], {"total": 3}), (ids[4], {"total": 4})]
        rest = await cache.poll(listener=listener.id, position=answer.position)
        assert [event.id for event in rest.events] == ids[5:]
        again = await cache.poll(listener=listener.id)  # what was asked for behind is acknowledged
        assert [event.id for event in again.events] == ids[5:]
        followed: list[int] = []
        async for event in cache.events(listener=listener.id, follow=True):
            followed.append(event.id)
            if len(followed) == 1:
                ids += [(await cache.put(f"m{n}", {"total": n})).id for n in (3, 1, 4)]
            if len(followed) == 3:
                break
        assert followed == [ids[5], ids[6], ids[8]]
        assert [event.id async for event in cache.events(listener=listener.id, from_id=ids[3])] == [ids[4], ids[5], ids[6], ids[8]]
        found = await client.listeners.describe(listener.id)
        assert (found.where, found.select, found.durable, found.hold_bytes) == ("value.total > 2", ("value.total",), True, 1 << 30)
        with pytest.raises(InvalidArgument):
            await cache.poll(listener=listener.id, where="kind = 'REMOVED'")
        for wrong in ({"hold": -1}, {"hold_ms": -1}, {"expire_ms": 1 << 64}, {"expire_ms": 0}, {"expire_ms": 60_000}):
            with pytest.raises(InvalidArgument):
                await cache.register(durable=True, **wrong)
            with pytest.raises(InvalidArgument):
                await client.listeners.alter(listener.id, **wrong)
        with pytest.raises(InvalidArgument):
            await client.listeners.alter(listener.id, where="key = 'k'", from_id=-1)
        with pytest.raises(InvalidArgument, match="from_id"):
            await client.listeners.alter(listener.id, hold=1, from_id=listener.last_id)
        altered = await client.listeners.alter(listener.id, hold=1 << 20)
        assert (altered.where, altered.select) == ("value.total > 2", ("value.total",))
        altered = await client.listeners.alter(listener.id, select="value.other")
        assert (altered.where, altered.select) == (None, ("value.other",))
        await client.listeners.remove(listener.id)
        for call in (cache.poll(listener=listener.id), client.listeners.describe(listener.id), client.listeners.remove(listener.id)):
            with pytest.raises(ListenerNotFound):
                await call
        with pytest.raises(BadPredicate):
            await cache.register(where="value. >")

    using(node, test)


def test_an_iterator_wakes_its_listener_at_once(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("woken")
        listener = await cache.register(where="kind = 'REMOVED'")
        events = cache.events(listener=listener.id, follow=True)
        waiting = asyncio.ensure_future(anext(events))
        await cache.put("k", 1)
        stored = await cache.remove("k")
        assert (await waiting).id == stored.id
        await events.aclose()

    using(node, test)


def test_a_reader_of_some_segments_acknowledges_those_alone(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("parted")
        await cache.put_many([(f"k{number}", number) for number in range(200)])
        ids = [event.id async for event in cache.events()]
        mine, others = range(6), range(6, 16)

        async def by_streaming(listener: str) -> list[int]:
            return [event.id async for event in cache.events(listener=listener, segments=mine)]

        async def by_following(listener: str) -> list[int]:
            found: list[int] = []
            async for event in cache.events(listener=listener, segments=mine, follow=True):
                found.append(event.id)
                if len(found) == len(expected):
                    break
            async for batch in cache.event_batches(listener=listener, segments=mine, from_id=found[-1]):
                found += batch.ids.tolist()
            return found

        async def by_polls(listener: str) -> list[int]:
            answer = await cache.poll(listener=listener, segments=mine)
            assert not (await cache.poll(answer.last_id, listener=listener, segments=mine)).events
            return [event.id for event in answer.events]

        async def by_command(listener: str) -> list[int]:
            rows = await asyncio.to_thread(Shell(node).ok, "consume", "parted", "--listener", listener, "--segments", "0-5")
            return [row["id"] for row in rows.rows]

        expected = [event.id async for event in cache.events(segments=mine)]
        for number, read in enumerate((by_streaming, by_following, by_polls, by_command)):
            listener = await cache.register(id=f"parted-{number}", durable=True, from_id="earliest")
            assert await read(listener.id) == expected
            rest = [event.id async for event in cache.events(listener=listener.id, segments=others)]
            assert sorted(expected + rest) == ids, read.__name__

    using(node, test)


@pytest.mark.parametrize("continuous", [True, False])
def test_a_read_of_a_listener_is_one_table_whatever_matches_and_whatever_it_is_altered_to(node: NodeProcess, continuous: bool) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache(f"altered-{int(continuous)}", before=True)
        listener = await cache.register(where="value.n = 3", continuous=continuous, durable=True)
        batches = cache.event_batches(listener=listener.id, follow=True, poll_interval_ms=10)
        tables = []
        await cache.put("a", {"n": 1})
        tables.append((await anext(batches)).arrow())
        await cache.put("a", {"n": 3})
        while not tables[-1].num_rows:
            tables.append((await anext(batches)).arrow())
        await client.listeners.alter(listener.id, where="value.n = 4", continuous=not continuous)
        await cache.put("b", {"n": 4})
        while sum(table.num_rows for table in tables) < 2:
            tables.append((await anext(batches)).arrow())
        await batches.aclose()
        assert tables[0].num_rows == 0
        assert pa.Table.from_batches(tables)["change"].to_pylist() == (["JOINED", None] if continuous else [None, "JOINED"])

    using(node, test)


def test_a_listener_begins_where_it_is_asked_to_and_is_moved_on_in_words(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client:
        cache = client.create_cache("begun")
        empty = cache.register(durable=True, id="of-nothing", from_id="earliest")
        ids = [cache.put(f"k{n}", n).id for n in range(6)]
        assert cache.poll(listener=empty.id, wait_ms=5_000).events[0].id == ids[0]
        earliest = cache.register(durable=True, id="all", from_id="earliest")
        assert (earliest.last_id, earliest.position_id, earliest.first_id) == (ids[0] - 1, ids[0] - 1, ids[0])
        middle = cache.register(durable=True, id="rest", from_id=ids[2])
        assert [event.id for event in cache.poll(listener=middle.id, wait_ms=5_000).events] == ids[3:]
        assert cache.register(durable=True, id="rest", from_id=ids[4]).position_id == ids[2], "one that is there stays where it is"
        with pytest.raises(InvalidArgument, match="the log ends at"):
            cache.register(durable=True, from_id=ids[-1] + (1 << 40))

        moved = client.listeners.acknowledge(middle.id, ids[3])
        assert moved.position_id == ids[3]
        assert client.listeners.acknowledge(middle.id, ids[1]).position_id == ids[3], "it never goes back"
        assert [event.id for event in cache.poll(listener=middle.id).events] == ids[4:]
        answer = cache.poll(ids[0], max_events=1)
        assert client.listeners.acknowledge(earliest.id, answer.position).position_id == ids[1]
        in_state = cache.poll(state_first=True, max_events=1).position
        ephemeral = cache.register()
        for listener, upto, why in (
            (middle.id, ids[-1] + (1 << 40), "ends before that"),
            (middle.id, in_state, "of the state"),
            (middle.id, "no token", "position"),
            (ephemeral.id, ids[0], "ephemeral"),
        ):
            with pytest.raises(InvalidArgument, match=why):
                client.listeners.acknowledge(listener, upto)
        with pytest.raises(ListenerNotFound):
            client.listeners.acknowledge("nobody", ids[0])


def test_what_is_acknowledged_in_words_is_written_down(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "node") as node:
        with eventlog.blocking.connect(node.address) as client:
            cache = client.create_cache("c")
            ids = [cache.put(f"k{n}", n).id for n in range(3)]
            cache.register(durable=True, id="l", from_id="earliest")
            client.listeners.acknowledge("l", ids[1])
        node.kill()
        node.start()
        with eventlog.blocking.connect(node.address) as client:
            assert client.listeners.describe("l").position_id == ids[1]


def test_a_blocking_reader_acknowledges_what_it_asks_for_more_behind(node: NodeProcess) -> None:
    with eventlog.blocking.connect(node.address) as client, eventlog.blocking.connect(node.address) as other:
        cache = client.create_cache("blocked")
        listener = cache.register(durable=True)
        cache.put("a", 1)
        events = cache.events(listener=listener.id, follow=True)
        assert next(events).key == "a"
        client.wait_for(cache, cache.put("b", 2).id)
        assert [event.key for event in other.cache("blocked").poll(listener=listener.id).events] == ["a", "b"]
        assert next(events).key == "b"
        assert [event.key for event in other.cache("blocked").poll(listener=listener.id).events] == ["b"]
        events.close()
        assert next(events, None) is None


def test_commands_register_and_read_and_remove(node: NodeProcess) -> None:
    shell = Shell(node)
    shell.ok("cache", "create", "told")
    registered = shell.ok("listener", "register", "told", "--where", "value.n > 1", "--durable", "--hold", "1GiB", "--json").row
    assert {"listener_id", "last_id", "last_id_str", "first_id"} <= set(registered)
    name = registered["listener_id"]
    for n in range(4):
        shell.ok("put", "told", f"k{n}", f'{{"n": {n}}}')
    assert [event["value"]["n"] for event in shell.ok("consume", "told", "--listener", name, "--max", "1").rows] == [2]
    assert [event["value"]["n"] for event in shell.ok("consume", "told", "--listener", name).rows] == [3]
    assert shell.ok("consume", "told", "--listener", name).rows == []  # what was printed is acknowledged at the end
    shell.ok("listener", "register", "told", "--durable", "--from-id", "earliest", "--id", "from-the-first")
    first, second, *_ = shell.ok("consume", "told").rows
    assert shell.ok("listener", "acknowledge", "from-the-first", first["id_str"], "--json").row["position"] == first["id"]
    assert shell.ok("consume", "told", "--listener", "from-the-first", "--max", "1").row["id"] == second["id"]
    shell.ok("listener", "remove", "from-the-first")
    listed = shell.ok("listeners", "list", "told", "--json").row
    assert (listed["listener_id"], listed["cache"], listed["where"], listed["durable"]) == (name, "told", "value.n > 1", True)
    assert (listed["hold_bytes"], type(listed["lag"])) == (1 << 30, int)
    shell.ok("put", "told", "late", '{"n": 9}')
    altered = shell.ok("listener", "alter", name, "--where", "value.n > 100", "--hold", "24h", "--json").row
    assert altered["lag"] == 1
    assert (altered["where"], altered["hold_ms"]) == ("value.n > 100", 86_400_000)
    assert (altered["hold_bytes"], altered["hold_ms"]) == (None, 86_400_000)
    described = shell.ok("listener", "describe", name).out
    assert "acknowledged" in described
    assert "may hold back   1d\n" in described
    assert shell.ok("listener", "alter", name, "--hold", "0", "--json").row["hold_ms"] is None
    assert name in shell.ok("listener", "list").out
    shell.ok("listener", "remove", name)
    gone = shell.run("listener", "describe", name)
    assert (gone.code, "LISTENER_NOT_FOUND" in gone.err) == (1, True)
    assert shell.run("listener", "alter", name).code == 2
    for wrong in (("--hold", "5m"), ("--expire", "0")):
        refused = shell.run("listener", "register", "told", *wrong)
        assert (refused.code, wrong[0] in refused.err) == (2, True)


def test_a_position_file_goes_past_what_does_not_match_a_listener(node: NodeProcess, tmp_path: Path) -> None:
    shell, file = Shell(node), tmp_path / "position"
    shell.ok("cache", "create", "passed")
    name = shell.ok("listener", "register", "passed", "--where", "value > 5", "--json").row["listener_id"]
    shell.ok("put", "passed", "k", "9")
    read = ("consume", "passed", "--listener", name, "--from-id", "earliest", "--position-file", str(file))
    assert [event["value"] for event in shell.ok(*read).rows] == [9]
    shell.ok("put", "passed", "k", "3")
    last_id = shell.ok("consume", "passed").rows[-1]["id"]
    assert shell.ok(*read).rows == []
    assert int(shortest(file.read_text().strip())) >= last_id


def test_writes_of_a_cache_wait_for_nobody_when_it_is_created(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        with pytest.raises(TypeError, match="wait_listeners"):
            await client.create_cache("waited-new", wait_listeners=["nobody"])  # type: ignore[call-arg]  # every write would fail

    using(node, test)


def test_a_write_waits_for_listeners_and_stays_when_they_do_not_come(node: NodeProcess) -> None:
    async def read(cache: Any, listener: str, *, count: int) -> None:
        async for _ in cache.events(listener=listener, follow=True):
            count -= 1
            if count == 0:
                return

    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("waited")
        one, two = [(await cache.register(durable=True)).id for _ in range(2)]
        readers = [asyncio.create_task(read(cache, name, count=5)) for name in (one, two)]
        for n in range(2):
            await cache.put(f"k{n}", n, wait_listeners=[one, two], wait_ms=20_000)
            for name in (one, two):
                assert (await client.listeners.describe(name)).lag_events == 0
        await cache.put_many({"a": 1, "b": 2}, wait_listeners=[one], wait_ms=20_000)
        await cache.remove("a")
        await asyncio.gather(*readers)
        with pytest.raises(ListenerTimeout) as told:
            await cache.put("late", 1, wait_listeners=[one, two], wait_ms=50)
        assert (told.value.missing, told.value.gone, told.value.outcome) == ([one, two], [], "committed")
        late = await cache.get("late")
        assert late is not None
        assert told.value.ids == [late.version]
        await cache.put("later", 1, wait_listeners=[one], wait_ms=50, on_wait_timeout="proceed")
        await cache.put("later", 2, wait_listeners=f"{one},{two}", wait_ms=50, on_wait_timeout="proceed")
        with pytest.raises(ListenerNotFound):
            await cache.put("never", 1, wait_listeners=["nobody"])
        assert await cache.get("never") is None
        with pytest.raises(ListenerNotFound):
            await client.alter_cache("waited", wait_listeners=["nobody"])
        await client.create_cache("waited-beside")
        with pytest.raises(InvalidArgument, match="reads cache 'waited'"):
            await client.alter_cache("waited-beside", wait_listeners=[two])
        ephemeral = (await cache.register()).id
        with pytest.raises(InvalidArgument, match="acknowledges nothing"):
            await client.alter_cache("waited", wait_listeners=[ephemeral])
        with pytest.raises(InvalidArgument, match="acknowledges nothing"):
            await cache.put("never", 1, wait_listeners=[ephemeral])
        with pytest.raises(InvalidArgument, match="reads cache 'waited'"):
            await client.cache("waited-beside").put("never", 1, wait_listeners=[one])
        assert await cache.get("never") is None
        assert await client.cache("waited-beside").get("never") is None
        await client.alter_cache("waited", wait_listeners=[two], wait_ms=60)
        altered = client.cache("waited")
        with pytest.raises(ListenerTimeout):
            await altered.put("by the cache", 1)
        await client.alter_cache("waited", wait_proceeds=True)
        await client.cache("waited").put("by the cache", 2)
        with pytest.raises(OperationRefused, match="writes of cache waited wait for it"):
            await client.listeners.remove(two)
        await client.listeners.remove(one)
        await client.alter_cache("waited", wait_listeners=[])
        await client.listeners.remove(two)

    using(node, test)


def test_a_write_of_which_no_node_says_who_acknowledged_it_is_written_all_the_same(node: NodeProcess, monkeypatch) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("unanswered")
        listener = (await cache.register(durable=True)).id
        ask = Requests.ask

        async def lost(self: Requests, message: Message, **options: Any) -> Reply:
            if message.HasField("await_listeners"):
                raise ConnectionLost(address="n1", why="it is gone")
            return await ask(self, message, **options)

        monkeypatch.setattr(Requests, "ask", lost)
        with pytest.raises(ListenerTimeout) as told:
            await cache.put("k", 1, wait_listeners=[listener])
        assert (told.value.missing, told.value.outcome) == ([listener], "committed")
        assert (await cache.put("k", 2, wait_listeners=[listener], on_wait_timeout="proceed")).kind == "MODIFIED"

    using(node, test)


def test_a_write_whose_listener_is_removed_meanwhile_says_so_at_once(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("unheard")
        listener = (await cache.register(durable=True)).id
        waiting = asyncio.ensure_future(cache.put("k", 1, wait_listeners=[listener], wait_ms=20_000))
        while await cache.get("k") is None:
            pass
        await client.listeners.remove(listener)
        with pytest.raises(ListenerTimeout, match="were removed before they had acknowledged them") as told:
            await waiting
        assert (told.value.missing, told.value.gone) == ([listener], [listener])
        with pytest.raises(ListenerNotFound):
            await cache.put("k", 2, wait_listeners=[listener])

    using(node, test)


def test_writes_of_many_wait_for_the_listeners_of_their_cache(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("waited-many")
        listener = await cache.register(durable=True)
        await client.alter_cache("waited-many", wait_listeners=[listener.id], wait_ms=60)
        altered = client.cache("waited-many")

        async def send() -> None:
            await (await altered.send_columns([b"sent"], [b"1"]))

        for write in (
            altered.put_many({"a": 1, "b": 2}),
            altered.put_arrow(pa.record_batch({"key": ["p"], "value": ["1"]})),
            altered.remove_many(["a", "p"]),
            send(),
        ):
            with pytest.raises(ListenerTimeout) as told:
                await write
            assert told.value.missing == [listener.id]
        written = sorted([(event.key, event.kind) async for event in altered.events()])
        assert written == sorted([*((key, "CREATED") for key in ("a", "b", "p", "sent")), ("a", "REMOVED"), ("p", "REMOVED")])
        assert await altered.clear() == 2
        await client.alter_cache("waited-many", wait_listeners=[])

    using(node, test)


def test_a_reader_that_was_trimmed_away_is_given_what_there_is(node: NodeProcess) -> None:
    async def test(client: eventlog.Client) -> None:
        cache = await client.create_cache("resynced", retain_events=10)
        first = (await cache.put("gone", 0)).id
        await cache.remove("gone")
        ids = {}
        for n in range(100):
            ids[f"k{n % 7}"] = (await cache.put(f"k{n % 7}", n)).id
        await client.run_retention("resynced")
        with pytest.raises(EventsTrimmed):
            [event async for event in cache.events(from_id=first)]
        with pytest.raises(EventsTrimmed):  # although nothing of what is gone would have matched
            [event async for event in cache.events(from_id=first, where="value > 1000")]
        async with cache.entries() as rows:
            assert {key async for key, _ in rows} == set(ids), "retention removes events, no entries"
        events = cache.events(from_id=first, on_trimmed="resync", follow=True)
        state = [await anext(events) for _ in ids]
        assert {event.kind for event in state} == {"STATE"}
        assert {event.key: event.id for event in state} == ids
        news = await cache.put("k1", "news")
        assert (await anext(events)).id == news.id
        await events.aclose()
        with pytest.raises(EventsTrimmed):
            await cache.poll(first)
        answer = await cache.poll(first, on_trimmed="resync", where="value <> 'news'")
        state = answer.events
        while not answer.is_end:
            answer = await cache.poll(answer.position, on_trimmed="resync", where="value <> 'news'")
            state += answer.events
        assert {event.key: (event.kind, event.id) for event in state} == {key: ("STATE", ids[key]) for key in ids if key != "k1"}

    using(node, test)


def test_what_a_listener_lets_go_of_is_removed_although_nothing_is_written_any_more(tmp_path: Path) -> None:
    with (
        NodeProcess(tmp_path, environment={"EVENTLOG_NODE_RETENTION_INTERVAL_MS": "200"}) as node,
        eventlog.blocking.connect(node.address) as client,
    ):
        cache = client.create_cache("few", retain_events=10)
        listener = cache.register(durable=True, hold=1 << 30)
        for number in range(100):
            cache.put("k", number)
        assert client.run_retention("few").removed == 0
        cache.poll(listener=listener.id, after=cache.log_ends().last_id, max_events=0)
        for _ in range(300):
            if cache.log_ends().events == 10:
                break
            time.sleep(0.1)
        assert cache.log_ends().events == 10
