"""The Java that Spark takes where this process starts it."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

JAVA_MIN = 17


def java_lacks(environment: Mapping[str, str]) -> str | None:
    """Say what is wrong with the Java that Spark would take, None where it is new enough."""
    home = environment.get("JAVA_HOME")
    java = shutil.which(str(Path(home) / "bin" / "java") if home else "java", path=environment.get("PATH"))
    if java is None:
        where = f"in JAVA_HOME ({home})" if home else "on PATH"
        return f"there is no Java {where}, which Spark takes: install a Java runtime {JAVA_MIN} or newer, or name its folder as JAVA_HOME"
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)  # noqa: S603
    found = re.search(r'version "(\d+)', told.stderr)
    if found is None or int(found[1]) < JAVA_MIN:
        return f"{java} is {found[1] if found else 'of no version that it tells'}, and Spark takes {JAVA_MIN} or newer"
    return None
