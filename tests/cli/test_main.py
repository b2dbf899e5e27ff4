"""The command itself: its table, options anywhere on the line, ends of every kind."""

import fcntl
import os
import re
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from eventlog.errors import CacheNotFound, TimedOut
from eventlog_cli.conventions import SERVER_DEFAULT, common_options, settings
from eventlog_cli.lazy import EXAMPLES
from eventlog_cli.main import COMMANDS, exit_code, main


def run(*words: str, **environment: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(main, words, env=environment)
    return result.exit_code, result.stdout, result.stderr


def test_help_imports_neither_numpy_nor_pyarrow_nor_asyncio() -> None:
    code = (
        "import sys\nfrom eventlog_cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'numpy', 'pyarrow', 'asyncio', 'msgspec', 'eventlog.client'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.endswith("\n[]\n")
    assert "Watch the main job" in result.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help_and_takes_the_common_options(name: str) -> None:
    code, stdout, stderr = run(name, "--help")
    assert (code, stderr) == (0, "")
    for option in ("--server", "--json", "--timeout"):
        assert option in stdout


def test_synonyms_are_hidden_and_lead_to_the_command_shown() -> None:
    _, stdout, _ = run("--help")
    assert " delete" not in stdout
    assert run("caches", "--help")[1].splitlines()[2:] == run("cache", "--help")[1].splitlines()[2:]


def test_an_unknown_command_is_a_usage_error_in_one_line() -> None:
    code, stdout, stderr = run("fly")
    assert (code, stdout) == (2, "")
    assert stderr.startswith("error: USAGE: No such command 'fly'")
    assert stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["status"], "eventlog mirror status or eventlog admin status or eventlog admin rebalance status"),
        (["consum"], "eventlog consume"),
        (["topics"], "eventlog cache list"),
        (["ls"], "eventlog cache list"),
        (["topcs"], "eventlog cache list"),
        (["produc"], "eventlog put"),
        (["cache", "pt"], "eventlog put"),
        (["group", "topics"], "eventlog cache list"),
        (["list"], "eventlog cache list or eventlog filter list or eventlog group list"),
        (["admin", "segmnts"], "eventlog admin segments"),
        (["admin", "rebalance", "strat"], "eventlog admin rebalance start"),
        (["id", "decod"], "eventlog id decode"),
    ],
)
def test_a_word_that_is_no_command_is_answered_with_what_may_have_been_meant(words: list[str], meant: str) -> None:
    code, _, stderr = run(*words)
    assert code == 2
    assert f"Did you mean: {meant}?" in stderr


