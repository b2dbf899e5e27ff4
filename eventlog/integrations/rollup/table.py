"""The Delta table of a rollup: of what it is, up to where it is, its rows. The only place of rollups that imports deltalake.

As an archive's table it is the checkpoint: the commit that adds rows says up to which id they are all, and of two who go on at once the
second's commit is refused. How far a cache is that gets the rows as well stands there, too, under another name.
"""

import json
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from eventlog.client.reading.frames import TIME
from eventlog.errors import ArchiveRefused, RollupRefused, RollupTaken
from eventlog.integrations.archive.place import ArchivePlace, place_of, told_of
from eventlog.integrations.archive.table import TableIdentity
from eventlog.integrations.rollup.definition import WINDOW, Definition, boundary_ms

_FORM: Final = 1
_APP: Final = "eventlog-rollup"
_LOG: Final = "_delta_log"
_CONFIGURATION: Final[Mapping[str, str | None]] = {
    "delta.appendOnly": "true",
    "delta.checkpointInterval": "100",
    "delta.enableDeletionVectors": "false",
}
_US: Final = 1_000


class RollupTable:
    """A rollup's table, as it was when it was opened, or last written."""

    def __init__(self, place: ArchivePlace, delta: DeltaTable) -> None:
        self.place = place
        self._delta = delta

    @classmethod
    def open_or_create(cls, path: Path | str, identity: TableIdentity, definition: Definition) -> "RollupTable":
        """Open a table, or make one.

        Raises:
            RollupRefused: it is of another cache, or of another rollup, or there is something else.
            ArchiveUnreachable: the object store does not answer.
        """
        try:
            place = place_of(path)
        except ArchiveRefused as error:
            raise RollupRefused(path=error.path, why=error.why) from error
        description = {"eventlog-rollup": _FORM, **asdict(identity), **definition.plain()}
        try:
            found = _find(place)
            if found is None and place.has_others(_LOG):
                raise RollupRefused(path=place.address, why="the folder has files, and is no table")
            if found is None:
                place.make()
                with place.reached(), suppress(CommitFailedError):  # of two at once, one makes it
                    DeltaTable.create(
                        place.address,
                        schema=definition.schema,
                        mode="ignore",
                        name=identity.cache,
                        description=json.dumps(description),
                        configuration=_CONFIGURATION,
                    )
                with place.reached():
                    found = DeltaTable(place.address)
        except DeltaError as error:
            raise RollupRefused(path=place.address, why=told_of(error)) from error
        _check(place.address, found, description)
        return cls(place, found)

    @property
    def id(self) -> str:
        """A name that no other table has."""
        return str(self._delta.metadata().id)

    @property
    def upto(self) -> int | None:
        """The id up to which it has all windows behind its beginning; None before the first commit."""
        found = self._delta.transaction_version(_APP)
        return None if found is None else int(found)

    def put_upto(self, target: str) -> int:
        """Return the id up to which a cache has its rows, -1 for none."""
        found = self._delta.transaction_version(f"{_APP}/into/{target}")
        return -1 if found is None else int(found)

    def commit(self, rows: pa.Table, upto: int) -> None:
        """Add rows, at least one, of windows up to an id; durable when this returns.

        Raises:
            RollupTaken: somebody else has gone on meanwhile. Nothing is added.
            ArchiveUnreachable: nobody knows whether it was done; the table says so when it is opened again.
        """
        name = f"{upto:019}-{uuid.uuid4().hex}.parquet"  # by chance: what a run that was killed has written is in no commit
        nbytes = self.place.write(name, [rows], schema=rows.schema, compression="zstd", write_page_checksum=True)
        ends = pc.min_max(rows.column(WINDOW))
        lows, highs = ({WINDOW: _moment(ends[end].value)} for end in ("min", "max"))
        stats = {"numRecords": len(rows), "minValues": lows, "maxValues": highs, "nullCount": {WINDOW: 0}}
        added = AddAction(name, nbytes, {}, int(time.time() * 1000), data_change=True, stats=json.dumps(stats))
        self._write([added], _APP, upto, is_own=lambda: any(path.endswith(name) for path in self._delta.file_uris()))

    def commit_put(self, target: str, upto: int) -> None:
        """Say that a cache has all rows up to an id, which somebody else may have said at the same time."""
        self._write([], f"{_APP}/into/{target}", upto, is_own=lambda: self.put_upto(target) >= upto)

    def _write(self, actions: list[AddAction | RemoveAction], application: str, upto: int, *, is_own: Callable[[], bool]) -> None:
        """Commit; one that was refused although it is there is one's own: its first answer was lost."""
        properties = CommitProperties(app_transactions=[Transaction(application, upto)])
        before = self._delta.version()
        try:
            with self.place.reached():
                self._delta.create_write_transaction(actions, "append", self._delta.schema(), [], commit_properties=properties)
        except CommitFailedError as error:
            self._refresh()
            if not is_own():
                raise RollupTaken(path=self.place.address, upto=self.upto or 0) from error
        self._refresh()
        self.place.settle(_LOG, [f"{version:020}.json" for version in range(before + 1, self._delta.version() + 1)])

    def _refresh(self) -> None:
        with self.place.reached():
            self._delta.update_incremental()

    def rows(self, after: int, upto: int) -> pa.Table:
        """Return the rows of windows in `(after, upto]`."""
        low, high = (pa.scalar(boundary_ms(id_) * _US, pa.int64()).cast(TIME) for id_ in (after, upto))
        with self.place.reached():
            dataset = self._delta.to_pyarrow_dataset(filesystem=self.place.files)
            found = dataset.to_table(filter=(pc.field(WINDOW) >= low) & (pc.field(WINDOW) < high))
        order = [(name, "ascending") for name in found.schema.names]
        return found.cast(pa.schema(self._delta.schema().to_arrow())).sort_by(order)


def _find(place: ArchivePlace) -> DeltaTable | None:
    try:
        with place.reached():
            return DeltaTable(place.address)
    except TableNotFoundError:
        return None


def _check(path: str, found: DeltaTable, wanted: dict[str, Any]) -> None:
    """Raise RollupRefused unless a table is of what is wanted."""
    try:
        has = json.loads(found.metadata().description or "")
        form = has["eventlog-rollup"]
    except (ValueError, TypeError, KeyError) as error:
        raise RollupRefused(path=path, why="it is a table, and no rollup of eventlog's") from error
    if form != _FORM:
        raise RollupRefused(path=path, why=f"it has form {form}, this version reads {_FORM}")
    for name, value in wanted.items():
        if has.get(name) != value:
            raise RollupRefused(path=path, why=f"its {name} is {has.get(name)!r}, and not {value!r}: take another folder")


def _moment(us: int) -> str:
    """Return a time as Delta's statistics have it. Windows begin at whole milliseconds."""
    return str(np.datetime64(us // _US, "ms")) + "Z"
