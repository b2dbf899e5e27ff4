"""The Delta table of an archive: whose it is, how far it is, which files it has. The only place that imports deltalake.

How far it is stands in the table as the version of an application's transaction, written in the commit that adds the files. So there is
no other place that could disagree with it, and of two archivers of one cache the second's commit is refused.
"""

import json
import re
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from eventlog import blocking
from eventlog.errors import ArchiveRefused, ArchiveTaken
from eventlog.integrations.archive.files import DAY, NewFile, sync

_CONFIGURATION: Final[Mapping[str, str | None]] = {
    "delta.appendOnly": "true",
    "delta.checkpointInterval": "100",
    "delta.enableDeletionVectors": "false",
    "delta.logRetentionDuration": "interval 90 days",
}
_FORM: Final = 1
_FILE_COLUMNS: Final = ("path", "size_bytes", "num_records", "min.id", "max.id")
_ADDRESS: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:/")
_LOG: Final = "_delta_log"
_COMMITS_LOOKED_AT: Final = (20, 2_000)
_PREFIX: Final = "eventlog."


def folder_of(path: Path | str) -> Path:
    """Return where an archive is. Raises ArchiveRefused: the path is an address, as of an object store."""
    if _ADDRESS.match(str(path)):
        raise ArchiveRefused(path=str(path), why="it is an address, and archives lie in a file system that is mounted here")
    return Path(path).absolute()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableIdentity:
    """Whose events a table has. `cache_id` is another one once the cache was dropped and made again."""

    cluster: str
    cache: str
    cache_id: int


def identity_of(client: blocking.Client, cache: str) -> TableIdentity:
    """Return what a cache is now. Raises CacheNotFound."""
    return TableIdentity(cluster=client.cluster, cache=cache, cache_id=client.cache(cache).info().id)


