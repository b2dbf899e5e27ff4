"""The clients of a process of Spark's: one for each cluster, kept between tasks."""

import gc
import os
import threading
from typing import Any, Final

from pyspark import TaskContext

from eventlog import blocking
from eventlog.integrations.spark.options import SinkOptions, SourceOptions

_NAME: Final = "spark"
_clients: dict[tuple[Any, ...], blocking.Client] = {}
_opening = threading.Lock()


def client_of(options: SourceOptions | SinkOptions) -> blocking.Client:
    """Return this process's client of a cluster. It is kept between tasks; one from before a fork is left to whoever made it.

    In a task, what has been loaded for it is kept out of later collections: Spark collects after each task, and would look through it.
    """
    key = (os.getpid(), options.servers, tuple(sorted(options.client.items())))
    with _opening:
        found = _clients.get(key)
        if found is None:
            found = _clients[key] = blocking.connect(*options.servers, **{"name": _NAME, **options.client})
            if TaskContext.get() is not None:
                gc.collect()
                gc.freeze()
        return found
