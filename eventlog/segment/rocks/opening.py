"""Making and opening the database, and naming what is wrong with it.

Some options have no setter: they are written into the OPTIONS file of a new database, and from then on the database is only ever
opened with the options it has (`load_latest`), because one open with fresh options would reset them for good. Every open reads
them back.

Before it is opened, its MANIFEST and its journal are looked through for records which RocksDB would read for ever. Both are files of
blocks of 32 KiB with records in them (RocksDB, `log_format.h`):

    crc u32 | length u16 | kind u8 | data

Some kinds belong to files that are used again, and have another format. RocksDB takes such a record for what an earlier use of the file
left, and looks for the end of that without coming any further; where it is the first of a file, the file counts as empty. No file is used
again here (`recycle_log_file_num` is 0), so such a record is damage: one flipped bit makes it of any other.
"""

import json
import mmap
import re
import resource
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from struct import Struct

from rocksdict import BlockBasedOptions, Cache, ChecksumType, DBCompressionType, DBRecoveryMode, Options, Rdict

from eventlog.errors import CorruptData
from eventlog.limits import GIB, KIB, MIB
from eventlog.segment.directory import sync_path
from eventlog.segment.port import Pair, StoreOptions
from eventlog.segment.rocks.failing import calling, creating_error, opening_error

FAMILIES = ("log", "state", "meta")
PARTITIONED = ("log",)

# A segment is the first two bytes of a key: its files are its own, so dropping it rewrites nothing. Not so in the state: it is
# smaller and merged more often, and hundreds of small files cost it more than a rewrite at a hand-over would.
_PARTITIONER = "sst_partitioner_factory={id=SstPartitionerFixedPrefixFactory;length=2;}"
# Without it a missing or shortened journal file other than the last is passed over in silence.
_VERIFY_JOURNAL = ("track_and_verify_wals_in_manifest=false", "track_and_verify_wals_in_manifest=true")
_SECTION = re.compile(r'^\[CFOptions "(\w+)"\]$', re.MULTILINE)
_CONFIG = "rocksdict-config.json"
_LOG_CACHE_SHARE = 4  # a quarter of the cache is the log's, so that a long read does not push the state out
_OPEN_FILES_MIN = 256
_OPEN_FILES_MAX = 16_384
_OPEN_FILES_PARTS = 2  # of the process's limit: as many are left for connections and everything else
_JOBS = 2


@dataclass(slots=True)
class Database:
    """An open database. Each family is a handle of its own; all must be let go before the directory is free."""

    root: Rdict
    log: Rdict
    state: Rdict
    meta: Rdict
    log_cache: Cache
    state_cache: Cache


def create_database(path: Path, rows: Sequence[Pair]) -> None:
    """Make an empty database whose meta family holds `rows`, durable when it returns.

    Raises:
        DiskFull, Overloaded, Unavailable: it cannot be made here and now.
    """
    calling(lambda: _create(path, rows), creating_error(str(path)))
    newest = newest_options(path)
    newest.write_text(with_hidden_options(newest.read_text()))
    sync_path(newest)
    sync_path(path)


def _create(path: Path, rows: Sequence[Pair]) -> None:
    options = Options(raw_mode=True)
    options.create_if_missing(create_if_missing=True)
    options.create_missing_column_families(create_missing_cfs=True)
    root = Rdict(str(path), options, {name: Options(raw_mode=True) for name in FAMILIES})
    meta = root.get_column_family("meta")
    for key, value in rows:
        meta.put(key, value)
    root.flush_wal(sync=True)
    meta.close()
    root.close()


def with_hidden_options(text: str) -> str:
    """Return the text of an OPTIONS file with the options set that have no setter."""
    parts = _SECTION.split(text.replace(*_VERIFY_JOURNAL))
    for at in range(1, len(parts), 2):
        if parts[at] in PARTITIONED:
            parts[at + 1] = parts[at + 1].replace("sst_partitioner_factory=nullptr", _PARTITIONER)
        parts[at] = f'[CFOptions "{parts[at]}"]'
    return "".join(parts)


