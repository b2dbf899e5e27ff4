"""What the commands for clusters print, and what they ask for."""

import json
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from eventlog.client.cluster import CopyDigest, ForcedInfo, Move, NodeInfo, RebalanceInfo
from eventlog_cli.admin import command


def node(name, *, state="live", segments=0, number=1):
    return NodeInfo(
        number=number,
        name=name,
        address="h:1",
        state=state,
        primaries=0,
        segments=segments,
        host_label="",
        rack="",
        weight=1,
        gateway=False,
    )


def rebalance(state="idle", *, done=0, total=0, moving=()):
    return RebalanceInfo(
        state=state,
        moves_total=total,
        moves_done=done,
        bytes_total=total * 100,
        bytes_done=done * 100,
        throttle_bytes=0,
        started_ms=1,
        moving=moving,
    )


@dataclass
class Admin:
    """Answers that were given beforehand; of a list the next each time, the last one again and again."""

    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = field(default_factory=list)

    def __getattr__(self, name):
        def ask(*args, **options):
            self.asked.append((name, args, options))
            answer = self.answers.get(name, True)
            if isinstance(answer, list) and answer and isinstance(answer[0], list | RebalanceInfo):
                return answer.pop(0) if len(answer) > 1 else answer[0]
            return answer

        return ask


@dataclass
class Client:
    admin: Admin
    segments_count: int = 4

    def segments(self):
        """Return the segments: the first one has copies at two nodes."""
        owners = [("n0", "n1"), ("n1",), ("n1",), ("n1",)]
        return [SimpleNamespace(segment=segment, owners=own) for segment, own in enumerate(owners)]

    def connect(self, *_, **__):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


def run(admin, *words, code=0):
    found = CliRunner().invoke(command, list(words), obj=Client(admin).connect)
    assert found.exit_code == code, found.output
    return found.output


def test_nodes_are_a_table_or_a_row_each():
    admin = Admin({"nodes": [[node("n1"), node("n2", state="down", segments=3)]]})
    assert run(admin, "nodes").splitlines()[2].split() == ["n2", "h:1", "down", "0", "3"]
    rows = [json.loads(line) for line in run(admin, "nodes", "--json").splitlines()]
    assert rows[1]["name"] == "n2"
    assert rows[1]["state"] == "down"


def test_draining_waits_until_the_node_is_empty():
    admin = Admin({"nodes": [[node("n1", segments=count)] for count in (2, 2, 1, 0)]})
    assert "holds nothing" in run(admin, "drain", "n1")
    assert ("drain", ("n1",), {"cancel": False}) in admin.asked


def test_a_draining_that_is_cancelled_elsewhere_is_waited_for_no_longer():
    nodes = [[node("n1", state=state, segments=2)] for state in ("live", "live", "draining", "live")]
    assert "n1 is not being drained any more, and holds 2 segments" in run(Admin({"nodes": nodes}), "drain", "n1", code=1)


def test_a_node_that_is_named_like_the_number_of_another_is_the_one_that_is_meant():
    nodes = [node("n2", segments=9, number=2), node("2", segments=0)]
    assert "2 holds nothing" in run(Admin({"nodes": [nodes]}), "drain", "2")
    assert "n2 holds nothing" not in run(Admin({"nodes": [nodes]}), "drain", "n2", "--no-wait")


@pytest.mark.parametrize("words", [("drain", "n1"), ("replace", "n1", "n3")])
@pytest.mark.parametrize(("drained", "left", "copies"), [((), "2 nodes are", "2 copies, not 3"), (("n2",), "1 node is", "1 copy, not 3")])
def test_draining_more_than_the_copies_can_spare_warns(drained, left, copies, words):
    nodes = [node(name, state="draining" if name in drained else "live", segments=4) for name in ("n1", "n2", "n3")]
    said = run(Admin({"nodes": nodes}), *words, "--no-wait")
    assert f"warning: {left} left to hold data, so each segment will have {copies}: " in said


def test_draining_one_of_more_nodes_than_there_are_copies_warns_of_nothing():
    nodes = [node(name, segments=3) for name in ("n1", "n2", "n3", "n4")]
    assert "warning" not in run(Admin({"nodes": nodes}), "drain", "n1", "--no-wait")


def test_draining_without_waiting_says_what_is_left():
    admin = Admin({"nodes": [[node("n1", segments=7)]]})
    assert json.loads(run(admin, "drain", "n1", "--no-wait", "--json")) == {"node": "n1", "draining": True, "segments": 7}


@pytest.mark.parametrize("replicas", ["0", "8", "99999999999999999999"])
def test_more_or_fewer_replicas_than_there_may_be_are_no_usage(replicas):
    assert "is not in the range 1<=x<=7" in run(Admin(), "set", "replicas", replicas, code=2)


def test_a_rebalancing_that_is_called_off_while_waited_for_is_a_failure():
    states = [rebalance("running", done=1, total=3), rebalance("cancelled", done=1, total=3)]
    admin = Admin({"rebalance_status": states})
    assert run(admin, "rebalance", "start", "--wait", "--throttle", "1MiB", code=1) == "cancelled: 1 of 3 segments moved\n"
    assert admin.asked[0] == ("start_rebalance", (), {"throttle_bytes": 1 << 20})


