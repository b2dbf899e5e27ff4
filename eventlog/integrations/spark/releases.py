"""Which releases of PySpark are taken: asked before anything is loaded that older ones lack. Nothing else of PySpark is imported here."""

import re
from typing import Final

from eventlog.errors import InvalidArgument

_OLDEST: Final = (4, 2)


def check_installed() -> None:
    """Raise InvalidArgument where the PySpark that is installed is too old, ModuleNotFoundError where there is none."""
    import pyspark  # noqa: PLC0415 -- the other function is for who has none

    check_release(pyspark.__version__)


def check_release(version: str) -> None:
    """Raise InvalidArgument for a release that is too old, with its name and number."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is None or (int(found[1]), int(found[2])) < _OLDEST:
        raise InvalidArgument(why=f"PySpark {version} is too old for eventlog, which needs {_OLDEST[0]}.{_OLDEST[1]} or newer")
