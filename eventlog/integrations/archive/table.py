"""The Delta table of an archive: whose it is, how far it is, which files it has.

How far it is stands in the table as the version of an application's transaction, written in the commit that adds the files. So there is
no other place that could disagree with it, and of two archivers of one cache the second's commit is refused.
"""

import json
import os
import re
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from operator import itemgetter
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from eventlog import blocking
from eventlog.errors import ArchiveRefused, ArchiveTaken, InvalidArgument
from eventlog.integrations.archive.files import DAY, NewFile
from eventlog.integrations.archive.place import ArchivePlace, told_of
from eventlog.integrations.archive.values import CORRUPT, STRUCT, VALUE_COLUMNS, ddl_of, has_grown_from

_FORGETS: Final = "delta.deletedFileRetentionDuration"
_FORGETS_DAYS_DEFAULT: Final = 7  # of Delta's own, for a table that says nothing
_CONFIGURATION: Final[Mapping[str, str | None]] = {
    "delta.appendOnly": "true",
    "delta.checkpointInterval": "100",
    _FORGETS: "interval 90 days",
    "delta.enableDeletionVectors": "false",
    "delta.logRetentionDuration": "interval 90 days",
}
_FORM: Final = 1
_FILE_COLUMNS: Final = ("path", "size_bytes", "num_records", "min.id", "max.id")
_SEGMENT_COLUMNS: Final = ("min.segment", "max.segment")
_LOG: Final = "_delta_log"
_COMMITS_LOOKED_AT: Final = (20, 2_000)
_PREFIX: Final = "eventlog."
_WRITER: Final = f"{_PREFIX}writer"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIdentity:
    """Whose events a table has. `cache_id` is another one once the cache was dropped and made again."""

    cluster: str
    cache: str
    cache_id: int

    def unlike(self, wanted: "TableIdentity") -> str:
        """Return what a table of this one is to whoever wants another."""
        is_again = (self.cluster, self.cache) == (wanted.cluster, wanted.cache)
        what = "dropped and made again since" if is_again else "another"
        return f"it has cache {self.cache!r} of cluster {self.cluster}; {wanted.cache!r} of cluster {wanted.cluster} is {what}"


def identity_of(client: blocking.Client, cache: str) -> TableIdentity:
    """Return what a cache is now. Raises CacheNotFound."""
    return TableIdentity(cluster=client.cluster, cache=cache, cache_id=client.cache(cache).info().id)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of the table: its ids are in `[low, high]`, and so are its segments in `segments`, where they are known."""

    path: str
    nbytes: int
    rows: int
    low: int
    high: int
    segments: tuple[int, int] | None = None

    @property
    def day(self) -> str:
        """The day of its events, as in 2026-11-20."""
        return self.path.partition("/")[0].removeprefix(f"{DAY}=")


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What a commit added: events in `(after, upto]`; `ends` is of each segment the offset that comes next, -1 where it has had none."""

    after: int
    upto: int
    events: int
    digest: int
    ends: tuple[int, ...]


