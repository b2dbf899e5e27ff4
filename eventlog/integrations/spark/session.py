"""The clients of a process of Spark's: one for each cluster, kept between tasks."""

import gc
import os
import threading
from collections import OrderedDict
from typing import Any, Final

from pyspark import TaskContext

from eventlog import blocking
from eventlog.integrations.spark.options import SinkOptions, SourceOptions

QUERY: Final = "sql.streaming.queryId"
_NAME: Final = "spark"
_KEPT_MAX: Final = 4  # in a process of tasks, which has one task at a time
_clients: OrderedDict[tuple[Any, ...], blocking.Client] = OrderedDict()
_opening = threading.Lock()


def client_of(options: SourceOptions | SinkOptions) -> blocking.Client:
    """Return this process's client of a cluster. It is kept between tasks; one from before a fork is left to whoever made it.

    In a task it has the name of the query, for the nodes' logs. What has been loaded for it is kept out of later collections: Spark
    collects after each task, and would look through it.
    """
    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY)
    named = {"name": _NAME if query is None else f"{_NAME} {query}", **options.client}
    key = (os.getpid(), options.servers, tuple(sorted(named.items())))
    with _opening:
        found = _clients.get(key)
        if found is None:
            found = _clients[key] = blocking.connect(*options.servers, **named)
            if context is not None:
                _keep_few()
                gc.collect()
                gc.freeze()
        _clients.move_to_end(key)
        return found


def _keep_few() -> None:
    """Close the clients of the queries that had a task here the longest ago."""
    own = [key for key in _clients if key[0] == os.getpid()]
    for key in own[:-_KEPT_MAX]:
        _clients.pop(key).close()
