"""Controllers of several nodes over one metadata store."""

import asyncio
import itertools
from contextlib import aclosing

import msgspec

from eventlog.control.controller import ControllerOptions
from eventlog.control.metastores.memory import MemoryMetaStore
from eventlog.control.records import CONTROLLER_KEY, NODE_PREFIX, ControllerRecord, decode, encode, segment_key
from eventlog.control.view import ClusterView
from eventlog.node.cluster.controller import ControllerLoop, ControllerParts
from tests import loops
from tests.control.worlds import World, segment

SEGMENTS = 12
AT_ONCE_S = 2  # milliseconds where nothing else runs


class Reach:
    """What one node hears of the others: nothing at all is what the whole trio sets for its dead."""

    def __init__(self, gone):
        self._gone = gone

    def is_refused(self, number):
        return number in self._gone

    def silent_ms(self, number):
        return 0


class Member:
    """A node as far as the controller is concerned: records, a watch, a loop."""

    def __init__(self, records, gone):
        self.records = records
        self.view = ClusterView(nodes={}, segments={})
        self.gone = gone
        self.loop = None
        self.tasks = []

    async def start(self):
        self.view = await self.records.view()
        parts = ControllerParts(
            records=self.records,
            reach=Reach(self.gone),
            seen=lambda: self.view,
            now_ms=lambda: int(asyncio.get_running_loop().time() * 1000),
            wall_ms=lambda: 0,
            options=ControllerOptions(balance_primaries_calm_ms=0, rebalance_delay_ms=0),
        )
        self.loop = ControllerLoop(parts)
        self.tasks = [asyncio.create_task(self.watch()), asyncio.create_task(self.loop.run())]

    async def watch(self):
        async with aclosing(self.records.watch()) as views:
            async for view in views:
                self.view = view
                self.loop.wake()

    @property
    def number(self):
        return self.records.member.number

    async def stop(self):
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class Replaced:
    """A metadata store in whose place another one may be put, as by an operator."""

    def __init__(self, inner):
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)