class ArchiveTable:
    """An archive's table, as it was when it was opened or last `refresh`ed."""

    def __init__(self, place: ArchivePlace, delta: DeltaTable) -> None:
        self.place = place
        self._delta = delta
        metadata = delta.metadata()
        try:
            words = json.loads(metadata.description or "")
            form = words.pop("eventlog")
            self.identity = TableIdentity(**words)
        except (ValueError, TypeError, KeyError) as error:
            raise ArchiveRefused(path=place.address, why="it is a table, and none of eventlog's") from error
        if form != _FORM:
            raise ArchiveRefused(path=place.address, why=f"it has form {form}, this version reads {_FORM}")
        self._app = f"eventlog/{self.identity.cluster}/{self.identity.cache}"

    @classmethod
    def open(cls, place: ArchivePlace) -> "ArchiveTable":
        """Open a table.

        Raises:
            ArchiveRefused: there is none of eventlog's.
            ArchiveUnreachable: the place does not answer.
        """
        found = cls._find(place)
        if found is None:
            raise ArchiveRefused(path=place.address, why="there is none")
        return found

    @classmethod
    def _find(cls, place: ArchivePlace) -> "ArchiveTable | None":
        try:
            with place.reached():
                return cls(place, DeltaTable(place.address))
        except TableNotFoundError:
            return None
        except DeltaError as error:
            raise ArchiveRefused(path=place.address, why=told_of(error)) from error

    @classmethod
    def open_or_create(cls, place: ArchivePlace, identity: TableIdentity, schema: pa.Schema) -> "ArchiveTable":
        """Open a cache's table, or make one.

        Raises:
            ArchiveRefused: it is another's, or there is something else.
        """
        found = cls._find(place)
        if found is None:
            if place.has_others(_LOG):
                raise ArchiveRefused(path=place.address, why="the folder has files, and is no table")
            place.make()
            with place.reached(), suppress(CommitFailedError):  # of two at once, one makes it
                DeltaTable.create(
                    place.address,
                    schema=schema.append(pa.field(DAY, pa.date32())),
                    mode="ignore",
                    partition_by=DAY,
                    name=identity.cache,
                    description=json.dumps({"eventlog": _FORM, **asdict(identity)}),
                    configuration=_CONFIGURATION,
                )
            found = cls.open(place)
        if found.identity != identity:
            raise ArchiveRefused(path=place.address, why=found.identity.unlike(identity))
        has = pa.schema([field for field in found.schema if field.name not in VALUE_COLUMNS])
        if has != schema:
            raise ArchiveRefused(path=place.address, why=f"it has the columns {has.names}, not {schema.names}")
        return found

    def grow(self, values: pa.StructType) -> None:
        """Have columns of values, with these fields, in a commit of their own; rows that are there have null.

        Raises:
            ArchiveRefused: it has a field of values that is not among these, or is of another type.
            ArchiveTaken: somebody else has gone on meanwhile.
        """
        own = self.values
        if own is not None and not has_grown_from(values, own):
            why = f"its values have the fields {ddl_of(own)}, and a value_schema has those and maybe more, not {ddl_of(values)}"
            raise ArchiveRefused(path=self.place.address, why=why)
        if own is not None and has_grown_from(own, values):
            return
        before = self._delta.version()
        try:
            fields = Schema.from_arrow(pa.schema([(STRUCT, values), (CORRUPT, pa.string())])).fields
            with self.place.reached():
                self._delta.alter.add_columns(fields, commit_properties=CommitProperties(custom_metadata={_WRITER: _this_process()}))
        except CommitFailedError as error:
            raise self._taken() from error
        self._settle(before)

    def refresh(self) -> None:
        """Learn what was committed meanwhile."""
        with self.place.reached():
            self._delta.update_incremental()

    @property
    def schema(self) -> pa.Schema:
        """The columns of events, and those of their values where there are any, without the day."""
        found = pa.schema(self._delta.schema().to_arrow())
        return pa.schema([field for field in found if field.name != DAY])

    @property
    def values(self) -> pa.StructType | None:
        """The fields that values are read as; None where they are not."""
        found = self.schema
        return found.field(STRUCT).type if STRUCT in found.names else None

    @property
    def upto(self) -> int | None:
        """The id up to which it has everything behind `after`; None before the first round."""
        found = self._delta.transaction_version(self._app)
        return None if found is None else int(found)

    @property
    def after(self) -> int | None:
        """The id behind which it begins; None before the first round."""
        found = self._delta.transaction_version(f"{self._app}/after")
        return None if found is None else int(found)

    def commit(self, parts: Sequence[NewFile], done: Round) -> None:
        """Add files, and say how far the table is with them; durable when this returns.

        Raises:
            ArchiveTaken: somebody else has gone on meanwhile. Nothing is added.
            ArchiveUnreachable: nobody knows whether it was done; the table says so when it is opened again.
        """
        actions: list[AddAction | RemoveAction] = [_added(part, is_new=True) for part in parts]
        own = [Transaction(self._app, done.upto)]
        if self.after is None:
            own.append(Transaction(f"{self._app}/after", done.after))
        told = {f"{_PREFIX}{name}": json.dumps(value) for name, value in asdict(done).items()}
        properties = CommitProperties(custom_metadata=told | {_WRITER: _this_process()}, app_transactions=own)
        before = self._delta.version()
        try:
            self._write(actions, properties)
        except CommitFailedError as error:
            self.refresh()
            if not self._has(parts):
                raise self._taken() from error
        self._settle(before)

    def replace(self, files: Sequence[File], parts: Sequence[NewFile]) -> None:
        """Have other files of the same events in the place of some, in one commit that changes no data.

        Delta takes a file away twice without a word, so what tells two who merge from each other is a transaction of their own.

        Raises:
            ArchiveRefused: another process has replaced one of them, or widened the table, meanwhile. Nothing is changed.
        """
        own = CommitProperties(
            custom_metadata={_WRITER: _this_process()}, app_transactions=[Transaction(f"{self._app}/merged", self._delta.version() + 1)]
        )
        actions: list[AddAction | RemoveAction] = [_added(part, is_new=False) for part in parts]
        actions += [_removed(file) for file in files]
        before = self._delta.version()
        try:
            self._write(actions, own)
        except CommitFailedError as error:
            self.refresh()
            if not self._has(parts):
                raise ArchiveRefused(path=self.place.address, why="another process has changed it meanwhile; run this again") from error
        self._settle(before)

    def _taken(self) -> ArchiveTaken:
        """Return who has gone on meanwhile, and how far."""
        self.refresh()
        with self.place.reached():
            last = self._delta.history(1)[0]
        return ArchiveTaken(path=self.place.address, upto=self.upto or 0, writer=last.get(_WRITER, "another archiver"))

    def _write(self, actions: list[AddAction | RemoveAction], properties: CommitProperties) -> None:
        with self.place.reached():
            self._delta.create_write_transaction(actions, "append", self._delta.schema(), [DAY], commit_properties=properties)

    def _has(self, parts: Sequence[NewFile]) -> bool:
        """Return whether a commit that was refused is there: an answer that was lost is asked for again, and met itself."""
        return bool(parts) and not {part.path for part in parts} - {file.path for file in self.files()}

    @property
    def remembers_hours(self) -> int:
        """For how long it says when a file was taken out of it; without that its age alone counts."""
        told = re.fullmatch(r"interval (\d+) days?", self._delta.metadata().configuration.get(_FORGETS) or "")
        return 24 * (int(told[1]) if told is not None else _FORGETS_DAYS_DEFAULT)

    def vacuum(self, older_than_hours: int) -> list[str]:
        """Remove files that no commit names, or none any more, for so long, no longer than it remembers; return their paths."""
        with self.place.reached():
            return self._delta.vacuum(older_than_hours, dry_run=False, enforce_retention_duration=False, full=True)

    def _settle(self, before: int) -> None:
        """Have what was committed behind a version be durable."""
        self.refresh()
        self.place.settle(_LOG, [f"{version:020}.json" for version in range(before + 1, self._delta.version() + 1)])

    def files(self) -> list[File]:
        """Return the files, in the order of their lowest ids."""
        found = pa.table(self._delta.get_add_actions(flatten=True))
        if not len(found):
            return []
        columns = [found.column(name).to_pylist() for name in _FILE_COLUMNS]
        known = [found.column(name).to_pylist() if name in found.schema.names else [None] * len(found) for name in _SEGMENT_COLUMNS]
        files = [
            File(path=path, nbytes=nbytes, rows=rows, low=low, high=high, segments=None if first is None else (first, last))
            for path, nbytes, rows, low, high, first, last in zip(*columns, *known, strict=True)
        ]
        return sorted(files, key=lambda file: (file.low, file.path))

    def last_round(self) -> Round | None:
        """Return the newest round that the table's log tells of, among the last commits: merges are commits, too."""
        return next((found for limit in _COMMITS_LOOKED_AT for found in self.rounds(limit=limit)), None)

    def rounds(self, *, limit: int | None = None) -> list[Round]:
        """Return the rounds that the table's log still tells of, the newest first.

        The log tells of what was committed since this was refreshed, too, whose files are not known here: such rounds are left out.
        """
        found = []
        upto = self.upto
        with self.place.reached():
            history = self._delta.history(limit)
        for told in history:
            if f"{_PREFIX}upto" in told:
                words = {name: json.loads(told[f"{_PREFIX}{name}"]) for name in Round.__dataclass_fields__}
                if upto is not None and words["upto"] <= upto:
                    found.append(Round(**words | {"ends": tuple(words["ends"])}))
        return found

    def dataset(self) -> Any:
        """Return the table as a `pyarrow.dataset.Dataset`."""
        with self.place.reached():
            return self._delta.to_pyarrow_dataset(filesystem=self.place.files)


