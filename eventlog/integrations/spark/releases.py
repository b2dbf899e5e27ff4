"""Which releases of PySpark are taken: asked before anything is loaded that older ones lack. Nothing else of PySpark is imported here."""

import re
from typing import Final

from eventlog.errors import InvalidArgument

_OLDEST: Final = (4, 1)
_LIMITS_SINCE: Final = (4, 2)


def check_installed() -> None:
    """Raise InvalidArgument where the PySpark that is installed is too old, ModuleNotFoundError where there is none."""
    import pyspark  # noqa: PLC0415 -- the other function is for who has none

    check_release(pyspark.__version__)


def check_release(version: str) -> None:
    """Raise InvalidArgument for a release that is too old, with its name and number."""
    if _release(version) < _OLDEST:
        raise InvalidArgument(why=f"PySpark {version} is too old for eventlog, which needs {_OLDEST[0]}.{_OLDEST[1]} or newer")


def takes_limits(version: str) -> bool:
    """Return whether a release asks a source for no more than a trigger is to have."""
    return _release(version) >= _LIMITS_SINCE


def _release(version: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (0, 0) if found is None else (int(found[1]), int(found[2]))
