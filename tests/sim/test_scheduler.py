"""Virtual time, and processes that pause and die."""

from tests.sim.scheduler import Process, Scheduler


def test_actions_run_in_order_of_time_and_of_being_asked_for():
    scheduler, ran = Scheduler(), []
    for name, delay_us in (("late", 20), ("first", 10), ("second", 10)):
        scheduler.after(delay_us, lambda name=name: ran.append((name, scheduler.now_us)))
    scheduler.run(15)
    assert (ran, scheduler.now_us) == ([("first", 10), ("second", 10)], 15)
    scheduler.run(100)
    assert ran[-1] == ("late", 20)


def test_what_is_cancelled_does_not_run():
    scheduler, ran = Scheduler(), []
    timer = scheduler.after(10, lambda: ran.append(1))
    timer.cancel()
    scheduler.run(20)
    assert ran == []


def test_a_run_ends_when_it_is_told_to():
    scheduler, ran = Scheduler(), []
    for delay_us in (1, 2, 3):
        scheduler.after(delay_us, lambda delay_us=delay_us: ran.append(delay_us))
    scheduler.run(10, stop=lambda: len(ran) == 2)
    assert (ran, scheduler.now_us) == ([1, 2], 2)


def test_a_paused_process_does_later_what_it_would_have_done_in_order():
    scheduler, ran = Scheduler(), []
    process = Process(scheduler)
    process.pause()
    for number in (1, 2):
        process.after(number, lambda number=number: ran.append((number, scheduler.now_us)))
    scheduler.run(10)
    assert ran == []
    process.resume()
    assert ran == [(1, 10), (2, 10)]


def test_what_is_asked_for_during_a_resume_comes_after_what_waited():
    scheduler, ran = Scheduler(), []
    process = Process(scheduler)
    process.pause()
    process.run(lambda: process.run(lambda: ran.append("new")))
    process.run(lambda: ran.append("waited"))
    process.resume()
    assert ran == ["waited", "new"]


def test_a_dead_process_does_nothing_more():
    scheduler, ran = Scheduler(), []
    process = Process(scheduler)
    process.after(5, lambda: ran.append(1))
    process.kill()
    scheduler.run(10)
    assert ran == []


def test_a_process_that_kills_itself_while_it_resumes_stops_there():
    process, ran = Process(Scheduler()), []
    process.pause()
    process.run(process.kill)
    process.run(lambda: ran.append(1))
    process.resume()
    assert ran == []
