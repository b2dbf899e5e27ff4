"""`eventlog consume`, its reading given: what it asks for, what it prints, what it remembers.

Also as a member of a group: what is committed, and what becomes of a commit that fails. And noticing, on real pipes, that nobody reads
stdout.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, Self

import numpy as np
import orjson
import pytest
from click.testing import CliRunner

from eventlog.client.reports import LogEnds
from eventlog.errors import EventsTrimmed, InvalidArgument, NotPrimary, StaleMember, TimedOut
from eventlog.events import Event
from eventlog.ids import id_before, time_of
from eventlog.limits import CLOCK_AHEAD_MS_MAX
from eventlog.read import token
from eventlog.read.position import Position, SegmentPositions
from eventlog_cli.consume import Printer, StdoutWatch, outside
from eventlog_cli.main import main
from eventlog_cli.render import renderer
from tests.cli.fakes import Batch, Cache, Client, Source, event, token_at

BATCHES = [Batch([event(10), event(11)], 12), Batch([event(20)], 25)]


def run(cache: Any, *words: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, ["consume", "c", *words], obj=Client(cache).connect)
    return result.exit_code, result.stdout, result.stderr


def printed_ids(stdout: str) -> list[int]:
    return [orjson.loads(line)["id"] for line in stdout.splitlines()]


def test_events_are_printed_from_earliest_to_the_end_as_json() -> None:
    cache = Cache([*BATCHES])
    code, stdout, stderr = run(cache)
    assert (code, stderr) == (0, "")
    assert printed_ids(stdout) == [10, 11, 20]
    assert cache.asked["from_id"] == "earliest"
    assert cache.asked["follow"] is False


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["--from-id", "7"], {"from_id": 7}),
        (["--from-id", "earliest"], {"from_id": "earliest"}),
        (["--from-id", "latest"], {"from_id": 9, "follow": True}),
        (["--from-id", token_at(5)], {"from_id": token_at(5)}),
        (["--from-time", "2026-11-20T10:00:00Z"], {"from_id": id_before(1_795_168_800_000)}),
        (["--until-id", "9"], {"until_id": 9}),
        (["--tail", "3"], {"from_id": 6, "until_id": 9, "follow": False}),
        (["--tail", "3", "--follow"], {"from_id": 6, "until_id": None, "follow": True}),
        (["--tail", "3", "--segments", "1,2", "--where", "value.n > 1"], {"from_id": 8, "segments": [1, 2], "where": "value.n > 1"}),
        (["--follow", "--poll-interval", "2s"], {"follow": True, "poll_interval_ms": 2_000}),
        (["--segments", "0,3-5"], {"segments": [0, 3, 4, 5]}),
        (["--on-trimmed", "earliest"], {"on_trimmed": "earliest"}),
        (["--where", "value.n > 1", "--continuous"], {"where": "value.n > 1", "continuous": True}),
        ([], {"continuous": False}),
    ],
)
def test_options_are_what_the_client_is_asked(words: list[str], asked: dict[str, object]) -> None:
    cache = Cache()
    assert run(cache, *words)[0] == 0
    assert {name: cache.asked[name] for name in asked} == asked


def test_max_ends_in_the_middle_of_a_batch() -> None:
    assert printed_ids(run(Cache([*BATCHES]), "--max", "1")[1]) == [10]
    assert printed_ids(run(Cache([*BATCHES]), "--max", "2")[1]) == [10, 11]
    assert printed_ids(run(Cache([*BATCHES]), "--max", "3")[1]) == [10, 11, 20]


def test_the_position_file_follows_what_was_printed(tmp_path: Path) -> None:
    file = tmp_path / "position"
    run(Cache([*BATCHES]), "--position-file", str(file))
    assert file.read_text() == token_at(25) + "\n"
    cache = Cache([*BATCHES])
    run(cache, "--position-file", str(file), "--max", "1", "--from-id", "3")
    assert cache.asked["from_id"] == token_at(25)
    assert file.read_text() == token_at(10) + "\n"
    assert [path.name for path in tmp_path.iterdir()] == ["position"]


def test_without_a_position_file_yet_the_option_says_where_to_begin(tmp_path: Path) -> None:
    cache = Cache()
    run(cache, "--position-file", str(tmp_path / "position"), "--from-id", "3")
    assert cache.asked["from_id"] == 3


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff", b"garbage", b"9" * 19, b"-5"])
def test_a_position_file_that_holds_something_else_is_refused_and_kept(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "position"
    file.write_bytes(content)
    code, stdout, stderr = run(Cache([*BATCHES]), "--position-file", str(file))
    assert (code, stdout) == (1, "")
    assert stderr == f"error: INVALID_ARGUMENT: {file} holds no position; remove it to begin anew\n"
    assert file.read_bytes() == content


def test_a_position_file_that_could_not_be_written_is_refused_before_anything_is_printed(tmp_path: Path) -> None:
    code, stdout, stderr = run(Cache([*BATCHES]), "--position-file", str(tmp_path / "none" / "position"))
    assert (code, stdout) == (1, "")
    assert stderr.startswith("error: INVALID_ARGUMENT: ")


def test_an_interrupt_says_where_to_resume() -> None:
    code, stdout, stderr = run(Cache([BATCHES[0], KeyboardInterrupt()]), "--follow")
    assert code == 130
    assert printed_ids(stdout) == [10, 11]
    assert stderr == "interrupted; resume with: --from-id 12\n"


def test_an_interrupt_before_anything_was_printed_resumes_where_it_began(tmp_path: Path) -> None:
    assert run(Cache([KeyboardInterrupt()]), "--from-id", "7")[2] == "interrupted; resume with: --from-id 7\n"
    for words in ([], ["--listener", "l"], ["--state-first"]):
        assert run(Cache([KeyboardInterrupt()]), *words)[2] == "interrupted before there was anything; begin anew with the same command\n"
    file = str(tmp_path / "p")
    assert run(Cache([KeyboardInterrupt()]), "--position-file", file)[2] == f"interrupted; resume with: --position-file {file}\n"


def test_what_began_at_the_end_resumes_where_that_was(tmp_path: Path) -> None:
    file = tmp_path / "position"
    assert run(Cache([KeyboardInterrupt()], last_id=12), "--from-id", "latest")[2] == "interrupted; resume with: --from-id 12\n"
    run(Cache([KeyboardInterrupt()], last_id=12), "--from-id", "latest", "--position-file", str(file))
    cache = Cache(last_id=30)
    run(cache, "--from-id", "latest", "--position-file", str(file))
    assert cache.asked["from_id"] == "12"


def test_what_began_with_the_last_events_resumes_where_that_was(tmp_path: Path) -> None:
    file = str(tmp_path / "position")
    assert run(Cache([KeyboardInterrupt()]), "--tail", "3")[2] == "interrupted; resume with: --from-id 6\n"
    assert run(Cache([KeyboardInterrupt()], last_id=3), "--tail", "3")[2] == "interrupted; resume with: --from-id 0\n"
    run(Cache([KeyboardInterrupt()]), "--tail", "3", "--position-file", file)
    cache = Cache(last_id=30)
    run(cache, "--tail", "3", "--position-file", file)
    assert (cache.asked["from_id"], cache.tail_id) == ("6", None)


@pytest.mark.parametrize(("words", "ends"), [(["--tail", "3"], True), (["--tail", "3", "--follow"], False)])
def test_the_last_events_of_a_read_that_ends_are_counted_once_all_are_there(words: list[str], ends: bool) -> None:
    cache = Cache()
    run(cache, *words)
    assert cache.was_whole is ends


@pytest.mark.parametrize(
    "words",
    [
        ["--from-id", "0"],
        ["--from-id", "latest"],
        ["--from-time", "1h"],
        ["--until-id", "0"],
        ["--group", "g"],
        ["--listener", "l"],
        ["--state-first"],
    ],
)
def test_a_tail_excludes_by_name_what_begins_or_ends_elsewhere(words: list[str]) -> None:
    code, stdout, stderr = run(Cache(), "--tail", "3", *words)
    assert (code, stdout) == (2, "")
    assert stderr.startswith(f"error: USAGE: --tail and {words[0]} exclude each other")


def test_a_beginning_outside_of_the_log_is_said() -> None:
    cache = Cache([Batch([event(5)], 5)], first_id=5)
    before = "note: id 3 of 2020-01-01T00:00:00.000Z lies before the first event kept, id 5 of 2020-01-01T00:00:00.000Z\n"
    assert run(cache, "--from-id", "3")[::2] == (0, before)
    assert run(cache, "--from-id", "5")[::2] == (0, "")
    assert run(cache, "--from-id", "9")[::2] == (0, "")
    ahead = "lies ahead of the log's end, id 9 of 2020-01-01T00:00:00.000Z: nothing is behind it yet\n"
    assert run(cache, "--from-id", "10", "--follow")[::2] == (0, f"note: id 10 of 2020-01-01T00:00:00.000Z {ahead}")
    assert run(cache, "--from-time", "2026-11-20T10:00:00Z")[::2] == (0, f"note: the time asked for {ahead}")
    assert run(cache, "--from-time", "2019-11-20T10:00:00Z")[::2] == (0, "")


def test_what_retention_has_passed_is_said_once() -> None:
    cache = Cache([EventsTrimmed(first_id=5, lost=3)], first_id=5, trimmed_id=4)
    code, _, stderr = run(cache, "--from-id", "3")
    assert (code, stderr.count("\n")) == (1, 1)
    assert stderr.startswith("error: EVENTS_TRIMMED: ")


def test_an_id_of_the_future_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    cache, file = Cache(), tmp_path / "position"
    code, stdout, stderr = run(cache, "--from-id", str((1 << 63) - 1), "--follow", "--position-file", str(file))
    assert (code, stdout, cache.asked, file.exists()) == (1, "", {}, False)
    assert stderr.startswith(f"error: INVALID_ARGUMENT: id {(1 << 63) - 1} of 2089-09-06T15:47:35.551Z is of the future: ")
    assert stderr.count("\n") == 1


def test_a_position_kept_in_a_file_is_no_beginning_to_talk_about(tmp_path: Path) -> None:
    file = tmp_path / "position"
    file.write_text("3\n")
    assert run(Cache(first_id=5), "--from-id", "3", "--position-file", str(file))[::2] == (0, "")


def test_where_the_log_ends_nobody_may_know_and_the_reader_waits() -> None:
    class Unknown(Cache):
        def log_ends(self, **_: Any) -> Any:
            raise NotPrimary(segment=3)

    assert run(Unknown(), "--from-id", "7", "--follow")[::2] == (0, "")


def test_an_interrupt_while_a_batch_is_printed_waits_for_it() -> None:
    render = renderer("json")

    def interrupted(events: object) -> bytes:
        signal.raise_signal(signal.SIGINT)
        return render(events)  # type: ignore[arg-type]  # as given

    printer = Printer(interrupted, file=None, events_max=None)
    with pytest.raises(KeyboardInterrupt):
        printer.run(iter(BATCHES))  # type: ignore[arg-type]  # fakes
    assert printer.last_id == 12
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_second_interrupt_does_not_wait() -> None:
    def interrupted(_events: object) -> bytes:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("the second one ends it here")

    printer = Printer(interrupted, file=None, events_max=None)
    with pytest.raises(KeyboardInterrupt):
        printer.run(iter(BATCHES))  # type: ignore[arg-type]  # fakes
    assert printer.last_id is None


def test_trimmed_history_is_an_error_with_the_first_id_kept() -> None:
    code, _, stderr = run(Cache([EventsTrimmed(first_id=9, lost=3)]))
    assert code == 1
    assert stderr.startswith("error: EVENTS_TRIMMED: retention removed about 3 events")


@pytest.mark.parametrize(
    "words",
    [
        ["--from-id", "1", "--from-time", "1h"],
        ["--json", "--format", "csv"],
        ["--from-id", str(1 << 63)],
        ["--from-id", "AbC_token"],
        ["--from-id", "-5"],
        ["--max", "0"],
        ["--tail", "0"],
        ["--tail", "-3"],
        ["--segments", "x"],
        ["--param", "a=1"],
        ["--filter", "f", "--param", "a=1", "--param", "a=2"],
        ["--poll-interval", "5s"],
        ["--follow", "--poll-interval", "0"],
        ["--timeout", "0"],
        ["--where", " "],
        ["--select", "value.a,"],
        ["--group", "g", "--on-trimmed", "resync"],
        ["--listener", "l", "--where", "value.a = 1"],
        ["--listener", "l", "--group", "g"],
    ],
)
def test_options_at_odds_are_a_usage_error(words: list[str]) -> None:
    code, stdout, stderr = run(Cache(), *words)
    assert (code, stdout) == (2, "")
    assert stderr.startswith("error: USAGE: ")


def test_other_formats() -> None:
    assert run(Cache([*BATCHES]), "--format", "raw")[1] == '{"n":10}\n{"n":11}\n{"n":20}\n'
    assert run(Cache([*BATCHES]), "--format", "csv")[1].count("\n") == 4


def test_an_interrupt_inside_the_state_says_its_token_and_no_version() -> None:
    class InState(Source):
        def position_at(self, event_id: int) -> str:
            inside = SegmentPositions(of=np.array([3]), ids=np.array([0]), offsets=np.array([-1]), epochs=np.array([0]))
            position = Position(cluster="x", cache_id=1, segments=8, at=inside, unread=(3,))
            return token.to_text(position)

    state = Batch([event(10), event(7)], last_id=7, source=InState())
    cache = Cache([state, KeyboardInterrupt()])
    _, _, stderr = run(cache, "--state-first", "--follow")
    assert cache.asked["state_first"] is True
    assert stderr == f"interrupted; resume with: --from-id {InState().position_at(7)}\n"


@pytest.mark.parametrize("more", [("--from-id", "5"), ("--from-id", "latest"), ("--from-time", "1h"), ("--group", "g")])
def test_the_state_comes_before_everything_and_begins_nowhere_else(more: tuple[str, ...]) -> None:
    code, _, stderr = run(Cache(), "--state-first", *more)
    assert code == 2
    assert "--state-first" in stderr


NOW_MS = 1_795_168_800_000
END = id_before(NOW_MS - 1_000)
ENDS = LogEnds(first_id=1_000, last_id=END, events=3)


def said(start: int, *, now_ms: int = NOW_MS, ends: LogEnds = ENDS, is_time: bool = False) -> str | None:
    return outside(start, ends, is_time=is_time, now_ms=now_ms)


def test_an_id_ahead_of_the_end_is_said_until_no_clock_can_have_given_it() -> None:
    last = id_before(NOW_MS + CLOCK_AHEAD_MS_MAX + 1)
    assert said(END) is None
    assert "lies ahead of the log's end" in (said(END + 1) or "")
    assert "lies ahead of the log's end" in (said(last) or "")
    with pytest.raises(InvalidArgument, match="is of the future"):
        said(last + 1)


def test_a_clock_that_is_late_refuses_nothing_that_the_nodes_clocks_have_given() -> None:
    late = 1_600_000_000_000
    last = id_before(time_of(END) + CLOCK_AHEAD_MS_MAX + 1)
    assert said(last, now_ms=late) is not None
    with pytest.raises(InvalidArgument):
        said(last + 1, now_ms=late)


def test_a_time_may_lie_in_the_future_and_before_the_first_event() -> None:
    assert (said(END << 1, is_time=True) or "").startswith("the time asked for lies ahead of the log's end")
    assert said(3, is_time=True) is None


def test_nothing_lies_before_a_log_without_events() -> None:
    assert said(3, ends=LogEnds(first_id=None, last_id=END, events=0)) is None
    assert "lies before the first event kept, id 1000 of 2020-01-01T00:00:00.000Z" in (said(999) or "")
    assert said(1_000) is None


GROUP_BATCHES = [Batch([event(10), event(11)], 12), Batch([event(20)], 25)]
LATE = TimedOut(what="commit_group", timeout_ms=1)


class Group:
    """A cache and its group, some of whose commits fail."""

    last_id = 9

    def __init__(self, *fates: BaseException | None) -> None:
        self.fates = list(fates)
        self.committed: list[Event | None] = []
        self.joined_with: dict[str, Any] = {}

    def log_ends(self, *, whole: bool = False) -> Self:
        self.was_whole = whole
        return self

    def consumer(self, group: str, **options: Any) -> Self:
        self.joined_with = {"group": group} | options
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def batches(self, max_events: int, *, until_id: int | None) -> Iterator[Batch]:
        assert max_events >= 0
        assert until_id is None or until_id > 0
        yield from GROUP_BATCHES

    def commit(self, done: Event | None = None) -> None:
        fate = self.fates.pop(0) if self.fates else None
        if fate is not None:
            raise fate
        self.committed.append(done)


@pytest.mark.parametrize("fate", [LATE, StaleMember(group="g", member="m", why="its session is over")])
def test_a_follower_goes_on_where_a_commit_fails_for_now(fate: BaseException) -> None:
    group = Group(fate)
    code, stdout, _ = run(group, "--group", "g", "--follow")
    assert (code, printed_ids(stdout)) == (0, [10, 11, 20])
    assert group.committed == [None, None], "the next commit makes up for it; the last one is on leaving"
    assert group.joined_with["auto_commit"] is True, "or, where nothing follows, the consumer by itself"


@pytest.mark.parametrize("words", [(), ("--follow", "--max", "3")])
def test_what_has_an_end_fails_with_its_commit(words: tuple[str, ...]) -> None:
    group = Group(LATE)
    code, stdout, _ = run(group, "--group", "g", *words)
    assert (code, printed_ids(stdout)) == (3, [10, 11])
    assert group.joined_with["auto_commit"] is False


def test_of_a_batch_that_is_printed_in_part_this_part_is_committed() -> None:
    group = Group()
    code, stdout, _ = run(group, "--group", "g", "--max", "1")
    assert (code, printed_ids(stdout)) == (0, [10])
    assert [done.id for done in group.committed if done is not None] == [10]
    assert group.was_whole, "a read that ends has all that there was"


def test_an_id_of_the_future_is_no_beginning_of_a_group() -> None:
    group = Group()
    code, stdout, stderr = run(group, "--group", "g", "--from-id", str((1 << 63) - 1))
    assert (code, stdout, group.joined_with) == (1, "", {})
    assert " is of the future: " in stderr


SECONDS_MAX = 60


@contextmanager
def printing_to_a_pipe() -> Iterator[int]:
    """Yield the reading end."""
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as stdout, redirect_stdout(stdout):
        yield reading


def test_a_reader_that_closes_its_end_is_told_of() -> None:
    gone = threading.Event()
    with printing_to_a_pipe() as reading, StdoutWatch(gone.set):
        assert not gone.is_set()
        os.close(reading)
        assert gone.wait(SECONDS_MAX)


def test_a_watch_that_was_left_tells_nothing_and_leaves_no_thread() -> None:
    gone, threads = threading.Event(), set(threading.enumerate())
    with printing_to_a_pipe() as reading:
        with StdoutWatch(gone.set):
            assert len(set(threading.enumerate()) - threads) == 1
        assert set(threading.enumerate()) <= threads
        os.close(reading)
    assert not gone.is_set()


def test_a_file_is_not_watched(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as stdout, redirect_stdout(stdout):
        threads = set(threading.enumerate())
        with StdoutWatch(lambda: None):
            assert set(threading.enumerate()) <= threads
