"""Messages that are late, lost or kept back."""

import random

from tests.sim.consumers.network import Network, Weather
from tests.sim.scheduler import Scheduler


def make(**weather: object) -> tuple[Scheduler, Network]:
    scheduler = Scheduler()
    return scheduler, Network(scheduler, random.Random(1), Weather(**weather))


def send(network: Network, numbers: range, arrived: list[int], *, source: int = 1, target: int = 2) -> None:
    for number in numbers:
        network.send(source, target, lambda number=number: arrived.append(number))


def test_a_message_takes_between_one_and_two_delays():
    scheduler, network = make(delay_us=100)
    arrived = []
    send(network, range(50), arrived)
    scheduler.run(99)
    assert arrived == []
    scheduler.run(250)
    assert arrived == list(range(50))


def test_some_messages_are_lost_and_those_that_arrive_are_in_order():
    scheduler, network = make(lost=0.3, slow=0.2)
    arrived = []
    send(network, range(200), arrived)
    scheduler.run(10_000_000)
    assert 100 < len(arrived) < 200
    assert arrived == sorted(arrived)


def test_a_cut_has_a_direction_and_lasts_until_it_is_mended_as_often():
    scheduler, network = make()
    arrived = []
    network.cut(1, 2)
    network.cut(1, 2)
    network.mend(1, 2)
    send(network, range(1), arrived)
    send(network, range(1, 2), arrived, source=2, target=1)
    scheduler.run(10_000)
    assert (arrived, network.is_cut(1, 2), network.is_cut(2, 1)) == ([1], True, False)
    network.heal()
    send(network, range(2, 3), arrived)
    scheduler.run(20_000)
    assert arrived == [1, 2]
