"""What is given of a wrong type is refused by its name, before any node hears of it."""

from collections.abc import Awaitable, Callable
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


def test_names_are_text() -> None:
    async def main() -> None:
        async with client_of(FakeNode()) as client:
            calls: list[Callable[[Any], Awaitable[Any]]] = [
                client.create_cache,
                client.alter_cache,
                client.drop_cache,
                client.listeners.describe,
                lambda given: client.listeners.alter(given, hold=1),
                lambda given: client.listeners.acknowledge(given, 1),
                client.listeners.remove,
                client.groups.describe,
                lambda given: client.groups.reset(given, to_id="latest"),
                client.groups.delete,
                client.admin.drain,
                client.admin.remove,
                lambda given: client.admin.replace(given, "n1"),
                lambda given: client.admin.replace("n1", given),
                lambda given: client.admin.force_primary([0], node=given),
            ]
            for call in calls:
                for given in (7, 1.5, True, b"n1", ["n1"]):
                    with pytest.raises(InvalidArgument, match=r"give text|is no name for a group"):
                        await call(given)

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