def test_an_even_load_is_said():
    admin = Admin({"start_rebalance": False, "plan_rebalance": [], "rebalance_status": [rebalance()]})
    assert run(admin, "rebalance", "start", "--wait") == "load is even: nothing to move\n"
    assert run(admin, "rebalance", "plan") == "load is even: nothing to move\n"


def test_a_plan_names_segments_owners_and_bytes():
    moves = [[Move(segment=3, owners=("n1", "n2"), target=("n1", "n4"), bytes=2_048, copied=0)]]
    admin = Admin({"plan_rebalance": moves})
    assert json.loads(run(admin, "rebalance", "plan", "--json")) == {
        "segment": 3,
        "owners": ["n1", "n2"],
        "target": ["n1", "n4"],
        "bytes": 2048,
    }
    assert run(admin, "rebalance", "plan").splitlines()[-1].startswith("1 segments would move, 1 copies of 2.00 KiB")


@pytest.mark.parametrize(
    ("digests", "states", "code", "said"),
    [((7, 7), (3, 3), 0, "all equal"), ((7, 8), (3, 3), 1, "1 differ"), ((7, 7), (3, 4), 1, "1 differ")],
)
def test_copies_that_differ_are_a_failure(digests, states, code, said):
    copies = [
        CopyDigest(segment=0, node=f"n{at}", events=1, last_id=5, digest=log, entries=1, state_digest=state)
        for at, (log, state) in enumerate(zip(digests, states, strict=True))
    ]
    whole = [CopyDigest(segment=segment, node="n1", events=0, last_id=0, digest=0, entries=0, state_digest=0) for segment in (1, 2, 3)]
    admin = Admin({"compare_copies": [[*copies, *whole]]})
    assert said in run(admin, "rebalance", "verify", code=code)
    rows = [json.loads(line) for line in run(admin, "segments", "--verify", "--json", code=code).splitlines()]
    state_of_first = {"digest": "00000007", "entries": 1, "state_digest": "0000000000000003"}
    assert rows[0] == {"segment": 0, "node": "n0", "events": 1, "last_id": 5, "last_id_str": "5", **state_of_first}


def test_a_copy_that_is_not_reached_is_not_called_equal():
    copies = [CopyDigest(segment=at, node="n1", events=1, last_id=5, digest=7, entries=1, state_digest=3) for at in range(4)]
    said = run(Admin({"compare_copies": [copies]}), "rebalance", "verify", code=1)
    assert "copies 1 of n0" in said
    assert "1 segments had one copy alone" in said
    assert "one copy alone" in run(Admin({"compare_copies": [copies]}), "segments", "--verify", "--json", code=1)


def test_a_segment_that_could_not_be_compared_is_a_failure():
    admin = Admin({"compare_copies": [[]]})
    assert "4 differ" in run(admin, "rebalance", "verify", code=1)


@pytest.mark.parametrize(
    ("words", "segments", "node_name"),
    [(["7"], [7], ""), (["0,3-5", "n2"], [0, 3, 4, 5], "n2"), (["--all-lost"], None, ""), (["--all-lost", "n2"], None, "n2")],
)
def test_segments_to_force_are_a_list_or_all_that_are_lost(words, segments, node_name):
    found = [[ForcedInfo(segment=7, node="n2", last_id=5, upto=9, chosen=True, why_not="")]]
    admin = Admin({"force_primary": found})
    assert "ids in (5, 9] may be lost" in run(admin, "force-primary", *words, "--dry-run")
    assert admin.asked == [("force_primary", (segments,), {"node": node_name, "dry_run": True, "accept_data_loss": False})]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["3", ""], "an argument is empty"),
        (["", "n2"], "an argument is empty"),
        (["--all-lost", ""], "an argument is empty"),
        (["x", "n2"], "Invalid value for 'SEGMENTS': 'x' is not a list of segments"),
    ],
)
def test_what_names_nobody_forces_nobody(words, why):
    admin = Admin({})
    result = CliRunner().invoke(command, ["force-primary", *words, "--accept-data-loss"], obj=Client(admin).connect)
    assert (result.exit_code, why in result.stderr) == (2, True), result.stderr
    assert admin.asked == []


def test_a_longer_log_than_that_of_the_node_to_force_is_named():
    found = [[ForcedInfo(segment=7, node="n3", last_id=5, upto=9, chosen=True, why_not="", longer="n2")]]
    said = run(Admin({"force_primary": found}), "force-primary", "7", "n3", "--dry-run")
    assert said == "segment 7: n3 would lead; ids in (5, 9] may be lost; the log of n2 is longer\n"
    assert json.loads(run(Admin({"force_primary": found}), "force-primary", "7", "n3", "--dry-run", "--json"))["longer"] == "n2"


@pytest.mark.parametrize("words", [[], ["x"], ["3-"], ["--all-lost", "3", "n1"]])
def test_what_names_no_segments_is_a_mistake_in_usage(words):
    admin = Admin()
    run(admin, "force-primary", *words, code=2)
    assert admin.asked == []
