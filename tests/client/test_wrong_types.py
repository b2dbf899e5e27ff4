"""What a listener is asked for, before any node hears of it."""

from typing import Any

import pytest

from eventlog.errors import InvalidArgument
from tests.client.fake_node import FakeNode
from tests.process.client_ends import client_of, run


@pytest.mark.parametrize("option", ["hold", "hold_ms", "expire_ms"])
@pytest.mark.parametrize("given", ["1GiB", 7.5, True, [1], -1, 1 << 70])
def test_a_bound_of_a_wrong_type_is_refused_by_its_name(option: str, given: Any) -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            cache = await client.create_cache("c")
            with pytest.raises(InvalidArgument, match=f"{option} is .*: give a whole number"):
                await cache.register(**{option: given})
            with pytest.raises(InvalidArgument, match=f"{option} is .*: give a whole number"):
                await client.listeners.alter("l", **{option: given})

    run(main())


def test_the_id_of_a_listener_is_text() -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            cache = await client.create_cache("c")
            with pytest.raises(InvalidArgument, match="id is 7: give text"):
                await cache.register(id=7)  # type: ignore[arg-type]

    run(main())


def test_what_operators_name_is_checked_likewise() -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            calls: list[tuple[str, Any]] = [
                ("replicas", client.admin.set_replicas),
                ("throttle_bytes", lambda given: client.admin.start_rebalance(throttle_bytes=given)),
                ("overlap_ms", lambda given: client.admin.rotate_key(overlap_ms=given)),
                ("segment", lambda given: client.admin.compare_copies([given])),
                ("segment", lambda given: client.admin.force_primary([given])),
            ]
            for option, call in calls:
                for given in ("x", 7.5, True, -1, 1 << 70):
                    with pytest.raises(InvalidArgument, match=f"{option} is "):
                        await call(given)

    run(main())
