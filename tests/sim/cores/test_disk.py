"""What a crash takes from the logs."""

import random

from eventlog.replication import EpochStart
from tests.sim.cores.disk import Disk
from tests.sim.cores.history import Value
from tests.sim.cores.storage import Storage
from tests.sim.scheduler import Process, Scheduler


class Chance(random.Random):
    """A crash that keeps the first `kept` of the writes that were not synced."""

    def __init__(self, kept: int) -> None:
        super().__init__(0)
        self.kept = kept

    def random(self) -> float:
        return 0.0

    def randint(self, low: int, high: int) -> int:
        return min(self.kept, high)


def value(id_: int) -> Value:
    return Value(id_, id_, 1, (id_,))


def ids(disk: Disk) -> list[int]:
    return [held.base for held in disk.log(0)]


def test_what_was_synced_survives_and_what_was_not_is_lost():
    disk = Disk("a")
    disk.append(0, [value(1), value(2)])
    disk.sync(disk.writes)
    disk.append(0, [value(3)])
    assert (ids(disk), disk.end(0)) == ([1, 2, 3], 3)
    assert disk.crash(Chance(0)) == 1
    assert (ids(disk), disk.end(0)) == ([1, 2], 2)


def test_a_cut_that_was_not_synced_is_undone():
    disk = Disk("a")
    disk.append(0, [value(1), value(2), value(3)])
    disk.sync(disk.writes)
    assert disk.cut(0, 1) == 2
    disk.append(0, [value(7)])
    assert ids(disk) == [1, 7]
    disk.crash(Chance(0))
    assert ids(disk) == [1, 2, 3]


def test_the_writes_that_survive_by_luck_are_the_first():
    disk = Disk("a")
    for number in (1, 2, 3):
        disk.append(number % 2, [value(number)])
    assert disk.crash(Chance(2)) == 1
    assert (ids(disk), disk.end(1)) == ([2], 1)
    assert disk.crash(Chance(0)) == 0, "what survived one crash survives the next"


def test_a_sync_covers_what_was_written_when_it_began():
    disk = Disk("a")
    disk.append(0, [value(1)])
    begun = disk.writes
    disk.append(0, [value(2)])
    disk.sync(begun)
    disk.crash(Chance(0))
    assert ids(disk) == [1]


def test_a_batch_survives_whole_or_not_at_all():
    disk = Disk("a")
    start = EpochStart(1, 1, 0)
    disk.append_all([(0, [value(1)], [start]), (1, [value(2), value(3)], [])])
    assert (disk.end(0), disk.end(1), disk.history(0)) == (1, 3, (start,))
    assert disk.crash(Chance(0)) == 1
    assert (disk.end(0), disk.end(1), disk.history(0)) == (0, 0, ())


def test_a_dropped_log_comes_back_if_the_drop_was_not_synced():
    disk = Disk("a")
    disk.append(0, [value(1)], [EpochStart(1, 1, 0)])
    disk.sync(disk.writes)
    disk.flush(0, 1)
    disk.drop(0, installing=True)
    assert (disk.end(0), disk.applied) == (0, {})
    disk.crash(Chance(0))
    disk.open()
    assert (ids(disk), disk.applied, len(disk.history(0))) == ([1], {0: 1}, 1)


def test_an_install_that_was_interrupted_is_dropped_at_the_start():
    disk = Disk("a")
    disk.drop(0, installing=True)
    disk.append(0, [value(1)])
    disk.sync(disk.writes)
    disk.crash(Chance(0))
    disk.open()
    assert (ids(disk), disk.end(0)) == ([], 0)


def test_an_install_that_ended_is_a_log_with_a_state():
    disk = Disk("a")
    disk.drop(0, installing=True)
    disk.append(0, [value(1)])
    disk.end_install(0, pin=1, history=[EpochStart(1, 1, 0)])
    disk.sync(disk.writes)
    disk.crash(Chance(0))
    disk.open()
    assert (ids(disk), disk.applied[0], disk.trimmed[0], len(disk.history(0))) == ([1], 1, 1, 1)


def test_what_was_dropped_for_good_is_no_install_any_more():
    disk = Disk("a")
    disk.drop(0, installing=True)
    disk.append(0, [value(1)])
    disk.drop(0)
    disk.append(0, [value(2)])
    disk.sync(disk.writes)
    disk.crash(Chance(0))
    disk.open()
    assert ids(disk) == [2]


def test_a_disk_that_stalls_is_done_with_nothing_until_it_is_over():
    scheduler, disk = Scheduler(), Disk("a")
    storage = Storage(Process(scheduler), disk, sync_us=1_000, chance=random.Random(0))
    done: list[int] = []
    disk.stall(500_000)
    for job in (1, 2):
        storage.put(lambda job=job: disk.append(0, [value(job)]), lambda: done.append(scheduler.now_us))
        scheduler.run(job * 200_000)
    assert (ids(disk), done) == ([1], []), "the second waits for the first"
    scheduler.run(600_000)
    assert (ids(disk), len(done)) == ([1, 2], 2)
    assert 500_000 <= done[0] < done[1] <= 504_000


def test_what_a_stalled_disk_was_not_done_with_is_lost():
    scheduler, disk = Scheduler(), Disk("a")
    process = Process(scheduler)
    disk.stall(500_000)
    Storage(process, disk, sync_us=1_000, chance=random.Random(0)).put(lambda: disk.append(0, [value(1)]), lambda: None)
    scheduler.run(400_000)
    process.kill()
    assert disk.crash(Chance(0)) == 1
    assert ids(disk) == []
