"""Spark, by PySpark: a cache as a batch and as a stream of Arrow, and how far streams are (`progress`, `ProgressListener`).

What decides is pure; `source`, `sink`, `watching`, `pipelines` and the shims alone import pyspark. So what is here is loaded when it
is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from eventlog.integrations.spark.watching import ProgressListener as ProgressListener
    from eventlog.integrations.spark.watching import QueryProgress as QueryProgress
    from eventlog.integrations.spark.watching import progress as progress

_WATCHING: Final = ("ProgressListener", "QueryProgress", "progress")
__all__ = ["ProgressListener", "QueryProgress", "progress"]


def __getattr__(name: str) -> Any:
    if name not in _WATCHING:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.watching"), name)
    globals()[name] = found
    return found
