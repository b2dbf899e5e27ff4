"""Pages of `eventlog top`: rates between two of them, lagging members and holding listeners."""

from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from eventlog.client.cluster import NodeInfo
from eventlog.client.reports import SegmentInfo, Status
from eventlog.errors import TimedOut
from eventlog_cli.main import main
from eventlog_cli.top import Observed, ReaderLag, as_row, page, rates


def status(**changed) -> Status:
    facts = {
        "cluster": "c",
        "health": "ok",
        "controller": "n1",
        "metastore": "sqlite",
        "nodes": 2,
        "nodes_live": 2,
        "segments": 2,
        "without_primary": 0,
        "under_replicated": 0,
        "low_watermark": 9,
        "low_watermark_age_ms": 12,
        "held_by": "",
        "rebalance": "idle",
        "advice": (),
    }
    return Status(**{**facts, **changed})


def node(number: int) -> NodeInfo:
    return NodeInfo(
        number=number,
        name=f"n{number}",
        address=f"h:{number}",
        state="live",
        primaries=1,
        segments=2,
        host_label="",
        rack="",
        weight=1,
        gateway=False,
    )


def segment(number: int, *, primary: str, events: int) -> SegmentInfo:
    return SegmentInfo(
        segment=number,
        primary=primary,
        owners=(),
        in_sync=(),
        epoch=1,
        first_id=1,
        last_id=9,
        high_watermark=9,
        events=events,
        bytes=events * 100,
        under_replicated=False,
    )


def sample(seconds: float, *events: int, primaries: tuple[str, ...] = ("n1", "n2"), readers=(), **facts) -> Observed:
    segments = [segment(number, primary=primaries[number], events=count) for number, count in enumerate(events)]
    return Observed(seconds=seconds, status=status(**facts), nodes=[node(1), node(2)], segments=segments, readers=readers)


def test_a_rate_is_what_came_since_the_page_before_by_the_node_that_leads() -> None:
    before, now = sample(10.0, 100, 50), sample(12.0, 300, 50)
    assert rates(now, before) == {"n1": 100.0, "n2": 0.0}
    assert rates(before, None) == {}
    assert as_row(now, before)["written_per_second"] == 100.0
    assert as_row(before, None)["written_per_second"] is None


def test_retention_makes_no_rate_negative_and_a_new_leader_has_the_rate() -> None:
    assert rates(sample(12.0, 10, 70, primaries=("n2", "n2")), sample(10.0, 100, 50)) == {"n2": 10.0}


def test_a_page_names_who_holds_readers_up_who_lags_and_what_to_do_next() -> None:
    late = ReaderLag(kind="group", name="billing", cache="orders", lag_events=7, lag_ms=3_000, remark="nobody reads")
    lines = "\n".join(page(sample(1.0, 1, 1, readers=[late], held_by="segment 3 on n2", advice=("start n3",)), None))
    assert "held by segment 3 on n2" in lines
    assert "billing" in lines
    assert "nobody reads" in lines
    assert lines.endswith("next: start n3")


@pytest.mark.parametrize("advice", [(), ("a", "b")])
def test_a_page_always_ends_with_what_is_next(advice: tuple[str, ...]) -> None:
    assert page(sample(1.0, 1, advice=advice), None)[-1].startswith("next: ")


@pytest.mark.parametrize(("answers", "code"), [("yes", 0), ("no", 3), ("no yes", 0), ("yes no", 3)])
def test_the_exit_code_is_that_of_the_last_page(answers: str, code: int) -> None:
    left = answers.split()

    def told() -> Status:
        if left.pop(0) == "no":
            raise TimedOut(what="status", timeout_ms=1)
        return status()

    @contextmanager
    def connect(*_: str, **__: object) -> Iterator[SimpleNamespace]:
        nothing = SimpleNamespace(list=list)
        admin = SimpleNamespace(nodes=lambda: [node(1)])
        yield SimpleNamespace(status=told, admin=admin, segments=list, groups=nothing, listeners=nothing)

    words = ["top", "--interval", "1ms", "--count", str(len(left)), "--json"]
    found = CliRunner().invoke(main, words, obj=connect)
    assert (found.exit_code, found.stdout.count("\n"), found.stderr) == (code, len(answers.split()), "")
