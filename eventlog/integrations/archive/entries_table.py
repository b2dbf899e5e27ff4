"""The entries of a cache at an id as a Delta table, made by one commit: there as a whole or not at all."""

import json
from dataclasses import asdict
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError, TableNotFoundError

from eventlog.errors import ArchiveRefused
from eventlog.integrations.archive.place import ArchivePlace, told_of
from eventlog.integrations.archive.table import TableIdentity

_FORM: Final = 1
_LOG: Final = "_delta_log"


def write_entries(place: ArchivePlace, entries: pa.Table, *, of: TableIdentity, as_of: int) -> None:
    """Write entries as a new table; one of the same cache at the same id stays as it is. Durable when this returns.

    Raises:
        ArchiveRefused: there is a table already, of something else.
        ArchiveUnreachable: the place does not answer.
    """
    told = {"entries": _FORM, **asdict(of), "as_of": as_of}
    if not _check(place, told):
        place.make()
        try:
            with place.reached():
                write_deltalake(place.address, entries, name=of.cache, description=json.dumps(told))
        except DeltaError as error:
            if not _check(place, told):  # of two at once, one makes it
                raise ArchiveRefused(path=place.address, why=told_of(error)) from error
    with place.reached():
        paths = pa.table(DeltaTable(place.address).get_add_actions()).column("path").to_pylist()
    place.settle("", sorted(paths))
    place.settle(_LOG, [f"{0:020}.json"])


def _check(place: ArchivePlace, told: dict[str, object]) -> bool:
    """Return whether the table is there. Raises ArchiveRefused where it is another one."""
    try:
        with place.reached():
            found = DeltaTable(place.address)
    except TableNotFoundError:
        return False
    except DeltaError as error:
        raise ArchiveRefused(path=place.address, why=told_of(error)) from error
    if found.metadata().description != json.dumps(told):
        raise ArchiveRefused(path=place.address, why=f"it is a table, and not of cache {told['cache']} at id {told['as_of']}")
    return True
