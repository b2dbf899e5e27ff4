"""Messages that are late, lost, repeated, overtaken or kept back."""

import random

from tests.sim.cores.network import Network, Weather
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


def test_without_order_messages_overtake_each_other_and_none_is_lost():
    scheduler, network = make(is_ordered=False)
    arrived = []
    send(network, range(50), arrived)
    scheduler.run(10_000)
    assert arrived != sorted(arrived)
    assert sorted(arrived) == list(range(50))


def test_some_messages_are_lost_and_some_come_twice():
    scheduler, network = make(lost=0.3, repeated=0.3)
    arrived = []
    send(network, range(200), arrived)
    scheduler.run(10_000_000)
    assert 0 < 200 - len(set(arrived)) < 100
    assert len(arrived) > len(set(arrived))


def test_what_must_not_be_repeated_is_not():
    scheduler, network = make(repeated=1.0)
    arrived = []
    network.send(1, 2, lambda: arrived.append(1), may_repeat=False)
    scheduler.run(10_000)
    assert arrived == [1]


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


def test_what_is_under_way_is_lost_with_the_connections_of_its_sender():
    scheduler, network = make()
    arrived = []
    send(network, range(3), arrived)
    send(network, range(10, 13), arrived, source=3)
    network.break_off(1)
    send(network, range(20, 23), arrived)
    scheduler.run(10_000)
    assert sorted(arrived) == [10, 11, 12, 20, 21, 22]


def test_an_echo_comes_later_and_not_for_sure():
    scheduler, network = make(echoes=0.2)
    arrived = []
    for number in range(20):
        network.echo(1, 2, lambda number=number: arrived.append(number))
    scheduler.run(2_000_000)
    assert 0 < len(set(arrived)) < 20
    assert len(arrived) > len(set(arrived)), "some come more than once"
    network.cut(1, 2)
    network.echo(1, 2, lambda: arrived.append(99))
    scheduler.run(4_000_000)
    assert 99 not in arrived