def lost_options(text: str) -> list[str]:
    """Return which of the options without setter are not in the text of an OPTIONS file."""
    parts = _SECTION.split(text)
    families = dict(zip(parts[1::2], parts[2::2], strict=True))
    lost = [f"the partitioner of {name}" for name in PARTITIONED if _PARTITIONER not in families.get(name, "")]
    return lost if _VERIFY_JOURNAL[1] in text else [*lost, _VERIFY_JOURNAL[1]]


def newest_options(path: Path) -> Path:
    """Return the OPTIONS file that counts.

    Raises:
        CorruptData: there is none.
    """
    files = sorted(file for file in path.glob("OPTIONS-*") if file.suffix == "")
    if not files:
        raise CorruptData(where=str(path), why="its OPTIONS file is missing")
    return files[-1]


def open_database(path: Path, options: StoreOptions) -> Database:
    """Open an existing database.

    Raises:
        CorruptData: something in it is missing or damaged; says which file, as far as RocksDB does.
        DirectoryInUse: an iterator or handle of an earlier open is still alive in this process.
        DiskFull: no space to open.
    """
    _check_config(path)
    check_database(path)
    newest = newest_options(path)
    state_cache = Cache(options.cache_bytes - options.cache_bytes // _LOG_CACHE_SHARE)
    log_cache = Cache(options.cache_bytes // _LOG_CACHE_SHARE)
    database, families = calling(lambda: Options.load_latest(str(path), cache=state_cache), opening_error(str(newest)))
    if not {*FAMILIES, "default"} <= set(families):
        raise CorruptData(where=str(newest), why=f"it names the families {', '.join(sorted(families))}")
    _tune_database(database, options)
    _tune_log(families["log"], options, log_cache)
    _tune_state(families["state"], options, state_cache)
    for name in ("meta", "default"):
        _tune_small(families[name])
    root = calling(lambda: Rdict(str(path), database, families), opening_error(str(path)))
    opened = Database(
        root=root,
        log=root.get_column_family("log"),
        state=root.get_column_family("state"),
        meta=root.get_column_family("meta"),
        log_cache=log_cache,
        state_cache=state_cache,
    )
    lost = lost_options(newest_options(path).read_text())
    if lost:
        close_database(opened)
        raise CorruptData(where=str(newest), why=f"it lost {', '.join(lost)}")
    return opened


def close_database(database: Database) -> str | None:
    """Write out what has no journal and let the files go; return why not all of it was written, if so."""
    failures: list[str] = []
    for handle in (database.log, database.state, database.meta, database.root):
        try:
            handle.close()
        except Exception as error:  # noqa: BLE001 - rocksdict raises nothing narrower
            failures.append(str(error))
    return failures[0] if failures else None


def open_files_max(process_limit: int) -> int:
    """Return how many tables may stay open where the process may have `process_limit` files, -1 for any number.

    A segment has files of its own, so there are hundreds; opening one again for each read costs three times the read.
    """
    left = process_limit // _OPEN_FILES_PARTS if process_limit >= 0 else _OPEN_FILES_MAX
    return max(_OPEN_FILES_MIN, min(left, _OPEN_FILES_MAX))


def _check_config(path: Path) -> None:
    """Refuse a database whose rocksdict settings are gone: keys would be read in another encoding."""
    file = path / _CONFIG
    try:
        config = json.loads(file.read_bytes())
    except (OSError, ValueError) as error:
        raise CorruptData(where=str(file), why=f"it cannot be read ({error})") from error
    if not isinstance(config, dict) or config.get("raw_mode") is not True:
        raise CorruptData(where=str(file), why="it does not say raw_mode")


def _tune_database(options: Options, wanted: StoreOptions) -> None:
    options.create_if_missing(create_if_missing=False)
    options.create_missing_column_families(create_missing_cfs=False)
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_max_total_wal_size(wanted.journal_bytes_max)
    options.set_db_write_buffer_size(wanted.buffers_bytes_max)
    options.set_max_background_jobs(_JOBS)
    options.set_max_open_files(open_files_max(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
    options.set_bytes_per_sync(MIB)
    options.set_skip_stats_update_on_db_open(True)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    options.set_keep_log_file_num(4)
    options.set_max_log_file_size(4 * MIB)
    options.set_max_manifest_file_size(64 * MIB)


def _tune_log(options: Options, wanted: StoreOptions, cache: Cache) -> None:
    """The log: large values, written once, read in runs; merging late costs less than merging often."""
    options.set_write_buffer_size(wanted.log_buffer_bytes)
    options.set_max_write_buffer_number(3)
    options.set_compression_type(DBCompressionType.none())
    options.set_target_file_size_base(64 * MIB)
    options.set_max_bytes_for_level_base(512 * MIB)
    options.set_level_zero_slowdown_writes_trigger(1_000)
    options.set_level_zero_stop_writes_trigger(2_000)
    options.set_soft_pending_compaction_bytes_limit(1_024 * GIB)
    options.set_hard_pending_compaction_bytes_limit(2_048 * GIB)
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_block_size(16 * KIB)
    table.set_cache_index_and_filter_blocks(True)  # bounded; held by each open file they would grow with the log
    table.set_checksum_type(ChecksumType.xxh3())
    table.set_format_version(5)
    options.set_block_based_table_factory(table)


def _tune_state(options: Options, wanted: StoreOptions, cache: Cache) -> None:
    """The state: point reads, most of them for keys that are not there."""
    options.set_write_buffer_size(wanted.state_buffer_bytes)
    options.set_max_write_buffer_number(2)
    options.set_compression_type(DBCompressionType.none())
    options.set_memtable_prefix_bloom_ratio(0.1)
    options.set_memtable_whole_key_filtering(True)
    table = BlockBasedOptions()
    table.set_block_cache(cache)
    table.set_bloom_filter(10, block_based=False)
    table.set_checksum_type(ChecksumType.xxh3())
    table.set_format_version(5)
    options.set_block_based_table_factory(table)


def _tune_small(options: Options) -> None:
    """Few and small rows, or none. After a full disk RocksDB waits until the largest buffer of any family would fit on it."""
    options.set_write_buffer_size(4 * MIB)
    options.set_compression_type(DBCompressionType.none())


BLOCK_BYTES = 32_768
HEAD = Struct("<IHB")
_RECYCLED = frozenset((5, 6, 7, 8, 11, 131))


def check_database(path: Path) -> None:
    """Look at the head of each record in a database that is not open. Raises CorruptData, as `check_records`."""
    for file in (*path.glob("MANIFEST-*"), *path.glob("*.log")):
        check_records(file)


def check_records(file: Path) -> None:
    """Look at the head of each record of a file. Whether records are sound is RocksDB's business.

    Raises:
        CorruptData: RocksDB would not come to the end of it.
    """
    with file.open("rb") as opened:
        size = opened.seek(0, 2)
        if not size:
            return
        with mmap.mmap(opened.fileno(), size, access=mmap.ACCESS_READ) as data:
            at = recycled_at(data)
    if at is not None:
        raise CorruptData(where=str(file), why=f"the record at byte {at} is of a kind that is never written")


def recycled_at(data: bytes | mmap.mmap) -> int | None:
    """Return where the first record begins that belongs into a file that is used again, if there is any."""
    unpack, recycled, head_bytes, size = HEAD.unpack_from, _RECYCLED, HEAD.size, len(data)
    for block in range(0, size, BLOCK_BYTES):
        at, last = block, min(block + BLOCK_BYTES, size) - head_bytes
        while at <= last:
            _, nbytes, kind = unpack(data, at)
            if kind in recycled:
                return at
            if not kind and not nbytes:  # room that was taken in advance: nothing follows in this block
                break
            at += head_bytes + nbytes
    return None
