"""Java programs beside this file: compiled against jars that Maven fetches once, and run on text."""

import subprocess
from pathlib import Path

from benchmarks.peers.kafka import TOP, Artifacts, jars

_QUICK = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


def run(
    main: str, text: str, *, artifacts: Artifacts, folder: str, place: Path, options: tuple[str, ...] = (), within_s: int = 120
) -> list[str]:
    """Compile `main` into `place`, give it `text` to read, and return the lines that it printed. The jars are kept in `.build/FOLDER`."""
    classes = ":".join(map(str, sorted(jars(artifacts, folder=TOP / ".build" / folder).glob("*.jar"))))
    source = Path(__file__).with_name("java") / f"{main}.java"
    subprocess.run(["javac", "-cp", classes, "-d", str(place), str(source)], check=True, capture_output=True, text=True)
    command = ["java", *_QUICK, *options, "-cp", f"{classes}:{place}", main]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=within_s, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout.splitlines()
