"""docs/kafka.md from nothing to a topic, and through the death of its broker: run as it is written, and what the page shows for it.

Addresses alone are others: those of the page may be taken.
"""

import asyncio
import os
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from benchmarks.peers.kafka import KafkaBrokers, jars
from tests.docs.pages import TOP, Block, blocks_of, pattern_of, section_of
from tests.kafka.brokers import until_ready
from tests.ports import free_port

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

PAGE = TOP / "docs" / "kafka.md"
SECONDS_MAX = 240
KAFKA, NODE = "127.0.0.1:9092", "127.0.0.1-7400"
_END = "--- end of block {} with "
PROGRAMS = {
    "kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-server-start.sh": "kafka.Kafka",
}
"""The main classes of Kafka's own scripts."""


def page_blocks() -> list[tuple[Block, str]]:
    """Return each block to run with the output shown behind it, empty for none."""
    section = section_of(PAGE.read_text(), "From nothing to a topic")
    blocks = [block for block in blocks_of(section) if block.language in ("sh", "text")]
    pairs = pairwise([*blocks, Block(language="", text="", line=0)])
    return [(block, after.text if after.language == "text" else "") for block, after in pairs if block.language == "sh"]


def is_of_kcat(one: tuple[Block, str]) -> bool:
    return one[0].text.startswith("kcat ")


def make_programs(place: Path) -> None:
    """Make Kafka's scripts as far as the page uses them, of the jars that there are."""
    classes = ":".join(map(str, sorted(jars().glob("*.jar"))))
    for name, main in PROGRAMS.items():
        script = place / name
        script.write_text(f'#!/bin/sh\nexec java -Xmx512m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp "{classes}" {main} "$@"\n')
        script.chmod(0o755)


def run(directory: Path, text: str, *, programs: Path, **variables: str) -> str:
    """Run the script; whatever it has started ends with it."""
    (directory / "page.sh").write_text(text)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EVENTLOG_")}
    node, http = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
    environment |= {"EVENTLOG_NODE_LISTEN": node, "EVENTLOG_NODE_HTTP": http, "EVENTLOG_SERVER": node}
    environment |= {"PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8", **variables}
    output = directory / "page.out"  # a pipe would be open for as long as what is started in the background runs
    with output.open("wb") as printed:
        process = subprocess.Popen(
            ["bash", "page.sh"],
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=printed,
            start_new_session=True,
        )
    try:
        process.wait(SECONDS_MAX)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the node and the broker that it has started, too
        process.wait()
    return output.read_text().replace(node.replace(":", "-"), NODE)


def check(blocks: list[tuple[Block, str]], place: Path) -> None:
    """Run blocks in one shell, beside a broker, and hold what each prints against the page."""
    programs = place / "programs"
    programs.mkdir()
    make_programs(programs)
    script = "".join(f'{block.text}echo "{_END.format(number)}$?"\n' for number, (block, _) in enumerate(blocks))
    with KafkaBrokers(place, 1, quick=True) as brokers:
        asyncio.run(until_ready(brokers.addresses))
        (broker,) = brokers.pids
        text = run(place / "kafka-1", script.replace(KAFKA, brokers.addresses), programs=programs, broker=str(broker))
    text = text.replace(brokers.addresses, KAFKA)
    for number, (block, shown) in enumerate(blocks):
        printed, end, text = text.partition(_END.format(number))
        told = f"line {block.line}:\n{block.text}\nshown:\n{shown}\nprinted:\n{printed}"
        assert end, told
        code, _, text = text.partition("\n")
        assert code == "0", told
        assert pattern_of(shown).match(printed), told


def test_every_step_does_what_the_page_shows(tmp_path: Path) -> None:
    check([one for one in page_blocks() if not is_of_kcat(one)], tmp_path)


@pytest.mark.needs_program("kcat")
def test_kcat_reads_what_the_page_shows(tmp_path: Path) -> None:
    first, *rest = page_blocks()
    check([first, *filter(is_of_kcat, rest)], tmp_path)
