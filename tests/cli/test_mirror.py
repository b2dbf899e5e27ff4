"""What of a mirror cannot be is refused before anybody is asked, with the way out; and what is listed."""

from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from eventlog.client.mirrors import MirrorInfo, MirrorStatus, mirror_info
from eventlog.errors import MirrorNotFound
from eventlog.wire import eventlog_pb2 as pb
from eventlog_cli.main import main
from eventlog_cli.mirror import ALTERABLE, FIXED, add, pause, shards_of_all


@pytest.mark.parametrize("option", FIXED)
def test_what_stays_is_refused_with_the_way_out(option: str) -> None:
    found = CliRunner().invoke(main, ["mirror", "alter", "orders", option, "x"])
    assert found.exit_code == 2
    assert f"{option} of a mirror stays as it was added, since {FIXED[option]}" in " ".join(found.output.split())


def test_every_option_of_add_is_altered_or_says_why_not() -> None:
    def options(command: click.Command) -> set[str]:
        return {option.opts[0] for option in command.params if isinstance(option, click.Option)}

    of_adding_alone = {"--name", "--dry-run", "--tombstones"}
    assert options(add) - options(pause) - of_adding_alone == set(FIXED) | set(ALTERABLE)


def test_nothing_to_alter_is_said_to_be() -> None:
    found = CliRunner().invoke(main, ["mirror", "alter", "orders"])
    assert found.exit_code == 2
    assert "say what to alter: --interval, --hold, --on-too-large" in found.output


@pytest.mark.parametrize(
    "option", ["--kafka", "--name", "--topic", "--prefix", "--key-field", "--registry", "--schema", "--where", "--select"]
)
def test_what_is_empty_is_not_taken_for_what_is_left_out(option: str) -> None:
    found = CliRunner().invoke(main, ["mirror", "add", "orders", "--kafka", "127.0.0.1:9", option, ""])
    assert found.exit_code == 2
    assert f"{option} is empty: leave it out, or give one" in found.output


@pytest.mark.parametrize(
    ("given", "why"), [("none.avsc", "none.avsc is no file"), ("a/b", "a/b is no file"), ("bytes", "bytes is not UTF-8")]
)
def test_a_schema_that_is_no_text_is_refused_by_its_name(given: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("bytes").write_bytes(b"\x7fELF\xd0")
    found = CliRunner().invoke(main, ["mirror", "add", "orders", "--kafka", "127.0.0.1:9", "--schema", given])
    assert found.exit_code == 2
    assert f"Invalid value for --schema: {why}" in found.output


@dataclass
class Listed:
    """A cluster with two mirrors, of which one is removed behind the list."""

    gone: str

    def list(self) -> list[MirrorInfo]:
        return [mirror_info(pb.Mirror(name=name, state="running")) for name in ("first", "second")]

    def status(self, name: str) -> MirrorStatus:
        if name == self.gone:
            raise MirrorNotFound(mirror=name)
        return MirrorStatus()


@pytest.mark.parametrize(("gone", "left"), [("first", "second"), ("second", "first")])
def test_one_that_is_removed_while_all_are_listed_is_left_out(gone: str, left: str) -> None:
    assert [one.name for one, _ in shards_of_all(Listed(gone))] == [left]