def _this_process() -> str:
    return f"process {os.getpid()} of {socket.gethostname()}"


def delta_files(address: str) -> list[tuple[str, tuple[tuple[str, Any], ...]]]:
    """Return the files of any Delta table: their paths below it, in their order, and the columns that the table says of each.

    Raises:
        InvalidArgument: there is none that can be read, or what reads its files alone does not see the table: rows are taken out by
            lists beside them, or columns have other names there.
    """
    try:
        table = DeltaTable(address)
    except DeltaError as error:
        raise InvalidArgument(why=f"the table {address} cannot be read: {told_of(error)}") from error
    if "deletionVectors" in (table.protocol().reader_features or []):
        raise InvalidArgument(why=f"the table {address} has deletion vectors: purge them first")
    if table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        raise InvalidArgument(why=f"the table {address} maps the names of its columns: write it anew without column mapping")
    added = pa.table(table.get_add_actions())
    paths, has_columns = [unquote(path) for path in added.column("path").to_pylist()], "partition" in added.schema.names
    columns = [tuple(row.items()) for row in added.column("partition")] if has_columns else [()] * len(paths)
    return sorted(zip(paths, columns, strict=True), key=itemgetter(0))


def _added(part: NewFile, *, is_new: bool) -> AddAction:
    return AddAction(part.path, part.nbytes, {DAY: part.day}, int(time.time() * 1000), is_new, json.dumps(part.stats))


def _removed(file: File) -> RemoveAction:
    day: dict[str, str | None] = {DAY: file.day}
    now_ms = int(time.time() * 1000)
    return RemoveAction(file.path, data_change=False, deletion_timestamp=now_ms, size=file.nbytes, partition_values=day)
