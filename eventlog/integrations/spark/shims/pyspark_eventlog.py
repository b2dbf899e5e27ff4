"""Found by Spark by its name, as all modules that begin with `pyspark_`: `format("eventlog")` needs neither import nor registration.

Spark imports all such modules for any Python source, and one that fails breaks them all: so what fails here is kept until it is asked for.
"""

from typing import Any

try:
    from eventlog.integrations.spark.releases import check_installed

    check_installed()
    from eventlog.integrations.spark.source import EventLogSource as DefaultSource
except Exception as failure:  # noqa: BLE001 -- whatever it is, other sources must go on
    from pyspark.sql.datasource import DataSource

    _WHY = f"eventlog cannot be loaded: {type(failure).__name__}: {failure}"

    class DefaultSource(DataSource):  # type: ignore[no-redef, misc]  # in its place
        """Says why there is none."""

        def __init__(self, options: Any) -> None:
            super().__init__(options)
            raise RuntimeError(_WHY)

        @classmethod
        def name(cls) -> str:
            """Return what `format` is given."""
            return "eventlog"