@dataclass(frozen=True, slots=True, kw_only=True)
class File:
    """A file of the table: its ids are in `[low, high]`."""

    path: str
    nbytes: int
    rows: int
    low: int
    high: int

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

    def __init__(self, path: Path, delta: DeltaTable) -> None:
        self.path = path
        self._delta = delta
        metadata = delta.metadata()
        try:
            words = json.loads(metadata.description or "")
            form = words.pop("eventlog")
            self.identity = TableIdentity(**words)
        except (ValueError, TypeError, KeyError) as error:
            raise ArchiveRefused(path=str(path), why="it is a table, and none of eventlog's") from error
        if form != _FORM:
            raise ArchiveRefused(path=str(path), why=f"it has form {form}, this version reads {_FORM}")
        self._app = f"eventlog/{self.identity.cluster}/{self.identity.cache}"

    @classmethod
    def open(cls, path: Path) -> "ArchiveTable":
        """Open a table. Raises ArchiveRefused where there is none of eventlog's."""
        try:
            return cls(path, DeltaTable(str(path)))
        except TableNotFoundError as error:
            raise ArchiveRefused(path=str(path), why="there is none") from error
        except DeltaError as error:
            raise ArchiveRefused(path=str(path), why=str(error)) from error

    @classmethod
    def open_or_create(cls, path: Path, identity: TableIdentity, schema: pa.Schema) -> "ArchiveTable":
        """Open a cache's table, or make one.

        Raises:
            ArchiveRefused: it is another's, or there is something else.
        """
        if not DeltaTable.is_deltatable(str(path)):
            if path.exists() and any(one.name != _LOG for one in path.iterdir()):
                raise ArchiveRefused(path=str(path), why="the folder has files, and is no table")
            path.mkdir(parents=True, exist_ok=True)
            with suppress(CommitFailedError):  # of two at once, one makes it
                DeltaTable.create(
                    str(path),
                    schema=schema.append(pa.field(DAY, pa.date32())),
                    mode="ignore",
                    partition_by=DAY,
                    name=identity.cache,
                    description=json.dumps({"eventlog": _FORM, **asdict(identity)}),
                    configuration=_CONFIGURATION,
                )
        found = cls.open(path)
        if found.identity != identity:
            has, wanted = found.identity, identity
            what = "dropped and made again since" if (has.cluster, has.cache) == (wanted.cluster, wanted.cache) else "another"
            raise ArchiveRefused(path=str(path), why=f"it has cache {has.cache!r} of cluster {has.cluster}; {wanted.cache!r} is {what}")
        if found.schema != schema:
            raise ArchiveRefused(path=str(path), why=f"it has the columns {found.schema.names}, not {schema.names}")
        return found

    def refresh(self) -> None:
        """Learn what was committed meanwhile."""
        self._delta.update_incremental()

    @property
    def schema(self) -> pa.Schema:
        """The columns of events, without the day."""
        found = pa.schema(self._delta.schema().to_arrow())
        return pa.schema([field for field in found if field.name != DAY])

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
        """Add files, and say how far the table is with them; on the disk when this returns.

        Raises:
            ArchiveTaken: somebody else has gone on meanwhile. Nothing is added.
        """
        actions: list[AddAction | RemoveAction] = [_added(part, is_new=True) for part in parts]
        own = [Transaction(self._app, done.upto)]
        if self.after is None:
            own.append(Transaction(f"{self._app}/after", done.after))
        told = {f"{_PREFIX}{name}": json.dumps(value) for name, value in asdict(done).items()}
        properties = CommitProperties(custom_metadata=told, app_transactions=own)
        try:
            self._delta.create_write_transaction(actions, "append", self._delta.schema(), [DAY], commit_properties=properties)
        except CommitFailedError as error:
            self.refresh()
            raise ArchiveTaken(path=str(self.path), upto=self.upto or 0) from error
        self._settle()

    def replace(self, files: Sequence[File], parts: Sequence[NewFile]) -> None:
        """Have other files of the same events in the place of some, in one commit that changes no data.

        Delta takes a file away twice without a word, so what tells two who merge from each other is a transaction of their own.

        Raises:
            ArchiveRefused: somebody else has replaced one of them meanwhile. Nothing is changed.
        """
        own = CommitProperties(app_transactions=[Transaction(f"{self._app}/merged", self._delta.version() + 1)])
        actions: list[AddAction | RemoveAction] = [_added(part, is_new=False) for part in parts]
        actions += [_removed(file) for file in files]
        try:
            self._delta.create_write_transaction(actions, "append", self._delta.schema(), [DAY], commit_properties=own)
        except CommitFailedError as error:
            self.refresh()
            raise ArchiveRefused(path=str(self.path), why="its files are being merged by somebody else") from error
        self._settle()

    def vacuum(self, older_than_hours: int) -> list[str]:
        """Remove files that no commit names, or none any more, and that are so old; return their paths."""
        return self._delta.vacuum(older_than_hours, dry_run=False, enforce_retention_duration=False, full=True)

    def _settle(self) -> None:
        """Have what was committed since this was opened or refreshed on the disk."""
        before = self._delta.version()
        self.refresh()
        log = self.path / _LOG
        for version in range(before + 1, self._delta.version() + 1):
            sync(log / f"{version:020}.json")
        sync(log)
        sync(self.path)

    def files(self) -> list[File]:
        """Return the files, in the order of their lowest ids."""
        found = pa.table(self._delta.get_add_actions(flatten=True))
        if not len(found):
            return []
        columns = [found.column(name).to_pylist() for name in _FILE_COLUMNS]
        files = [
            File(path=path, nbytes=nbytes, rows=rows, low=low, high=high) for path, nbytes, rows, low, high in zip(*columns, strict=True)
        ]
        return sorted(files, key=lambda file: (file.low, file.path))

    def last_round(self) -> Round | None:
        """Return the newest round that the table's log tells of, among the last commits: merges are commits, too."""
        return next((found for limit in _COMMITS_LOOKED_AT for found in self.rounds(limit=limit)), None)

    def rounds(self, *, limit: int | None = None) -> list[Round]:
        """Return the rounds that the table's log still tells of, the newest first."""
        found = []
        for told in self._delta.history(limit):
            if f"{_PREFIX}upto" in told:
                words = {name: json.loads(told[f"{_PREFIX}{name}"]) for name in Round.__dataclass_fields__}
                found.append(Round(**words | {"ends": tuple(words["ends"])}))
        return found

    def dataset(self) -> Any:
        """Return the table as a `pyarrow.dataset.Dataset`."""
        return self._delta.to_pyarrow_dataset()


def _added(part: NewFile, *, is_new: bool) -> AddAction:
    return AddAction(part.path, part.nbytes, {DAY: part.day}, int(time.time() * 1000), is_new, json.dumps(part.stats))


def _removed(file: File) -> RemoveAction:
    day: dict[str, str | None] = {DAY: file.day}
    now_ms = int(time.time() * 1000)
    return RemoveAction(file.path, data_change=False, deletion_timestamp=now_ms, size=file.nbytes, partition_values=day)
