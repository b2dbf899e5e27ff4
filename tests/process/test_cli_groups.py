"""Groups on the command line, against a real node."""

from collections.abc import Iterator

import pytest

from tests.process.cli_ends import Shell, running_node


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    with running_node(tmp_path_factory.mktemp("node")) as found:
        yield found


def test_a_group_is_read_committed_described_reset_and_deleted(shell: Shell) -> None:
    rows_of_json = b"".join(b'{"id": "k%d", "n": %d}\n' % (n, n) for n in range(20))
    shell.ok("load", "orders", "-", "--key", "id", "--create", given=rows_of_json)
    first = shell.ok("consume", "orders", "--group", "billing", "--max", "5", "--json").rows
    assert len(first) == 5
    rows = shell.ok("group", "describe", "billing", "--json").rows
    assert len(rows) == 256
    assert set(rows[0]) >= {"group", "cache", "segment", "member", "position", "position_str", "lag_events", "lag_seconds"}
    assert sum(row["lag_events"] for row in rows) == 15
    assert {row["member"] for row in rows} == {None}
    rest = shell.ok("consume", "orders", "--group", "billing", "--json").rows
    assert sorted(row["value"]["n"] for row in first + rest) == list(range(20))
    assert shell.ok("consume", "orders", "--group", "billing", "--json").rows == []
    assert [(row["group"], row["cache"], row["members"]) for row in shell.ok("groups", "list", "--json").rows] == [("billing", "orders", 0)]
    moves = shell.ok("group", "reset", "billing", "--to", "earliest", "--dry-run", "--json").rows
    assert {move["to_id"] for move in moves} == {0}
    assert shell.ok("consume", "orders", "--group", "billing", "--json").rows == []
    shell.ok("group", "reset", "billing", "--to", str(first[-1]["id"]))
    again = shell.ok("consume", "orders", "--group", "billing", "--where", "value.n >= 0", "--json").rows
    assert sorted(row["id"] for row in again) == sorted(row["id"] for row in first + rest if row["id"] > first[-1]["id"])
    shift = ["group", "reset", "billing", "--shift-by", "-1"]
    back = shell.ok(*shift, "--dry-run", "--json").rows
    assert (sum(move["events"] for move in back), {move["events"] for move in back}) == (
        -len({row["segment"] for row in first + rest}),
        {0, -1},
    )
    assert "segments by -" in shell.ok(*shift).err
    assert len(shell.ok("consume", "orders", "--group", "billing", "--json").rows) == -sum(move["events"] for move in back)
    assert "billing" in shell.ok("group", "describe", "billing").out
    assert "deleted group billing" in shell.ok("group", "delete", "billing").err
    missing = shell.run("group", "describe", "billing")
    assert (missing.code, missing.err.startswith("error: GROUP_NOT_FOUND: ")) == (1, True)


def test_a_group_reads_no_further_than_it_is_told(shell: Shell) -> None:
    shell.ok("load", "bounded", "-", "--key", "id", "--create", given=b"".join(b'{"id": "k%d"}\n' % n for n in range(50)))
    ids = sorted(row["id"] for row in shell.ok("consume", "bounded").rows)
    for follow in ([], ["--follow"]):
        name = f"bounded{len(follow)}"
        rows = shell.ok("consume", "bounded", "--group", name, "--until-id", str(ids[9]), *follow).rows
        assert sorted(row["id"] for row in rows) == ids[:10]
        assert sorted(row["id"] for row in shell.ok("consume", "bounded", "--group", name).rows) == ids[10:]


def test_a_group_has_its_own_place(shell: Shell) -> None:
    refused = shell.run("consume", "orders", "--group", "g", "--segments", "1")
    assert refused.code == 2
    assert "--group and --segments exclude each other" in refused.err
    assert shell.run("consume", "orders", "--from-id", "committed").code == 2
