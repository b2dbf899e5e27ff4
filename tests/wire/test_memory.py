"""Memory that is reserved by a claim, and pooled."""

import resource
from pathlib import Path

from eventlog.limits import KIB, MIB
from eventlog.wire.memory import POOLED_BYTES_MAX, Arena, reserve


def resident_bytes():
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def test_reserving_costs_no_memory_until_it_is_written():
    reserve(64 * KIB)
    before = resident_bytes()
    held = [reserve(16 * MIB) for _ in range(64)]
    assert resident_bytes() - before < 256 * MIB  # of 1 GiB; a huge page each may be there already
    assert len(held) == 64


def test_memory_comes_back_when_the_last_view_is_gone():
    arena = Arena()
    first = arena.reserve(300 * KIB)
    part = first[100:200]
    other = arena.reserve(300 * KIB)
    part[:] = b"a" * 100
    other[100:200] = b"b" * 100
    assert part == b"a" * 100
    first_address = _address(first)
    del first
    assert _address(arena.reserve(300 * KIB)) != first_address  # `part` still looks at it
    del part
    assert _address(arena.reserve(300 * KIB)) == first_address


def test_memory_far_larger_than_needed_is_left_for_somebody_else():
    arena = Arena()
    large = arena.reserve(8 * MIB)
    address = _address(large)
    del large
    assert _address(arena.reserve(1 * MIB)) != address


def test_the_pool_keeps_no_more_than_its_limit():
    arena = Arena()
    for _ in range(40):
        arena.reserve(3 * MIB)[:] = bytes(3 * MIB)
    held = [arena.reserve(size * 100 * KIB) for size in range(2, 60)]
    assert sum(array.nbytes for array in arena._pool) <= POOLED_BYTES_MAX
    assert len({_address(view) for view in held}) == len(held)


def _address(view):
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(view))
