"""docs/operations.md, run as it is written: every command in its order, in one shell, and what the page shows for it.

The ports alone are others: those of the page may be taken.
"""

import os
import re
import signal
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.docs.pages import TOP, Block, blocks_of, pattern_of
from tests.ports import free_port

pytestmark = [pytest.mark.source, pytest.mark.process, pytest.mark.timeout(300)]

PAGE = TOP / "docs" / "operations.md"
SECONDS_MAX = 240
_PORT = re.compile(r"\b7[45]8?[0-9]{1,2}\b")
_END = "--- end of block {} with "


def page_blocks() -> list[tuple[Block, str]]:
    """Return each block to run with the output shown behind it, empty for none."""
    blocks = [block for block in blocks_of(PAGE.read_text()) if block.language in ("sh", "text")]
    pairs = pairwise([*blocks, Block(language="", text="", line=0)])
    return [(block, after.text if after.language == "text" else "") for block, after in pairs if block.language == "sh"]


def run(directory: Path, text: str) -> str:
    """Run the script; whatever it has started ends with it."""
    script = directory / "page.sh"
    script.write_text(text)
    bin_directory = str(Path(sys.executable).parent)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("EVENTLOG_")}
    environment |= {"PATH": f"{bin_directory}:{os.environ['PATH']}", "LC_ALL": "C.UTF-8"}
    process = subprocess.Popen(
        ["bash", script],
        cwd=directory,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        return process.communicate(timeout=SECONDS_MAX)[0].decode()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # it may wait in a loop for what never comes
            process.wait()
        for file in directory.glob("n*.pid"):
            try:
                os.kill(int(file.read_text()), signal.SIGKILL)
            except ProcessLookupError:
                continue  # it was stopped as the page says


def test_every_command_of_the_page_does_what_the_page_shows(tmp_path):
    blocks = page_blocks()
    ports = {name: str(free_port()) for name in sorted(set(_PORT.findall("".join(block.text for block, _ in blocks))))}
    back = {port: name for name, port in ports.items()}
    script = "".join(f'{block.text}echo "{_END.format(number)}$?"\n' for number, (block, _) in enumerate(blocks))
    text = run(tmp_path, _PORT.sub(lambda found: ports[found[0]], script))
    text = re.sub(rf"^{re.escape(str(tmp_path))}/page.sh: line .*\n", "", text, flags=re.MULTILINE)  # bash tells of what was killed
    text = re.sub(r"\b[0-9]{4,5}\b", lambda found: back.get(found[0], found[0]), text)
    logs = "".join(f"--- {log.name}\n{log.read_text()[-1500:]}" for log in sorted(tmp_path.glob("*.log")))
    for number, (block, shown) in enumerate(blocks):
        printed, end, text = text.partition(_END.format(number))
        told = f"line {block.line}:\n{block.text}\nshown:\n{shown}\nprinted:\n{printed}\n{logs}"
        assert end, told
        code, _, text = text.partition("\n")
        assert code == "0", told
        assert pattern_of(shown).match(printed) if shown else not printed.strip(), told


def test_the_section_for_the_night_has_four_commands():
    night = PAGE.read_text().split("## 02:00, n2 is gone: four commands")[1].split("\n## ")[0]
    commands = [block.text for block in blocks_of(night) if block.language == "sh"][1:]
    assert [text.split()[:3] for text in commands] == [
        ["eventlog", "admin", "status"],
        ["eventlog", "serve", "--data"],
        ["eventlog", "admin", "remove"],
        ["eventlog", "admin", "status"],
    ]
    waits = ("while [",)  # an operator looks; a script has to wait
    assert all(len([line for line in text.splitlines() if not line.startswith(waits)]) == 1 for text in commands)
