"""Work groups over three nodes on one loop, with real clients."""

import asyncio

import pytest

import eventlog
from eventlog.errors import BadName, InvalidArgument, StaleMember, TooLarge
from eventlog.groups.sharing import AGAIN, DONE, VERDICTS, Wanted
from eventlog.ids import ID_MAX
from eventlog.limits import FRAME_BYTES_MAX, TASK_DELAY_MS_MAX
from eventlog.node.handlers import groups as handlers
from eventlog.transport.connect import connect
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message
from tests.process.one_loop.clients import client_of, cluster_of, run, stopped, until
from tests.process.one_loop.test_coordinator import running_of

EVENTS = 60


async def tasks_of(consumer, count):
    found = []
    async for task in consumer:
        found.append(task)
        if len(found) == count:
            break
    return found


def test_members_share_the_work_and_each_key_is_with_one_at_a_time(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            for n in range(EVENTS):
                await cache.put(f"k{n % 12}", n)
            done, at_work, order = [], set(), {}

            async def work():
                async with cache.consumer("workers", mode="work", prefetch=4) as consumer:
                    async for task in consumer:
                        assert task.key not in at_work
                        with pytest.raises(InvalidArgument, match="in no order"):
                            _ = task.event.position  # of all below it some may be left
                        at_work.add(task.key)
                        await asyncio.sleep(0.001)
                        at_work.discard(task.key)
                        order.setdefault(task.key, []).append(task.value)
                        done.append(task.value)
                        await task.ack()

            workers = [asyncio.create_task(work()) for _ in range(12)]  # more than segments
            await until(lambda: len(done) == EVENTS)
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
            assert sorted(done) == list(range(EVENTS))
            assert all(values == sorted(values) for values in order.values())
            (described,) = await client.groups.describe("workers")
            assert (described.mode, sum(row.lag_events for row in described.segments)) == ("work", 0)

    run(act())


def test_what_fails_is_tried_again_and_ends_among_the_dead_letters(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            await cache.put("bad", {"n": 1}, headers={"from": b"me"})
            await cache.put("worse", {"n": 2})
            seen = []
            async with cache.consumer("workers", mode="work", max_deliveries=3) as consumer:
                for task in await tasks_of(consumer, 2):
                    if task.key == "worse":
                        await task.reject("no such customer")
                    else:
                        seen.append(task.deliveries)
                        for wrong in (-1, 1.5, "1"):
                            with pytest.raises(InvalidArgument, match="after_ms"):
                                await task.retry(after_ms=wrong)
                        await task.retry(after_ms=0)
                for _ in range(2):
                    (task,) = await tasks_of(consumer, 1)
                    seen.append(task.deliveries)
                    await task.retry(after_ms=10)
                assert seen == [1, 2, 3]
                dead = {event.key: event async for event in client.cache("jobs.dead").events()}
                assert dead["worse"].headers["dead.reason"] == b"no such customer"
                assert dead["worse"].value == {"n": 2}
                assert dead["bad"].headers["dead.deliveries"] == b"3"
                assert dead["bad"].headers["from"] == b"me"
            (described,) = await client.groups.describe("workers")
            assert sum(row.lag_events for row in described.segments) == 0

    run(act())


def test_what_a_lost_member_had_goes_to_another_and_its_late_word_does_not_count(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            stored = await cache.put("k", 1)

            async def live(stand_still):
                options = {"mode": "work", "session_timeout_ms": 1_000}
                async with client_of(cluster) as own, own.cache("jobs").consumer("workers", **options) as consumer:
                    (task,) = await tasks_of(consumer, 1)
                    stand_still()
                    with pytest.raises(StaleMember):
                        await task.ack()

            async with stopped(live) as go_on, cache.consumer("workers", mode="work") as other:
                (again,) = await tasks_of(other, 1)
                assert (again.id, again.deliveries) == (stored.id, 2)
                await go_on()
                await again.ack()

    run(act())


def test_acknowledgements_leases_and_counts_survive_the_coordinator(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            await cache.put_many([(f"k{n}", n) for n in range(EVENTS)])
            async with cache.consumer("workers", mode="work", prefetch=EVENTS) as consumer:
                tasks = await tasks_of(consumer, EVENTS)
                await asyncio.gather(*(task.ack() for task in tasks[::2]))
                await tasks[1].retry(after_ms=0)
                (running,) = running_of(cluster, "workers")
                await cluster.nodes[[node.number for node in cluster.up].index(running.node.number)].kill()
                (again,) = await tasks_of(consumer, 1)
                assert (again.id, again.deliveries) == (tasks[1].id, 2)
                await asyncio.gather(again.ack(), *(task.ack() for task in tasks[3::2]))
            (described,) = await client.groups.describe("workers")
            assert sum(row.lag_events for row in described.segments) == 0
            async with cache.consumer("workers", mode="work") as consumer:
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(tasks_of(consumer, 1), 0.5)

    run(act())


def test_a_group_has_one_mode(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            async with cache.consumer("workers", mode="work"):
                pass
            with pytest.raises(InvalidArgument, match="has mode work"):
                async with cache.consumer("workers"):
                    pass

    run(act())


def test_only_what_matches_is_shared_and_the_rest_counts_as_done(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            await cache.put_many([(f"k{n}", {"n": n}) for n in range(EVENTS)])
            filtered = {"where": "value.n % :by = 0", "parameters": {"by": 10}}
            async with cache.consumer("workers", mode="work", **filtered) as consumer:
                for task in await tasks_of(consumer, EVENTS // 10):
                    assert task.value["n"] % 10 == 0
                    await task.ack()
            for wanted in ({"where": "value.n = 1"}, {"where": "nothing = 1"}):
                with pytest.raises((InvalidArgument, eventlog.errors.BadPredicate)):
                    async with cache.consumer("workers", mode="work", **wanted):
                        pass
            await cache.put("k", {"n": 1})
            stored = await cache.put("k", {"n": 100})
            async with cache.consumer("workers", mode="work") as consumer:
                (task,) = await tasks_of(consumer, 1)
                assert task.id == stored.id
                await task.ack()
                described = await client.groups.describe("workers")
                while sum(row.lag_events for row in described[0].segments):  # what does not match is passed now and then
                    await asyncio.sleep(0.05)
                    described = await client.groups.describe("workers")

    run(act())


def test_what_is_not_settled_in_time_goes_to_another_although_its_member_lives(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            await cache.put("k", 1)
            options = {"mode": "work", "ack_timeout_ms": 200, "max_deliveries": 3, "prefetch": 1}
            async with cache.consumer("workers", **options) as hanging, cache.consumer("workers", **options) as other:
                (first,) = await tasks_of(hanging, 1)
                (again,) = await tasks_of(other, 1)
                assert (again.id, again.deliveries) == (first.id, 2)
                with pytest.raises(StaleMember):
                    await first.ack()
                (third,) = await tasks_of(hanging, 1)
                assert third.deliveries == 3
                await cache.put("next", 2)
                (after,) = await tasks_of(other, 1)
                await after.ack()
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(tasks_of(other, 1), 1)
                dead = [event async for event in client.cache("jobs.dead").events()]
                assert [event.headers["dead.deliveries"] for event in dead] == [b"3"]

    run(act())


def test_a_task_that_was_refused_and_given_up_comes_again_to_the_same_member(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            await cache.put("k", 1)
            async with cache.consumer("workers", mode="work", ack_timeout_ms=100) as consumer:
                (task,) = await tasks_of(consumer, 1)
                (again,) = await tasks_of(consumer, 1)  # it hung, and nobody else is there
                assert again.maybe_repeated
                assert consumer.in_hand == {task.id}
                await again.ack()
                assert not consumer.in_hand
                await task.ack()  # the same event: it is done

    run(act())


def test_what_a_member_was_refused_is_not_said_to_be_in_its_hands(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as one, client_of(cluster) as two:
            cache = await one.create_cache("jobs")
            await cache.put("k", 1)
            options = {"mode": "work", "ack_timeout_ms": 100}
            async with cache.consumer("workers", **options) as first, two.cache("jobs").consumer("workers", **options) as second:
                (task,) = await tasks_of(first, 1)
                (again,) = await tasks_of(second, 1)
                with pytest.raises(StaleMember):
                    await task.ack()
                assert not first.in_hand, "else it would be kept for it for ever when it is handed to it again and that answer is lost"
                await again.ack()

    run(act())


def test_numbers_that_could_not_be_kept_are_refused(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            await cache.put("k", 1)
            async with cache.consumer("workers", mode="work") as consumer:
                (task,) = await tasks_of(consumer, 1)
                at = task.event.segment
                for row in (
                    (at, task.id, AGAIN, TASK_DELAY_MS_MAX + 1, "", 1),
                    (at, task.id, AGAIN, -2, "", 1),
                    (at, ID_MAX + 1, DONE, -1, "", 1),
                    (at, task.id, len(VERDICTS), -1, "", 1),
                ):
                    with pytest.raises(InvalidArgument):
                        await consumer.settle(row)
                await task.ack()
            who = {"group": "others", "member": "m", "cache_id": cluster.up[0].caches.named("jobs").cache_id}
            beat = pb.GroupBeat(mode="work", session_timeout_ms=60_000, start_id=ID_MAX + 1, **who)
            connection = await connect("127.0.0.1", cluster.nodes[0].port)
            with pytest.raises(InvalidArgument, match="start_id"):
                await connection.request(Message(group_beat=beat), timeout_ms=20_000)
            connection.close()
            await connection.wait_closed()

    run(act())


def test_a_group_is_not_made_whose_dead_letters_would_have_nowhere_to_go(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            for name, refusal in (("__groups", BadName), ("Dead Letters", BadName), ("jobs", InvalidArgument)):
                with pytest.raises(refusal):
                    async with cache.consumer("workers", mode="work", dead_letters=name):
                        pass
            long = await client.create_cache("j" * 198)
            with pytest.raises(BadName):
                async with long.consumer("workers", mode="work"):
                    pass
            assert await client.groups.list() == []
            async with long.consumer("workers", mode="work", dead_letters="dead"), long.consumer("workers", mode="work"):
                pass  # a later one need not say it again

    run(act())


def test_a_reason_that_is_no_text_is_refused_and_half_a_character_is_written_out(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            await cache.put_many([(f"k{n}", n) for n in range(2)])
            async with cache.consumer("workers", mode="work") as consumer:
                tasks = await tasks_of(consumer, 2)
                for settle in (tasks[0].reject, lambda reason: tasks[0].retry(reason=reason)):
                    with pytest.raises(InvalidArgument, match="ValueError"):
                        await settle(ValueError("boom"))
                await asyncio.gather(tasks[0].reject("caf\udce9"), tasks[1].ack())
            (dead,) = [event async for event in client.cache("jobs.dead").events()]
            assert dead.headers["dead.reason"] == rb"caf\udce9"

    run(act())


def test_whatever_ends_the_settling_nobody_waits_for_ever(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            await cache.put_many([(f"k{n}", n) for n in range(2)])
            async with cache.consumer("workers", mode="work") as consumer:
                one, two = await tasks_of(consumer, 2)
                unsendable = (one.event.segment, one.id, DONE, -1, object())
                found = await asyncio.gather(consumer.settle(unsendable), two.ack(), return_exceptions=True)
                assert [type(error) for error in found] == [TypeError] * 2
                await asyncio.gather(one.ack(), two.ack())

    run(act())


def test_a_consumer_that_cannot_settle_what_it_has_leaves_all_the_same(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            await cache.put_many([(f"k{n}", n) for n in range(4)])
            options = {"mode": "work", "ack_timeout_ms": 100, "session_timeout_ms": 60_000}
            async with cache.consumer("workers", **options) as other:
                async with cache.consumer("workers", **options) as slow:
                    await tasks_of(slow, 1)
                    await tasks_of(other, 4)  # those that wait in the first one's hands, too
                (running,) = running_of(cluster, "workers")
                assert [member.id for member in running.state.members] == [other.member_id]

    run(act())


def test_tasks_whose_answer_fits_no_frame_are_given_back(tmp_path, monkeypatch):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            await cache.put("k", 1)
            with monkeypatch.context() as patched:
                patched.setattr(handlers, "_block", lambda _: bytes(FRAME_BYTES_MAX))
                async with cache.consumer("workers", mode="work") as consumer:
                    with pytest.raises(TooLarge):
                        await tasks_of(consumer, 1)
            async with cache.consumer("workers", mode="work") as consumer:
                (task,) = await tasks_of(consumer, 1)
                assert task.deliveries == 1
                await task.ack()

    run(act())


async def give_up_waiting(cluster, consumer):
    """Wait for a task, and stop that when the request is under way; return the group, where the request goes on."""
    waiting = asyncio.ensure_future(anext(consumer.tasks()))
    (running,) = running_of(cluster, "workers")
    await until(lambda: consumer.member_id in running.work.sharing.latest)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    return running


def test_what_comes_when_nobody_waits_any_more_goes_to_who_does_as_if_it_had_not_been_handed_out(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            options = {"mode": "work", "max_deliveries": 1}
            async with cache.consumer("workers", **options) as gone, cache.consumer("workers", **options) as other:
                await give_up_waiting(cluster, gone)
                await cache.put("urgent", 1)
                (task,) = await tasks_of(other, 1)
                assert (task.deliveries, task.maybe_repeated) == (1, False)
                await task.ack()
                assert not gone.in_hand

    run(act())


def test_what_comes_while_somebody_else_waits_is_for_them(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            async with cache.consumer("workers", mode="work") as consumer:
                running = await give_up_waiting(cluster, consumer)
                asked = running.work.sharing.latest[consumer.member_id]
                waiting = asyncio.ensure_future(tasks_of(consumer, 1))
                await asyncio.sleep(0)
                await cache.put("k", 1)
                (task,) = await waiting
                assert running.work.sharing.latest[consumer.member_id] == asked, "the request under way has it"
                await task.ack()

    run(act())


def test_a_later_member_says_what_the_first_one_did_or_nothing(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            first = {"max_deliveries": 3, "ack_timeout_ms": 60_000}
            async with cache.consumer("workers", mode="work", **first):
                for same in ({}, first, {"dead_letters": "jobs.dead"}):
                    async with cache.consumer("workers", mode="work", **same):
                        pass
                for other in ({"max_deliveries": 5}, {"ack_timeout_ms": 1_000}, {"dead_letters": "elsewhere"}):
                    with pytest.raises(InvalidArgument, match=f"{next(iter(other))} .*, not .*; leave it out"):
                        await (await cache.new_worker("workers", **other)).open()

    run(act())


def test_who_stood_still_past_its_session_hands_out_none_of_what_it_had_fetched(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            await cache.put_many([(f"k{n}", n) for n in range(8)])

            async def live(stand_still):
                options = {"mode": "work", "prefetch": 8, "session_timeout_ms": 1_000}
                async with client_of(cluster) as own, own.cache("jobs").consumer("workers", **options) as consumer:
                    tasks = consumer.tasks()
                    assert (await anext(tasks)).deliveries == 1
                    await until(lambda: len(consumer.in_hand) == 8)
                    stand_still()
                    assert (await anext(tasks)).deliveries == 2, "it has joined anew, and asked anew"

            async with stopped(live) as go_on:
                await until(lambda: not any(running.state.members for running in running_of(cluster, "workers")))
                await go_on()

    run(act())


def test_a_request_for_tasks_ends_when_a_later_one_of_its_member_has_come(tmp_path):
    async def act():
        async with cluster_of(tmp_path) as cluster, client_of(cluster) as client:
            cache = await client.create_cache("jobs")
            await cache.put("k", 1)
            async with cache.consumer("workers", mode="work", prefetch=1) as consumer:
                [task] = await tasks_of(consumer, 1)
                await task.retry(after_ms=0)
                work = running_of(cluster, "workers")[0].work
                wanted = {"limit": 1, "holding": frozenset()}
                await work.take(consumer.member_id, Wanted(sequence=1_000, **wanted), wait_ms=0)
                async with asyncio.timeout(10):
                    assert await work.take(consumer.member_id, Wanted(sequence=999, **wanted), wait_ms=60_000) == []

    run(act())
