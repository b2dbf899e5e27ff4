"""A user's program by Spark Connect: `python -m tests.spark.connect_program URL SERVERS FOLDER` prints what it saw as a line of JSON.

A process of its own, as one that has a Spark of its own cannot be a client of another.
"""

import json
import sys
from pathlib import Path
from typing import Any

from eventlog.integrations.spark import pipelines


def main(url: str, servers: str, folder: Path) -> dict[str, Any]:
    """Read a cache as a batch and in SQL, copy it by a stream, and archive it."""
    spark = pipelines.session(url, name="connect", settings={})
    frame = spark.read.format("eventlog").options(servers=servers, cache="orders", value_schema="n INT").load()
    ids = [row.id for row in frame.where("v.n < 100").select("id").collect()]
    spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW o USING eventlog OPTIONS (servers '{servers}', cache 'orders')")
    kinds = {row.kind: row.n for row in spark.sql("SELECT kind, count(1) AS n FROM o GROUP BY kind").collect()}
    stream = spark.readStream.format("eventlog").options(
        servers=servers, cache="orders", startingPosition="earliest", maxEventsPerTrigger="300"
    )
    rows = stream.load().where("kind != 'REMOVED'").select("key", "value")
    writing = rows.writeStream.format("eventlog").options(servers=servers, cache="copy", checkpointLocation=str(folder / "check"))
    query = writing.trigger(availableNow=True).start()
    query.awaitTermination()
    done = pipelines.archive(spark, "orders", servers=servers, to=folder / "archive", round_events=400, tasks=2)
    found = {"ids": ids, "kinds": kinds, "archived": done["events"], "rounds": done["rounds"]}
    spark.stop()
    return found


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], Path(sys.argv[3]))))
