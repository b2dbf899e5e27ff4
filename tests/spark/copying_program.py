"""A stream from one cache into another one: `python -m tests.spark.copying_program SERVERS FROM INTO CHECKPOINT STOP`.

It ends well once there is a file STOP and all that was written by then is copied. A process of its own, which can be killed as a whole.
"""

import sys
from pathlib import Path

from eventlog.integrations.spark import pipelines
from tests.spark.servers import QUICK


def main(servers: str, source: str, target: str, checkpoint: str, stop: Path) -> None:
    """Copy until told to stop."""
    spark = pipelines.session("local[2,4]", name="copying", settings=QUICK | {"spark.driver.memory": "512m"})
    rows = (
        spark.readStream.format("eventlog")
        .options(servers=servers, cache=source, startingPosition="earliest", maxEventsPerTrigger="1000", partitions="2")
        .load()
        .select("key", "value")
    )
    writing = rows.writeStream.format("eventlog").options(servers=servers, cache=target, checkpointLocation=checkpoint)
    query = writing.start()
    while not stop.exists():
        if query.awaitTermination(1):
            return
    query.processAllAvailable()
    query.stop()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4], Path(sys.argv[5]))
