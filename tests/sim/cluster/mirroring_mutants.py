"""Planted bugs of mirrors, told as those of the protocol are."""

import asyncio
from dataclasses import replace
from typing import Any, Final

from tests.sim.planting import Mutant, instead

_COPYING: Final = "eventlog.integrations.kafka.copying"


def _commit_progress_apart(_original: Any) -> Any:
    async def commit(self: Any, made: Any, records: Any) -> None:
        mirror = self._of.mirror
        await self._writer.write({mirror.topic: made.batches}, progress_topic=mirror.progress_topic, progress={})
        await self._writer.write({}, progress_topic=mirror.progress_topic, progress=records)

    return commit


class _Early:
    """A way into Kafka whose progress was read before."""

    def __init__(self, kafka: Any, records: Any) -> None:
        self._kafka = kafka
        self._records = records

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kafka, name)

    async def records(self, _topic: str, **_: Any) -> Any:
        return self._records


def _read_progress_first(original: Any) -> Any:
    async def copy(self: Any) -> Any:
        opened = self._open_kafka
        kafka = opened(self._mirror.kafka)
        early = _Early(kafka, await kafka.records(self._mirror.progress_topic))
        self._open_kafka = lambda _name: early
        try:
            return await original(self)
        finally:
            self._open_kafka = opened

    return copy


def _no_record(_mirror: Any, _shard: int, **_: Any) -> Any:
    return {}


def _look_for_nothing(original: Any) -> Any:
    async def found(*args: Any, **named: Any) -> Any:
        return replace(await original(*args, **named), begins={})

    return found


def _settle_as(*, committed: bool) -> Any:
    return lambda original: lambda self, place, **_: original(self, place, is_commit=committed)


def _settle_nothing(_original: Any) -> Any:
    async def settle(_self: Any, _at: Any) -> None:
        return

    return settle


def _remember_where_it_goes(original: Any) -> Any:
    def records(self: Any, at: Any, rows: Any) -> Any:
        self._goes_to = at
        return original(self, at, rows)

    return records


def _let_go_before_the_commit(original: Any) -> Any:
    async def commit(self: Any, made: Any, records: Any) -> None:
        await self._source.acknowledge(self._goes_to)
        await original(self, made, records)

    return commit


async def _hold_for_ever(_self: Any, _at: Any) -> None:
    await asyncio.Event().wait()


MUTANTS: Final = (
    Mutant(
        name="progress of a mirror in a transaction of its own",
        target=f"{_COPYING}:Copying._commit",
        make=_commit_progress_apart,
        seed=0,
        world="mirroring",
    ),
    Mutant(
        name="progress read before the producer is opened",
        target="eventlog.integrations.kafka.shard:Shard._copy",
        make=_read_progress_first,
        seed=1,
        world="mirroring",
    ),
    Mutant(
        name="progress read up to where a former leader says that it ends",
        target="eventlog.mirror.progress:begin_of",
        make=instead(_no_record),
        seed=18,
        world="mirroring",
    ),
    Mutant(
        name="what Kafka left open of a transaction not looked for",
        target="eventlog.integrations.kafka.settling:LeftOpen.found",
        make=_look_for_nothing,
        seed=1,
        world="mirroring",
    ),
    Mutant(
        name="what Kafka left open of a transaction given up in any case",
        target="eventlog.integrations.kafka.settling:LeftOpen._settle",
        make=_settle_as(committed=False),
        seed=5,
        world="mirroring",
    ),
    Mutant(
        name="what Kafka left open of a transaction committed in any case",
        target="eventlog.integrations.kafka.settling:LeftOpen._settle",
        make=_settle_as(committed=True),
        seed=21,
        world="mirroring",
    ),
    Mutant(
        name="what Kafka left open of the last transaction not looked for",
        target=f"{_COPYING}:Copying._settle",
        make=_settle_nothing,
        seed=1,
        world="mirroring",
    ),
    Mutant(
        name="hold of a mirror moved before the commit",
        target=f"{_COPYING}:Copying._commit",
        make=_let_go_before_the_commit,
        also=((f"{_COPYING}:Copying._records", _remember_where_it_goes),),
        seed=6,
        world="mirroring",
    ),
    Mutant(
        name="hold of a mirror left where nothing comes any more",
        target=f"{_COPYING}:Copying._hold_up",
        make=instead(_hold_for_ever),
        seed=3,
        world="mirroring",
    ),
)
