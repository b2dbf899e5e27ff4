"""The page of metrics."""

from eventlog.http.metrics import render


def test_samples_of_one_name_stand_together_behind_its_help():
    counters = [
        ("events", "Events.", "counter", 3.0, 'cache="a"'),
        ("groups", "Groups.", "counter", 1e15, ""),
        ("events", "Events.", "counter", 4.0, 'cache="b"'),
    ]
    assert render(counters, []).splitlines() == [
        "# HELP events Events.",
        "# TYPE events counter",
        'events{cache="a"} 3',
        'events{cache="b"} 4',
        "# HELP groups Groups.",
        "# TYPE groups counter",
        "groups 1000000000000000",
    ]


def test_a_bounded_thing_has_used_limit_and_peak():
    lines = render([], [("queue", 1, 10, 7)]).splitlines()
    assert [line for line in lines if not line.startswith("#")] == [
        'eventlog_used{thing="queue"} 1',
        'eventlog_limit{thing="queue"} 10',
        'eventlog_peak{thing="queue"} 7',
    ]


def test_a_peak_that_nobody_keeps_is_left_out():
    lines = render([], [("table", 1, 0, None), ("queue", 1, 10, 7)]).splitlines()
    assert [line for line in lines if line.startswith("eventlog_peak")] == ['eventlog_peak{thing="queue"} 7']
    assert 'eventlog_used{thing="table"} 1' in lines
