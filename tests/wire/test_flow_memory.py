"""Memory that is reserved by a claim, and pooled."""

import resource
from itertools import pairwise
from pathlib import Path

from eventlog.limits import KIB, MIB
from eventlog.wire.flow import POOLED_BYTES_MAX, SLAB_BYTES, Arena, reserve


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_reserving_costs_no_memory_until_it_is_written():
    reserve(64 * KIB)
    before = resident_bytes()
    held = [reserve(16 * MIB) for _ in range(64)]
    assert resident_bytes() - before < 256 * MIB  # of 1 GiB; a huge page each may be there already
    assert len(held) == 64


def test_a_slab_is_used_again_when_the_last_view_of_it_is_gone():
    arena = Arena()
    first = arena.reserve(SLAB_BYTES // 2)
    part = first[100:200]
    other = arena.reserve(SLAB_BYTES // 2)
    part[:] = b"a" * 100
    other[100:200] = b"b" * 100
    assert part == b"a" * 100
    first_address = _address(first)
    del first, other
    second = arena.reserve(SLAB_BYTES)
    assert _address(second) != first_address  # `part` still looks at it
    del part
    assert _address(arena.reserve(SLAB_BYTES)) == first_address


def test_what_is_reserved_in_turn_lies_side_by_side():
    arena = Arena()
    held = [arena.reserve(100_001) for _ in range(20)]
    starts = [_address(view) for view in held]
    assert all(0 <= high - low - 100_001 < 64 for low, high in pairwise(starts))
    assert all(start % 8 == 0 for start in starts)
    assert len({id(view.obj) for view in held}) == 1


def test_memory_nobody_looks_at_is_used_from_its_beginning():
    arena = Arena()
    addresses = {_address(arena.reserve(3 * MIB)) for _ in range(10)}
    assert len(addresses) == 1


def test_slabs_too_small_make_room_for_a_larger_one():
    arena = Arena()
    held = [arena.reserve(SLAB_BYTES) for _ in range(POOLED_BYTES_MAX // SLAB_BYTES)]
    held.clear()
    large = arena.reserve(POOLED_BYTES_MAX)
    address = _address(large)
    del large
    assert _address(arena.reserve(POOLED_BYTES_MAX)) == address
    assert arena.pooled_bytes == POOLED_BYTES_MAX


def test_while_every_slab_is_looked_at_memory_is_as_large_as_asked_for():
    arena = Arena()
    held = []
    for _ in range(POOLED_BYTES_MAX // SLAB_BYTES):
        held += [arena.reserve(100), arena.reserve(SLAB_BYTES - 128)]
    del held[1::2]
    more = [arena.reserve(SLAB_BYTES - 64) for _ in range(3)]
    assert [view.obj.nbytes for view in more] == [SLAB_BYTES - 64] * 3
    assert arena.pooled_bytes <= POOLED_BYTES_MAX
    assert len({_address(view) for view in held + more}) == len(held + more)


def _address(view):
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(view))
