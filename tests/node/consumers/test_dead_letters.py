"""Dead letters of one turn: those that are written are not written again while others cannot be."""

import asyncio
from types import SimpleNamespace
from typing import Any

from eventlog.errors import EventLogError, InvalidArgument, NotPrimary
from eventlog.events import Kind
from eventlog.groups.record import Place
from eventlog.groups.sharing import DeadLetter
from eventlog.hashing import hash_key, segment_of
from eventlog.node.consumers.dead_letters import DeadLetters

SEGMENTS = 8


class Writes:
    """Takes blocks but for those of segments that are refused, each so many times."""

    def __init__(self, refused: dict[int, tuple[int, EventLogError]]) -> None:
        self._refused = refused
        self.written: list[int] = []
        self.tries = 0

    async def write(self, _cache: object, frame: Any, *, timeout_ms: int) -> Any:
        assert timeout_ms > 0
        self.tries += 1
        refusals = {}
        for block, row in enumerate(frame.table):
            segment = int(row["segment"])
            left, error = self._refused.get(segment, (0, None))
            if left:
                self._refused[segment] = left - 1, error
                refusals[block] = error
            else:
                self.written += [segment] * int(row["count"])
        return SimpleNamespace(refusals=refusals)


def letter(key: bytes, id_: int) -> DeadLetter:
    row = SimpleNamespace(key=key, value=b"1", headers=b"", kind=Kind.CREATED, segment=0, place=Place(id=id_, next_offset=1))
    return DeadLetter(row=row, reason="", deliveries=1)


def buried(
    refused: dict[int, tuple[int, EventLogError]], keys: list[bytes], *, write_ms: int = 5_000
) -> tuple[Writes, dict[int, EventLogError]]:
    writes = Writes(refused)
    options = SimpleNamespace(format="bytes", bytes_keys=True, schema=None, route_by_prefix=False)
    source, dead = (SimpleNamespace(name=name, options=options, is_internal=False) for name in ("c", "c.dead"))
    caches = SimpleNamespace(find=lambda _: source, named=lambda _: dead)
    node = SimpleNamespace(caches=caches, segments=SEGMENTS, own_writes=writes, cache_changes=None)
    letters = {id_: letter(key, id_) for id_, key in enumerate(keys, start=1)}
    return writes, asyncio.run(DeadLetters(node, write_ms=write_ms).bury_all(letters, cache_id=1, name="", group="g"))


def keys_of(segment: int, count: int) -> list[bytes]:
    found = (b"k%d" % number for number in range(10_000))
    return [key for key in found if segment_of(hash_key(key), SEGMENTS) == segment][:count]


def test_only_what_could_not_be_written_is_written_again() -> None:
    writes, errors = buried({2: (3, NotPrimary(segment=2))}, [*keys_of(1, 2), *keys_of(2, 2)])
    assert errors == {}
    assert sorted(writes.written) == [1, 1, 2, 2]
    assert writes.tries == 4


def test_what_cannot_be_written_in_time_is_told_alone() -> None:
    writes, errors = buried({2: (1 << 40, NotPrimary(segment=2))}, [*keys_of(1, 1), *keys_of(2, 2)], write_ms=20)
    assert sorted(errors) == [2, 3]
    assert writes.written == [1]


def test_one_that_is_refused_for_good_takes_none_of_its_block_with_it() -> None:
    writes, errors = buried({2: (2, InvalidArgument(why="no"))}, [*keys_of(1, 1), *keys_of(2, 2)])
    assert [str(error) for error in errors.values()] == ["no"]
    assert list(errors) == [2]
    assert sorted(writes.written) == [1, 2]
