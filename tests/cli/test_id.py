"""`eventlog id`."""

import orjson
import pytest
from click.testing import CliRunner

from eventlog.ids import make_id
from eventlog_cli.main import main

ID = make_id(1_795_168_800_123, 7, 3)


def run(*words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["id", *words])
    return result.exit_code, result.stdout, result.stderr


def test_decode_names_time_sequence_and_node() -> None:
    assert run("decode", str(ID)) == (0, "time 2026-11-20T10:00:00.123Z  sequence 7  node 3\n", "")
    _, stdout, _ = run("decode", str(ID), "--json")
    assert orjson.loads(stdout) == {"id": ID, "id_str": str(ID), "time": "2026-11-20T10:00:00.123Z", "sequence": 7, "node": 3}


def test_at_is_the_last_id_before_the_moment() -> None:
    assert run("at", "2026-11-20T10:00:00.123Z") == (0, f"{make_id(1_795_168_800_123, 0, 0) - 1}\n", "")
    assert orjson.loads(run("at", "2019-01-01", "--json")[1]) == {"id": 0, "id_str": "0"}


@pytest.mark.parametrize("words", [["decode", "x"], ["decode", "-1"], ["decode", str(1 << 63)], ["at", "noon"], ["decode"]])
def test_what_is_no_id_or_time_is_a_usage_error(words: list[str]) -> None:
    code, stdout, stderr = run(*words)
    assert (code, stdout) == (2, "")
    assert stderr.startswith("error: USAGE: ")
    assert stderr.count("\n") == 1
