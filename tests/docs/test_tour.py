"""docs/tour.md, run as it is written: every command and every program, against the nodes that its first command starts.

What follows a block as `text` is what it prints, up to what varies from run to run (see `pages.pattern_of`). What may differ are
addresses: where another program has the default port, the demo takes a free one, and so does a broker. Where no broker can be had,
the block of the mirror is left out and its test says so.
"""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.peers.kafka import KafkaUnavailable
from tests.docs.pages import TOP, Block, blocks_of, pattern_of, section_of
from tests.kafka.brokers import kafka
from tests.words import UNTRIED

pytestmark = [pytest.mark.source, pytest.mark.process, pytest.mark.timeout(900)]

ADDRESS = "127.0.0.1:7400"
KAFKA = "127.0.0.1:9092"
SECONDS_MAX = 400  # a minute on a quiet machine
STOP_SECONDS_MAX = 60
_END = "--- end of block {} with "
_GO_ON = re.compile(r"The nodes go on: n1 on ([^\s,]+)")
_STOP = re.compile(r"Stop them: +sh (\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A block of the tour, what the page shows for it, and what became of it."""

    block: Block
    shown: str
    printed: str
    exit_code: int


def tour_blocks() -> list[tuple[Block, str]]:
    """Return each block to run with the output shown behind it, empty for none; the program of the README is the last."""
    tour = blocks_of(section_of((TOP / "docs" / "tour.md").read_text(), "A tour in five minutes"))
    readme = blocks_of((TOP / "README.md").read_text())
    first = next(index for index, block in enumerate(readme) if block.language == "python")
    found = []
    for block, after in pairwise([*tour, *readme[first : first + 2], Block(language="", text="", line=0)]):
        if block.language != "text":
            found.append((block, after.text if after.language == "text" else ""))
    return found


def run_shell(script: Path, text: str, environment: dict[str, str]) -> str:
    script.write_text(text)
    done = subprocess.run(
        ["bash", script],
        cwd=TOP,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SECONDS_MAX,
        check=False,
    )
    return done.stdout.decode()


def shell_text(blocks: list[tuple[Block, str]]) -> str:
    """Return one script for all blocks, as if pasted one after the other into one terminal."""
    parts = []
    for number, (block, _) in enumerate(blocks):
        text = block.text if block.language == "sh" else f"python - <<'END OF PROGRAM'\n{block.text}END OF PROGRAM\n"
        parts.append(f'{text}echo "{_END.format(number)}$?"\n')
    return "".join(parts)


def wait_until_gone(pids: list[int]) -> None:
    """Wait until no process has any of these numbers."""
    deadline = time.monotonic() + STOP_SECONDS_MAX
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, f"of the processes {pids} some do not end"
        time.sleep(0.05)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A broker, or why there is none."""

    address: str = ""
    why: str = ""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    with ExitStack() as stack:
        try:
            found = Peer(address=stack.enter_context(kafka(tmp_path_factory.mktemp("kafka"))))
        except KafkaUnavailable as missing:
            found = Peer(why=str(missing))
        yield found


@pytest.fixture(scope="module")
def tour(tmp_path_factory: pytest.TempPathFactory, broker: Peer) -> Iterator[list[Ran]]:
    home = tmp_path_factory.mktemp("tour")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS", "EVENTLOG_"))}
    environment |= {"TMPDIR": str(home), "LC_ALL": "C.UTF-8"}
    (first, first_shown), *rest = [one for one in tour_blocks() if broker.address or KAFKA not in one[0].text]
    assert first.text == "make demo KEEP=1\n"
    printed = run_shell(home / "demo.sh", first.text, environment)
    go_on, stop = _GO_ON.search(printed), _STOP.search(printed)
    assert go_on, printed
    assert stop, printed
    address, script = go_on[1], Path(stop[1])
    pids = [int(file.read_text()) for file in script.parent.glob("*.pid")]
    try:
        environment["EVENTLOG_SERVER"] = address
        text = run_shell(home / "tour.sh", shell_text(rest).replace(ADDRESS, address).replace(KAFKA, broker.address), environment)
        text = text.replace(broker.address, KAFKA) if broker.address else text
        ran = [Ran(block=first, shown=first_shown, printed=printed.replace(address, ADDRESS), exit_code=0)]
        for number, (block, shown) in enumerate(rest):
            own, end, text = text.partition(_END.format(number))
            assert end, f"line {block.line}: {own}"
            code, _, text = text.partition("\n")
            # `get` ends its value's line only on a terminal
            ran.append(Ran(block=block, shown=shown, printed=own if own.endswith("\n") else f"{own}\n", exit_code=int(code)))
        yield ran
    finally:
        subprocess.run(["sh", script], check=True)
        wait_until_gone(pids)


def test_every_block_does_what_the_page_shows(tour: list[Ran]):
    for ran in tour:
        told = f"line {ran.block.line} of the tour:\n{ran.block.text}\nshown:\n{ran.shown}\nprinted:\n{ran.printed}"
        assert ran.exit_code == 0, told
        assert pattern_of(ran.shown).match(ran.printed), told


def test_every_block_is_run_and_has_its_output_shown(tour: list[Ran]):
    assert {ran.block.language for ran in tour} == {"sh", "python"}
    assert [ran.block.text for ran in tour if not ran.shown] == []


def test_the_lines_of_a_mirror_are_run_where_a_broker_is(tour: list[Ran], broker: Peer):
    if not broker.address:
        pytest.skip(f"{UNTRIED}{broker.why}")
    assert any(KAFKA in ran.block.text for ran in tour)


def test_the_two_commands_of_the_first_page_are_targets():
    targets = re.findall(r"^([a-z]+):", (TOP / "Makefile").read_text(), re.MULTILINE)
    assert {"demo", "test"} <= set(targets)
    shown = next(block.text for block in blocks_of((TOP / "README.md").read_text()) if block.text.startswith("make "))
    assert re.findall(r"^make (\w+)", shown, re.MULTILINE) == ["demo", "test"]