class Trio:
    """Three members with every segment in sync on all of them."""

    def __init__(self):
        self.world = World()
        self.world.store = Replaced(self.world.store)
        self.gone = set()
        self.members = []

    async def __aenter__(self):
        joined = [await self.world.joined(name, segments=16) for name in "abc"]
        view = await joined[0].view()
        in_sync = tuple(node.replica for node in view.members.values())
        for number in range(SEGMENTS):
            primary = number % 3 + 1
            owners = (primary, *(other for other in (1, 2, 3) if other != primary))
            record = msgspec.structs.replace(
                segment(number, owners=owners), in_sync=in_sync, session=view.members[primary].session, min_in_sync=2
            )
            await self.world.store.commit({}, puts={segment_key(number): encode(record)})
        self.members = [Member(records, self.gone) for records in joined]
        for member in self.members:
            await member.start()
        return self

    async def __aexit__(self, *_):
        for member in self.members:
            await member.stop()

    async def kill(self, member):
        """End a process; the others find nobody listening there."""
        await member.stop()
        self.members.remove(member)
        self.gone.add(member.number)
        for other in self.members:
            other.loop.wake()

    async def view(self):
        return await self.members[0].records.view()

    async def until(self, holds):
        """Return the first view for which `holds`, and how long it took."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        async with asyncio.timeout(loops.WITHIN_S):
            async with aclosing(self.members[0].records.watch()) as views:
                async for view in views:
                    if holds(view):
                        return view, loop.time() - began
        raise AssertionError("the watch ended")

    async def controller(self):
        """Return who is controller, once somebody alive is."""
        alive = {member.number for member in self.members}
        view, _ = await self.until(lambda view: view.controller is not None and view.controller.record.node in alive)
        return next(member for member in self.members if member.number == view.controller.record.node)


def tell(story):
    async def run():
        async with Trio() as trio:
            await story(trio)

    loops.run(run())


def nobody_led_by(number):
    return lambda view: all(found.record.primary != number for found in view.segments.values())


def test_one_of_three_becomes_controller_and_changes_nothing_in_a_healthy_cluster():
    async def story(trio):
        await trio.controller()
        before = {number: found.revision for number, found in (await trio.view()).segments.items()}
        for member in trio.members:
            for _ in range(3):
                await member.loop.turn()
        assert {number: found.revision for number, found in (await trio.view()).segments.items()} == before
        assert sum(member.loop.is_controller for member in trio.members) == 1

    tell(story)


def test_a_killed_primarys_segments_have_another_primary_at_once():
    async def story(trio):
        controller = await trio.controller()
        victim = next(member for member in trio.members if member is not controller)
        await trio.kill(victim)
        view, seconds = await trio.until(nobody_led_by(victim.number))
        assert seconds < AT_ONCE_S
        for found in view.segments.values():
            assert found.record.session == view.members[found.record.primary].session

    tell(story)


def test_an_older_store_is_told_of_and_is_no_failure(caplog):
    def told(words):
        return sum(words in record.message for record in caplog.records)

    async def story(trio):
        controller = await trio.controller()
        trio.world.store.inner = MemoryMetaStore(now_ms=trio.world.clock.monotonic_ms)
        await trio.kill(controller)
        await loops.until(lambda: told("controller_") >= 2)

    tell(story)
    assert told("controller_without_metadata error=metadata at the store: it is at revision") >= 2
    assert not told("controller_failed")


def test_a_killed_controller_is_followed_by_another_that_does_its_work():
    async def story(trio):
        controller = await trio.controller()
        await trio.kill(controller)
        view, seconds = await trio.until(nobody_led_by(controller.number))
        assert seconds < AT_ONCE_S
        assert view.controller.record.node != controller.number
        swept, _ = await trio.until(
            lambda view: all(replica.node != controller.number for found in view.segments.values() for replica in found.record.in_sync)
        )
        assert {len(found.record.in_sync) for found in swept.segments.values()} == {2}

    tell(story)


def test_two_controllers_at_once_do_no_harm():
    async def story(trio):
        controller = await trio.controller()
        other = next(member for member in trio.members if member is not controller)
        victim = next(member for member in trio.members if member not in (controller, other))
        other.loop._view = as_controller(await trio.view(), other)
        await trio.kill(victim)
        await asyncio.gather(controller.loop.turn(), other.loop.turn())
        view, _ = await trio.until(nobody_led_by(victim.number))
        assert {found.record.epoch for found in view.segments.values() if found.record.segment % 3 + 1 == victim.number} == {2}

    tell(story)


def test_load_is_evened_out_by_itself_once_sizes_are_known_and_says_how_much_is_copied():
    async def story():
        world, sizes, clock = World(), [None, None, dict.fromkeys(range(SEGMENTS), 100)], itertools.count(0, 1_000)
        joined = [await world.joined(name, segments=16) for name in "abcd"]
        view = await joined[0].view()
        for number in range(SEGMENTS):
            record = segment(number, owners=(1, 2, 3), in_sync=tuple(view.members[owner].replica for owner in (1, 2, 3)))
            record = msgspec.structs.replace(record, session=view.members[1].session)
            await world.store.commit({}, puts={segment_key(number): encode(record)})
        seen = await joined[0].view()
        parts = ControllerParts(
            records=joined[0],
            reach=Reach(set()),
            seen=lambda: seen,
            now_ms=lambda: next(clock),
            wall_ms=lambda: 7,
            options=ControllerOptions(balance_primaries_calm_ms=0, rebalance_delay_ms=1),
            sizes=lambda: sizes.pop(0),
        )
        loop = ControllerLoop(parts)
        while len(sizes) > 1:
            await loop.turn()
            seen = await joined[0].view()
            assert seen.rebalance is None, "not before it is known what it copies"
        while seen.rebalance is None:
            await loop.turn()
            seen = await joined[0].view()
        started = seen.rebalance.record
        assert (started.started_ms, started.bytes_total) == (7, 100 * 9), "a quarter of 36 copies goes to the fourth"

    asyncio.run(story())


def as_controller(view, member):
    """Return the view of one that believes it holds the key."""
    record = ControllerRecord(node=member.number, session=member.records.member.session, nonce="mine")
    return ClusterView(
        nodes=view.nodes, segments=view.segments, controller=type(view.controller)(record, view.controller.revision), revision=view.revision
    )


def test_a_restarted_controller_takes_its_own_key_over():
    async def story(trio):
        controller = await trio.controller()
        await controller.stop()
        trio.members.remove(controller)
        name = controller.records.member.incarnation
        again = Member(await trio.world.joined(name, segments=16), trio.gone)
        trio.members.append(again)
        await again.start()
        await trio.until(lambda view: view.controller.record.session == again.records.member.session)
        held = decode((await trio.world.store.get(CONTROLLER_KEY)).value, ControllerRecord, where="")
        assert held.node == again.number
        view, _ = await trio.until(
            lambda view: all(found.record.session == view.members[found.record.primary].session for found in view.segments.values())
        )
        assert {found.record.epoch for found in view.segments.values() if found.record.primary == again.number} == {2}

    tell(story)


class Listed(MemoryMetaStore):
    """Notes what is listed."""

    def __init__(self):
        super().__init__()
        self.prefixes = []

    async def list(self, prefix):
        self.prefixes.append(prefix)
        return await super().list(prefix)


def test_a_lease_renewed_meanwhile_costs_a_look_at_the_nodes_and_not_at_all_segments():
    async def story():
        world, store = World(), Listed()
        controller = await world.joined("a", segments=16, store=store)
        other = await world.joined("b", segments=16, store=store)
        both = (await controller.view()).members
        for number in range(SEGMENTS):
            record = msgspec.structs.replace(
                segment(number, owners=(2, 1)),
                in_sync=tuple(node.replica for node in both.values()),
                session=both[2].session,
            )
            await store.commit({}, puts={segment_key(number): encode(record)})
        stale = await controller.view()
        await other.renew_lease(on_lost=lambda _: None)
        parts = ControllerParts(
            records=controller, reach=Reach({2}), seen=lambda: stale, now_ms=lambda: 0, wall_ms=lambda: 0, options=ControllerOptions()
        )
        loop = ControllerLoop(parts)
        store.prefixes.clear()
        await loop.turn()
        assert store.prefixes == [NODE_PREFIX]
        await loop.turn()
        view = await controller.view()
        assert {found.record.primary for found in view.segments.values()} == {1}

    asyncio.run(story())