def every_command(group: click.Group, ctx: click.Context, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(ctx):
        found = group.get_command(ctx, name)
        assert found is not None
        yield f"{path}{name}", found
        if isinstance(found, click.Group):
            yield from every_command(found, ctx, f"{path}{name} ")


def test_every_command_shows_examples_and_there_are_none_of_others() -> None:
    found = dict(every_command(main, click.Context(main)))
    assert {path for path, command in found.items() if "Examples:" not in (command.epilog or "")} == set()
    assert set(EXAMPLES) - set(found) == set()


def test_the_help_of_a_command_names_its_arguments_as_its_usage_does() -> None:
    told = set()
    for path, command in every_command(main, click.Context(main)):
        ctx = click.Context(command)
        shown = " ".join(command.collect_usage_pieces(ctx))
        for argument in (
            param for param in command.params if isinstance(param, click.Argument) and not isinstance(param.type, click.Choice)
        ):
            name = str(argument.name).upper()
            if name not in re.findall(r"[A-Z_]+", shown) and re.search(rf"\b{name}\b", command.help or ""):
                told.add(f"{path}: {name}")
    assert told == set()


def test_no_limit_of_retention_promises_to_be_the_most_that_stays() -> None:
    found = [
        option.help or ""
        for _, command in every_command(main, click.Context(main))
        for option in command.params
        if isinstance(option, click.Option) and {"--retain-events", "--retain-bytes"} & set(option.opts)
    ]
    assert len(found) == 6
    assert [text for text in found if "at least" not in text or "whole stored values" not in text] == []


@pytest.mark.parametrize("path", EXAMPLES)
def test_the_examples_of_a_command_are_what_it_takes(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("orders.jsonl", "payment.avsc", "order.json", "pairs.txt"):
        Path(name).touch()
    assert any(f"eventlog {path}" in line for line in EXAMPLES[path])
    substituted = re.compile(r"\$\(([^)]*)\)")
    for line in EXAMPLES[path]:
        typed = line.partition("     ")[0]
        commands = [*substituted.findall(typed), *re.findall(r"eventlog (?:'[^']*'|\"[^\"]*\"|[^|<>])*", substituted.sub("1", typed))]
        assert commands, line
        for command in commands:
            parse(shlex.split(command)[1:])


def parse(words: list[str]) -> None:
    """Have click read a command line without running anything."""
    group, ctx = main, click.Context(main, info_name="eventlog")
    while True:
        name, command, words = group.resolve_command(ctx, words)
        assert command is not None
        if not isinstance(command, click.Group):
            command.make_context(name, list(words), parent=ctx)
            return
        ctx, group = click.Context(command, info_name=name, parent=ctx), command


def test_without_a_command_the_help_is_printed_and_the_exit_code_is_that_of_wrong_usage() -> None:
    code, _, stderr = run()
    assert code == 2
    assert "Usage: eventlog" in stderr


def test_what_is_no_number_is_not_called_an_integer_range() -> None:
    for words in (["cache", "create", "c", "--retain-events", "x"], ["admin", "set", "replicas", "x"], ["demo", "--nodes", "x"]):
        code, _, stderr = run(*words)
        assert (code, "'x' is not a valid integer;" in stderr) == (2, True), stderr


def test_the_version_is_printed() -> None:
    code, stdout, _ = run("--version")
    assert code == 0
    assert stdout.startswith("eventlog ")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script_for_the_shell(shell: str) -> None:
    code, stdout, _ = run("completion", shell)
    assert code == 0
    assert f"_EVENTLOG_COMPLETE={shell}_complete" in stdout


def test_completion_knows_commands_and_options() -> None:
    environment = {"_EVENTLOG_COMPLETE": "bash_complete", "COMP_WORDS": "eventlog cons", "COMP_CWORD": "1"}
    assert run(**environment)[1].split() == ["plain,consume"]
    environment = {"_EVENTLOG_COMPLETE": "bash_complete", "COMP_WORDS": "eventlog id decode --js", "COMP_CWORD": "3"}
    assert run(**environment)[1].split() == ["plain,--json"]


@click.group()
@common_options
def group() -> None:
    pass


@group.command()
@common_options
def show() -> None:
    chosen = settings()
    click.echo(f"{' '.join(chosen.addresses)} {chosen.is_json} {chosen.timeout_ms}")


@pytest.mark.parametrize(
    ("words", "environment", "expected"),
    [
        (["show"], None, f"{SERVER_DEFAULT} False 10000"),
        (["show"], "a:1 b:2", "a:1 b:2 False 10000"),
        (["show"], "a:1,b:2", "a:1 b:2 False 10000"),
        (["show", "--server", "c:3", "--server", "d:4"], "a:1", "c:3 d:4 False 10000"),
        (["show", "--server", "c:3,d:4"], "a:1", "c:3 d:4 False 10000"),
        (["--server", "c:3", "--json", "--timeout", "2s", "show"], None, "c:3 True 2000"),
        (["--server", "c:3", "show", "--server", "d:4"], None, "d:4 False 10000"),
    ],
)
def test_common_options_count_wherever_they_stand(words: list[str], environment: str | None, expected: str) -> None:
    result = CliRunner().invoke(group, words, env={"EVENTLOG_SERVER": environment})
    assert result.output.strip() == expected


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (CacheNotFound(cache="c"), 1, "error: CACHE_NOT_FOUND: there is no cache 'c'; create it with: eventlog cache create c"),
        (TimedOut(what="get", timeout_ms=5), 3, "error: TIMEOUT: no answer to get within 5 ms; try again"),
        (FileNotFoundError(2, "No such file or directory", "x.csv"), 1, "error: IO_ERROR: x.csv: No such file or directory"),
        (click.UsageError("too\nmany words."), 2, "error: USAGE: too many words; see: eventlog --help"),
        (UnicodeEncodeError("utf-8", "b\udcff", 1, 2, "surrogates not allowed"), 2, "error: USAGE: 'b\\udcff' is not UTF-8"),
    ],
)
def test_an_error_is_one_line_and_its_exit_code(error: Exception, code: int, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error

    assert exit_code(fail) == code
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", line + "\n")


def test_an_interrupt_ends_with_130() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    assert exit_code(interrupt) == 130


INTERRUPTED = "import os, signal\ndef interrupt(): os.kill(os.getpid(), signal.SIGINT)\n"
MOMENTS = {
    "imports": """
import sys
class Finder:
    def find_spec(self, name, path, target=None):
        if name == "click":
            interrupt()
sys.meta_path.insert(0, Finder())
""",
    "the command": "import click\nclick.Group.invoke = lambda *_: interrupt()",
    "the end": "import atexit\natexit.register(interrupt)",
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupt_at_any_moment_ends_quietly_with_130(moment: str) -> None:
    program = f"{INTERRUPTED}{MOMENTS[moment]}\nfrom eventlog_cli.__main__ import run\nrun()"
    done = subprocess.run([sys.executable, "-c", program, "id", "decode", "1"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "")


def test_an_interrupt_that_was_to_be_ignored_is() -> None:
    program = (
        f"{INTERRUPTED}signal.signal(signal.SIGINT, signal.SIG_IGN)\n{MOMENTS['imports']}\nfrom eventlog_cli.__main__ import run\nrun()"
    )
    done = subprocess.run([sys.executable, "-c", program, "id", "decode", "1"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("words", [["id", "decode", "1"], ["id", "--help"]])
def test_an_output_without_room_is_an_error_in_one_line(words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([sys.executable, "-m", "eventlog_cli", *words], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "error: IO_ERROR: input or output: No space left on device\n")


def test_a_pipe_that_nobody_reads_ends_with_0_and_silence() -> None:
    program = "from eventlog_cli.main import main\nmain(['--help'])"
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.close()
    _, stderr = child.communicate()
    assert (child.returncode, stderr) == (0, b"")


def unread(program: str) -> tuple[int | None, bytes]:
    """Return how a program ends whose output nobody reads, and what it says of that."""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert child.stdout is not None
    child.stdout.close()
    _, stderr = child.communicate()
    return child.returncode, stderr


@pytest.mark.parametrize(
    ("answers", "nbytes", "code", "told"),
    [(True, 10, 1, 1), (True, 10, 0, 0), (False, 10, 3, 3), (True, 1_000_000, 1, 141), (False, 1_000_000, 0, 0)],
)
def test_where_nobody_reads_the_end_an_exit_code_that_is_the_answer_is_not_0(answers: bool, nbytes: int, code: int, told: int) -> None:
    program = f"""
import click
from eventlog_cli.conventions import answers_by_exit_code
from eventlog_cli.main import main
from eventlog_cli.output import print_text
def invoke(*_):
    if {answers}:
        answers_by_exit_code()
    print_text("x" * {nbytes})
    raise click.exceptions.Exit({code})
click.Group.invoke = invoke
main(["id"])
"""
    assert unread(program) == (told, b"")


@pytest.mark.parametrize(
    "words",
    [
        *("admin status --check", "admin status --wait 1s", "admin check", "admin rebalance verify", "admin rebalance start --wait"),
        *("mirror status m", "mirror verify m", "pipeline audit c --archive a"),
    ],
)
def test_commands_that_answer_by_their_exit_code_say_so(words: str) -> None:
    program = f"""
from eventlog_cli.main import main
def connect(*_, **__):
    raise BrokenPipeError
main({words.split()}, obj=connect)
"""
    assert unread(program) == (141, b"")


def test_what_is_printed_to_a_closed_stdout_goes_nowhere() -> None:
    program = "import os, sys\nfrom eventlog_cli.main import main\ntry:\n    main(['--version'])\nfinally:\n    os.fstat(1)"
    line = f'"{sys.executable}" -c "$PROGRAM" >&-'
    done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, env=os.environ | {"PROGRAM": program}, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("words", ["put c k -", "load c - --key k"])
def test_a_closed_stdin_is_an_error_and_not_an_empty_one(words: str) -> None:
    line = f'"{sys.executable}" -m eventlog_cli {words} <&-'
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "error: IO_ERROR: stdin: Bad file descriptor\n")


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_nothing_is_lost_by_a_process_that_is_stopped_while_it_waits_for_its_reader(unbuffered: str) -> None:
    program = """
import click
from eventlog_cli.main import main
from eventlog_cli.output import print_text
click.Group.invoke = lambda *_: print_text("x" * 1_000_000)
main(["id"])
"""
    child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": unbuffered})
    assert child.stdout is not None
    capacity = fcntl.fcntl(child.stdout, fcntl.F_GETPIPE_SZ)
    while waiting(child.stdout.fileno()) < capacity:
        time.sleep(0.01)  # nothing else tells
    child.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)
    child.send_signal(signal.SIGCONT)
    os.waitid(os.P_PID, child.pid, os.WCONTINUED)
    with child.stdout as out:
        assert len(out.read()) == 1_000_001
    assert child.wait() == 0


def waiting(pipe: int) -> int:
    """Return how many bytes are in a pipe."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))[0])
