"""The cost of an event against how many are stored: each million of ten, appended and keyed, and reading a million of them."""

from collections.abc import Iterator, Sequence

from benchmarks import traffic
from benchmarks.figures import MILLION, Row, Scale, against, note
from benchmarks.inputs import Load
from benchmarks.processes import Node, in_child, scratch

MILLIONS = 10
SHOWN = (1, 5, 10)
TOGETHER = 3
FLAT_AT_MOST = 1.25  # the last ones against the first


def run(scale: Scale) -> Iterator[Row]:
    step = scale.of(MILLION)
    for cache in ("append", "keyed"):
        with scratch() as directory, Node(directory / "data") as node:
            costs: list[traffic.Spent] = []
            for number in range(MILLIONS):
                if cache == "append":
                    costs.append(in_child(traffic.append, node.address, cache, Load(batch=1_000), events=step))
                else:
                    costs += in_child(traffic.keyed, node.address, cache, Load(batch=1_000), phases=[step], live=step, seed=number)
            yield from rows_of(cache, costs)


def rows_of(cache: str, costs: Sequence[traffic.Spent]) -> Iterator[Row]:
    """Return the rows of one cache. Merging files comes in lumps, so the millions are compared in threes."""
    first = 0 if cache == "append" else 1  # the first million keys are new: another kind of work
    for name, of in (("all", _us), ("without flushes and merges", _us_in_front)):
        found = [of(spent) for spent in costs]
        begun, ended = sum(found[first : first + TOGETHER]) / TOGETHER, sum(found[-TOGETHER:]) / TOGETHER
        yield against(
            f"{cache}, {name}, the last {TOGETHER} millions against the first",
            ours=ended,
            bare=begun,
            unit="us/event of server CPU",
            at_most=FLAT_AT_MOST,
        )
        shown = ", ".join(f"{number}: {found[number - 1]:.2f}" for number in SHOWN)
        yield note(f"{cache}, {name}, million", f"{shown} us/event; every one {', '.join(f'{cost:.2f}' for cost in found)}")


def _us(spent: traffic.Spent) -> float:
    return spent.us_per_event


def _us_in_front(spent: traffic.Spent) -> float:
    return (spent.server_cpu - spent.background_cpu) / spent.events * MILLION
