"""Groups over three nodes on one loop, with real clients."""

import asyncio

import pytest

import eventlog
from eventlog.errors import BadMessage, InvalidArgument, Overloaded, StaleMember
from eventlog.ids import id_before
from eventlog.read import token
from eventlog.transport.connect import connect
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.one_loop.clients import client_of, cluster_of, run, stopped, until, until_spread
from tests.process.one_loop.cluster import SEGMENTS

EVENTS = 200
GUESTS = 5
SHIFTS = [{"shift_by": 0}, {"shift_by": 1 << 63}, {"shift_by": 1.5}, {"shift_by": 1, "to_id": 7}]


async def take(consumer, count):
    found = []
    async for event in consumer:
        found.append(event)
        if len(found) == count:
            break
    return found


def test_a_consumer_alone_reads_everything_and_goes_on_where_it_committed(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("orders")
            await cache.put_many([(f"k{n}", n) for n in range(EVENTS)])
            async with cache.consumer("billing") as consumer:
                assert consumer.assignment == frozenset(range(SEGMENTS))
                found = await take(consumer, EVENTS)
                assert sorted(event.value for event in found) == list(range(EVENTS))
                await consumer.commit()
            await cache.put("late", -1)
            async with cache.consumer("billing") as consumer:
                assert [event.value for event in await take(consumer, 1)] == [-1]

    run(act())


def test_the_position_of_a_members_event_covers_nothing_that_was_not_handed_out(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            await until_spread(cluster)
            cache = await client.create_cache("orders")
            await cache.put_many([(f"k{n}", n) for n in range(EVENTS)])
            async with cache.consumer("billing") as consumer:
                found = await take(consumer, EVENTS)
            for number, event in enumerate(found):
                position = token.from_text(event.position)
                held = position.segments_held()
                covered = {one.id for one in found if one.segment in held and one.id <= event.id}
                assert covered <= {one.id for one in found[: number + 1]}
            middle = found[EVENTS // 2]
            held = token.from_text(middle.position).segments_held()
            left = [event.id async for event in cache.events(position=middle.position)]
            assert left == sorted(one.id for one in found[EVENTS // 2 + 1 :] if one.segment in held)

    run(act())


def test_who_breaks_off_and_begins_anew_misses_nothing(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("orders")
            await cache.put_many([(f"k{n}", n) for n in range(EVENTS)])
            async with cache.consumer("billing") as consumer:
                found = [event.value for _ in range(4) for event in await take(consumer, EVENTS // 4)]
                assert sorted(found) == list(range(EVENTS))
            async with cache.consumer("shipping") as consumer:
                async for batch in consumer.batches(max_events=10):
                    found = [event.value for event in batch.events()]
                    break
                found += [event.value for event in await take(consumer, EVENTS - len(found))]
                assert sorted(found) == list(range(EVENTS))

    run(act())


def test_reading_up_to_an_id_hands_out_and_commits_nothing_behind_it(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("orders")
            ids = sorted([(await cache.put(f"k{n}", n)).id for n in range(EVENTS)])
            middle = ids[EVENTS // 2]

            async def read(consumer, **options):
                return sorted([id_ async for batch in consumer.batches(**options) for id_ in batch.ids.tolist()])

            async with cache.consumer("billing", where="value >= 0") as consumer:
                assert await read(consumer, until_id=ids[2]) == ids[:3]
                assert await read(consumer, until_id=middle, max_events=3) == ids[3 : EVENTS // 2 + 1]
                assert await read(consumer, until_id=ids[0]) == []
                with pytest.raises(InvalidArgument):
                    await read(consumer, until_id=-1)
                await consumer.commit()
            found = (await client.groups.describe("billing"))[0]
            assert max(segment.id for segment in found.segments) <= middle
            async with cache.consumer("billing") as consumer:
                first = [event.id for event in await take(consumer, 1)]
                rest = await take(consumer, EVENTS // 2 - 2)
                assert sorted(first + [event.id for event in rest]) == ids[EVENTS // 2 + 1 :]
                assert await read(consumer, until_id=ids[-1]) == []

    run(act())


def shared(*consumers):
    """Whether the consumers have all segments between them, none more than its share."""
    sizes = [len(consumer.assignment) for consumer in consumers]
    everything = frozenset().union(*(consumer.assignment for consumer in consumers))
    return sum(sizes) == SEGMENTS == len(everything) and max(sizes) - min(sizes) <= 1


def running_of(cluster, group="billing"):
    """The group as each node runs it that does."""
    return [running for node in cluster.up for running in node.coordinators.running(group)]


def test_who_gives_up_joining_leaves_no_member_behind(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("orders")
            for turns in range(0, 200, 10):  # so that some are broken off before the coordinator has heard of it, and some after
                consumer = await cache.new_consumer("billing")
                opening = asyncio.create_task(consumer.open())
                for _ in range(turns):
                    await asyncio.sleep(0)
                opening.cancel()
                await asyncio.wait([opening])
                await consumer.close()
                assert not [group.members for group in await client.groups.list() if group.members]

    run(act())


def test_members_share_the_segments_and_take_over_from_who_leaves(tmp_path):
    async def act():
        async with (
            cluster_of(tmp_path) as cluster,
            client_of(cluster, 0) as one,
            client_of(cluster, 1) as two,
            client_of(cluster, 2) as three,
        ):
            cache = await one.create_cache("orders")
            async with cache.consumer("billing") as first:
                async with two.cache("orders").consumer("billing") as second:
                    await until(lambda: shared(first, second))
                    before = second.assignment
                    async with three.cache("orders").consumer("billing") as third:
                        await until(lambda: shared(first, second, third))
                        assert second.assignment < before, "nothing moves that need not"
                    await until(lambda: shared(first, second))
                await until(lambda: shared(first))

    run(act())


def test_nothing_is_lost_or_read_by_two_while_members_come_and_go(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("orders")
            found, written, is_over = [], 0, False

            async def consume(has_enough):
                async with cache.consumer("billing") as consumer:
                    async for event in consumer:
                        found.append((event.segment, event.offset))
                        if has_enough():
                            return
                        if len(found) % 10 == 0:
                            await asyncio.sleep(0)

            async def write(writer):
                nonlocal written
                while not is_over:
                    await cache.put(f"{writer}-{written % 50}", written)
                    written += 1

            stay = asyncio.create_task(consume(lambda: is_over and len(set(found)) == written + 1))
            writing = [asyncio.create_task(write(writer)) for writer in range(8)]
            for _ in range(GUESTS):
                reach = len(found) + 20
                await consume(lambda reach=reach: len(found) >= reach)  # which it hears of while others write
            is_over = True
            await asyncio.gather(*writing)
            await cache.put("last", 1)  # the one who stays looks at what it has whenever there is an event
            await stay
            assert len(found) <= written + 1 + GUESTS, "what was done is committed when a segment is handed over, but for the event at work"

    run(act())


def test_a_member_whose_connection_closes_is_replaced_after_a_second(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster, 0) as one, client_of(cluster, 1) as two:
            cache = await one.create_cache("orders")
            async with cache.consumer("billing", session_timeout_ms=60_000) as stays:
                gone = two.cache("orders").consumer("billing", session_timeout_ms=60_000)
                dead = await gone.__aenter__()
                await until(lambda: shared(stays, dead))
                began = asyncio.get_running_loop().time()
                await two.close()  # as a killed process: connections close, nobody says good-bye
                await until(lambda: shared(stays))
                assert 0.9 < asyncio.get_running_loop().time() - began < 20
                await gone.__aexit__(None, None, None)

    run(act())


@pytest.mark.parametrize("node", range(3))
def test_a_beat_that_waited_while_its_connection_closed_keeps_nobody(tmp_path, node):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            await client.create_cache("orders")
            who = {"group": "billing", "member": "m", "cache_id": cluster.up[0].caches.named("orders").cache_id}
            connection = await connect("127.0.0.1", cluster.nodes[node].port)
            beat = pb.GroupBeat(session_timeout_ms=300_000, **who)
            for _ in range(2):
                told = (await connection.request(Message(group_beat=beat), timeout_ms=20_000)).message.group_beat_answer
                beat.epoch = told.epoch
            (running,) = running_of(cluster)
            async with running.lock:  # as while something of the group is being written
                asked = asyncio.create_task(connection.request(Message(group_beat=beat), timeout_ms=20_000))
                await until(lambda: running.lock._waiters)
                connection.close()
                await asyncio.wait([asked])
                await until(lambda: running.core.sessions.left_ms("m", running.now_ms) <= 1_000)
            await until(lambda: not running.state.members)
            assert asked.exception() is not None
            await connection.wait_closed()

    run(act())


def test_the_death_of_the_coordinator_moves_nothing(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as one, client_of(cluster) as two:
            cache = await one.create_cache("orders")
            async with cache.consumer("billing") as first, two.cache("orders").consumer("billing") as second:
                await until(lambda: shared(first, second))
                (running,) = running_of(cluster)
                before = (first.assignment, second.assignment, running.state.generation)
                await cluster.nodes[[node.number for node in cluster.up].index(running.node.number)].kill()
                await until(lambda: len(running_of(cluster)) == 1)
                (moved,) = running_of(cluster)
                assert moved.state.generation == before[2]
                assert (first.assignment, second.assignment) == before[:2]
                await cache.put("k", 1)
                found = await asyncio.wait({asyncio.create_task(take(one_, 1)) for one_ in (first, second)}, return_when="FIRST_COMPLETED")
                assert [task.result()[0].value for task in found[0]] == [1]
                for task in found[1]:
                    task.cancel()
                await asyncio.gather(*found[1], return_exceptions=True)
                await first.commit()
                await second.commit()
                assert moved.state.generation == before[2]

    run(act())


def test_a_commit_of_a_member_without_a_session_is_fenced(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("orders")
            await cache.put_many([(f"k{n}", n) for n in range(EVENTS)])
            found = []

            async def live(stand_still):
                options = {"session_timeout_ms": 1_000, "auto_commit": False}
                async with client_of(cluster) as own, own.cache("orders").consumer("billing", **options) as consumer:
                    found.extend(await take(consumer, 20))
                    stand_still()
                    with pytest.raises(StaleMember):
                        await consumer.commit(found[-1])

            async with stopped(live) as go_on:
                (running,) = running_of(cluster)
                await until(lambda: not running.state.members)
                async with cache.consumer("billing") as other:
                    assert other.assignment == frozenset(range(SEGMENTS))
                    await go_on()
                    again = await take(other, EVENTS)
                    assert {event.id for event in found} < {event.id for event in again}

    run(act())


def test_what_is_of_another_cache_is_not_committed(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            other, cache = await client.create_cache("bills"), await client.create_cache("orders")
            await other.put("k", "another's")
            await cache.put("k", 1)
            await cache.put("k", 2)
            (alien,) = [batch async for batch in other.event_batches()]
            async with cache.consumer("billing", auto_commit=False) as consumer:
                await take(consumer, 2)
                for done in (alien, next(alien.events())):
                    with pytest.raises(InvalidArgument, match="an event of 'bills' is none of its"):
                        await consumer.commit(done)
            async with cache.consumer("billing") as consumer:
                assert [event.value for event in await take(consumer, 2)] == [1, 2]

    run(act())


def test_what_was_not_handed_out_is_not_committed(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("orders")
            await cache.put_many((f"k{number}", number) for number in range(EVENTS))
            everything = [event async for event in cache.events()]
            async with cache.consumer("billing", auto_commit=False) as consumer:
                (first,) = await take(consumer, 1)
                ahead = [event for event in everything if event.segment == first.segment][-1]
                with pytest.raises(StaleMember, match=f"it was handed nothing as late as id {ahead.id}"):
                    await consumer.commit(ahead)
            async with cache.consumer("billing") as consumer:
                assert len(await take(consumer, EVENTS)) == EVENTS

    run(act())


def test_a_static_member_gets_its_segments_back(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as one, client_of(cluster) as two:
            cache = await one.create_cache("orders")
            async with cache.consumer("billing") as other:
                async with two.cache("orders").consumer("billing", instance_id="a") as static:
                    await until(lambda: shared(other, static))
                    before, (running,) = static.assignment, running_of(cluster)
                await asyncio.sleep(0)
                assert len(running.state.members) == 2
                async with two.cache("orders").consumer("billing", instance_id="a") as back:
                    assert back.assignment == before
                    async with one.cache("orders").consumer("billing", instance_id="a") as thief:
                        assert thief.assignment == before
                        with pytest.raises(eventlog.errors.Fenced):
                            await take(back, 1)

    run(act())


def test_operators_see_lag_and_move_a_group_only_while_nobody_is_in_it(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster, 0) as one, client_of(cluster, 1) as two:
            cache = await one.create_cache("orders")
            await cache.put_many([(f"k{n}", n) for n in range(EVENTS)])
            async with cache.consumer("billing", auto_commit=False) as consumer:
                found = await take(consumer, 50)
                await consumer.commit(metadata="half")
                (described,) = await two.groups.describe("billing")
                assert [member.member for member in described.members] == [consumer.member_id]
                assert {row.member for row in described.segments} == {consumer.member_id}
                assert sum(row.lag_events for row in described.segments) == EVENTS - 50
                done = {event.segment: event.id for event in found}
                assert {row.segment: row.id for row in described.segments if row.metadata == "half"} == done
                assert all((row.lag_ms > 0) is (row.lag_bytes > 0) is (row.lag_events > 0) for row in described.segments)
                with pytest.raises(eventlog.errors.GroupNotEmpty):
                    await two.groups.reset("billing", to_id="earliest")
                with pytest.raises(eventlog.errors.GroupNotEmpty):
                    await two.groups.delete("billing")
            for wrong in ({"to_id": "yesterday"}, {"to_id": ""}, {"to_id": found[9].position}, {"to_time": "24h"}, {}, *SHIFTS):
                with pytest.raises(eventlog.errors.InvalidArgument):
                    await two.groups.reset("billing", **wrong)
            moves = await two.groups.reset("billing", to_time=found[0].time_ms - 60_000, dry_run=True)
            assert {move.to_id for move in moves} == {id_before(found[0].time_ms - 60_000)}
            moves = await two.groups.reset("billing", to_id="latest", dry_run=True)
            assert len(moves) == SEGMENTS
            assert all(move.from_id < move.to_id for move in moves)
            tomorrow = found[0].time_ms + 86_400_000
            for ahead in ({"to_id": id_before(tomorrow)}, {"to_time": tomorrow}):
                ends = await two.groups.reset("billing", **ahead, dry_run=True)
                assert moves[0].to_id <= ends[0].to_id < id_before(tomorrow) - 1, "what is yet to come is not passed over"
            assert sum(row.lag_events for row in (await one.groups.describe("billing"))[0].segments) == EVENTS - 50
            await two.groups.reset("billing", to_id=found[9].id)
            async with cache.consumer("billing") as consumer:
                again = await take(consumer, EVENTS - 10)
                assert min(event.id for event in again) > found[9].id
            await two.groups.reset("billing", to_id="latest")
            (described,) = await one.groups.describe("billing")
            assert sum(row.lag_events for row in described.segments) == 0
            assert {row.member for row in described.segments} == {None}
            assert [(row.group, row.cache, row.members) for row in await two.groups.list()] == [("billing", "orders", 0)]
            await two.groups.delete("billing")
            assert await one.groups.list() == []
            with pytest.raises(eventlog.errors.GroupNotFound):
                await one.groups.describe("billing")

    run(act())


def by_segment(events):
    found = {segment: [] for segment in range(SEGMENTS)}
    for event in events:
        found[event.segment].append(event.id)
    return found


def test_a_group_is_moved_by_events_as_far_as_each_segment_has_some(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster, 0) as one, client_of(cluster, 1) as two:
            await until_spread(cluster)
            cache = await one.create_cache("orders")
            await cache.put_many([(f"k{n}", n) for n in range(EVENTS)])
            for n in range(20):
                await cache.put(f"k{n}", -n)
            every = by_segment([event async for event in cache.events()])
            async with cache.consumer("billing", auto_commit=False) as consumer:
                found = by_segment(await take(consumer, 100))
                await consumer.commit()
            at = {segment: len(ids) for segment, ids in found.items()}
            for by in (1, 7, -1, -7, 1 << 62, -(1 << 62)):
                moves = {move.segment: move for move in await two.groups.reset("billing", shift_by=by, dry_run=True)}
                assert set(moves) == set(every)
                for segment, ids in every.items():
                    goal = min(max(at[segment] + by, 0), len(ids))
                    move = moves[segment]
                    there = move.from_id if goal == at[segment] else ids[goal - 1] if goal else 0  # a place may lie behind its event
                    assert (move.to_id, move.events) == (there, goal - at[segment])
            moved = await two.groups.reset("billing", shift_by=-3, segments=[2, 5])
            assert [move.segment for move in moved] == [2, 5]
            lag = {row.segment: row.lag_events for row in (await one.groups.describe("billing"))[0].segments}
            assert lag == {
                segment: len(ids) - at[segment] + (min(3, at[segment]) if segment in {2, 5} else 0) for segment, ids in every.items()
            }
            async with cache.consumer("billing") as consumer:
                again = by_segment(await take(consumer, sum(lag.values())))
            assert again == {segment: ids[len(ids) - lag[segment] :] for segment, ids in every.items()}

    run(act())


def test_a_group_that_retention_has_passed_is_moved_from_the_first_event_kept(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("orders", retain_events=20)
            for part in range(10):
                await cache.put_many([(f"k{n}", n) for n in range(part * 20, part * 20 + 20)])
            async with cache.consumer("billing", auto_commit=False) as consumer:
                await take(consumer, 3)
                await consumer.commit()
            assert (await client.run_retention("orders")).removed > 0
            kept = by_segment([event async for event in cache.events()])
            for by in (2, 500, -5):
                for move in await client.groups.reset("billing", shift_by=by, dry_run=True):
                    ids = kept[move.segment]
                    goal = min(max(by, 0), len(ids))
                    assert move.events == goal
                    assert (move.to_id == ids[goal - 1]) if goal else (move.to_id == move.from_id)
            await client.groups.reset("billing", shift_by=2)
            for move in await client.groups.reset("billing", shift_by=-7, dry_run=True):
                assert move.events == -min(2, len(kept[move.segment]))
                assert not kept[move.segment] or move.to_id < kept[move.segment][0], "the first event kept comes next"

    run(act())


async def until_listed(client, wanted):
    async with asyncio.timeout(60):
        while {(group.group, group.cache) for group in await client.groups.list()} != wanted:  # noqa: ASYNC110 -- it is asked for
            await asyncio.sleep(0.05)


def test_groups_of_a_dropped_cache_are_removed_once_nobody_is_in_them(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            await client.create_cache("kept")
            cache = await client.create_cache("orders")
            for name in ("kept", "orders"):
                async with client.cache(name).consumer("billing") as consumer:
                    await consumer.commit()
            async with cache.consumer("audit"):
                await client.drop_cache("orders")
                await client.create_cache("orders")

                await until_listed(client, {("billing", "kept"), ("audit", "orders")})
            await until_listed(client, {("billing", "kept")})

    run(act())


def test_a_group_is_forgotten_where_it_is_led_no_more_and_where_nobody_is_in_it(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("orders")
            async with cache.consumer("billing", mode="work"):
                (running,) = running_of(cluster)
                await running.node.leaving.hand_over()
                await until(lambda: any(one.node is not running.node for one in running_of(cluster)))
                await until(lambda: not running.node.coordinators.figures()["groups"][0])
                assert running.is_over
            await until(lambda: not running_of(cluster))
            assert [group.members for group in await client.groups.describe("billing")] == [[]]

    run(act())


def noted(cluster):
    """The members that the nodes watch, by connection."""
    connections = [connection for running in cluster.nodes for connection in running.server.connections]
    return [connection.state["groups"].ids for connection in connections if "groups" in connection.state]


@pytest.mark.parametrize(
    "fields",
    [
        {"mode": "work", "owned": bytes(5_000)},
        {"mode": "work", "session_timeout_ms": 1},
        {"group": "g" * 201},
        {"member": "m" * 201},
        {"member": ""},
    ],
)
def test_of_a_beat_that_is_refused_nothing_is_left(tmp_path, fields):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            await client.create_cache("orders")
            asked = {"group": "billing", "member": "m", "cache_id": cluster.up[0].caches.named("orders").cache_id} | fields
            connection = await connect("127.0.0.1", cluster.nodes[0].port)
            with pytest.raises((InvalidArgument, BadMessage)):
                await connection.request(Message(group_beat=pb.GroupBeat(**asked)), timeout_ms=20_000)
            assert running_of(cluster, asked["group"]) == []
            assert all(len(group) <= 200 and 0 < len(member) <= 200 for ids in noted(cluster) for group, _, member in ids)
            connection.close()
            await connection.wait_closed()

    run(act())


def test_of_one_connection_no_more_members_are_watched_than_there_is_room_for(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster, 0) as client:
            for node in cluster.up:
                node.member_connections.members_max = 1
            cache = await client.create_cache("orders")
            async with cache.consumer("billing") as one, cache.consumer("billing") as two:
                await until(lambda: shared(one, two))
                assert {len(ids) for ids in noted(cluster)} == {1}

    run(act())


def test_a_node_has_no_more_groups_with_members_than_it_may(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            for node in cluster.up:
                node.coordinators.groups_max = 1
            await client.create_cache("orders")
            who = {"member": "m", "cache_id": cluster.up[0].caches.named("orders").cache_id}
            connection = await connect("127.0.0.1", cluster.nodes[0].port)

            async def join(group):
                try:
                    await connection.request(Message(group_beat=pb.GroupBeat(group=group, **who)), timeout_ms=20_000)
                except Overloaded:
                    return False
                return True

            joined = {group: await join(group) for group in (f"g{number}" for number in range(12))}
            figures = [node.coordinators.figures()["groups"] for node in cluster.up]
            assert set(figures) <= {(0, 1, 0), (1, 1, 1)}
            assert 1 <= sum(joined.values()) == sum(used for used, *_ in figures)
            for group, is_in in joined.items():
                assert await join(group) is is_in  # again, as somebody in it or as one more
            for group in filter(joined.get, joined):
                await connection.request(Message(leave_group=pb.LeaveGroup(group=group, **who)), timeout_ms=20_000)
            await until(lambda: not any(node.coordinators.figures()["groups"][0] for node in cluster.up))
            assert await join(next(group for group, is_in in joined.items() if not is_in))
            connection.close()
            await connection.wait_closed()

    run(act())
