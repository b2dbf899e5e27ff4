"""The cost of an event against how many are stored: each million of ten, appended and keyed, and reading a million of them."""

from collections.abc import Iterator

from benchmarks import traffic
from benchmarks.figures import MILLION, Row, Scale, note
from benchmarks.inputs import Load
from benchmarks.processes import Node, in_child, scratch

MILLIONS = 10
SHOWN = (1, 5, 10)
FLAT_AT_MOST = 1.25  # the last million against the first


def run(scale: Scale) -> Iterator[Row]:
    step = scale.of(MILLION)
    for cache in ("append", "keyed"):
        with scratch() as directory, Node(directory / "data") as node:
            costs: list[float] = []
            for number in range(MILLIONS):
                if cache == "append":
                    spent = in_child(traffic.append, node.address, cache, Load(batch=1_000), events=step)
                else:
                    (spent,) = in_child(traffic.keyed, node.address, cache, Load(batch=1_000), phases=[step], live=step, seed=number)
                costs.append(spent.us_per_event)
            yield from _rows(cache, costs)


def _rows(cache: str, costs: list[float]) -> Iterator[Row]:
    first = costs[0] if cache == "append" else costs[1]  # the first million keys are new: another kind of work
    for number in SHOWN:
        yield Row(
            case=f"{cache}, million {number}",
            measured=f"{costs[number - 1]:.3f} us/event of server CPU",
            bare=f"{first:.3f} us/event" if number == SHOWN[-1] else "",
            ratio=costs[number - 1] / first,
            target=f"<= {FLAT_AT_MOST:g}x" if number == SHOWN[-1] else "",
            reached=costs[number - 1] / first <= FLAT_AT_MOST if number == SHOWN[-1] else None,
        )
    yield note(f"{cache}, every million", ", ".join(f"{cost:.2f}" for cost in costs))
