"""What a run of a pipeline came to, as one object: what its function returns is what its command prints with `--json`.

Nothing heavy is loaded here: the command line has this before it knows which pipeline runs.
"""

import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eventlog.ids import id_fields

if TYPE_CHECKING:
    from eventlog.client.mirrors import MirrorVerification
    from eventlog.integrations.archive.auditing import Audit, FirstDifference, HourDifference
    from eventlog.integrations.archive.merging import Merged
    from eventlog.integrations.archive.rebuilding import Rebuilt
    from eventlog.integrations.archive.rounds import Written
    from eventlog.integrations.rollup import RolledUp


class Took:
    """What a run has taken so far: seconds, and those of this process's CPU; tasks elsewhere are not among them."""

    def __init__(self) -> None:
        self._began, self._used = time.monotonic(), time.process_time()

    @property
    def seconds(self) -> float:
        """Seconds since it began."""
        return round(time.monotonic() - self._began, 3)

    @property
    def row(self) -> dict[str, float]:
        """Both, as each row ends with them."""
        return {"seconds": self.seconds, "cpu_seconds": round(time.process_time() - self._used, 3)}


def archive_row(cache: str, done: "Written", took: Took) -> dict[str, Any]:
    """Return what was archived."""
    return {"pipeline": "archive", "cache": cache} | _with_ids(asdict(done), "after", "upto") | took.row


def compact_row(path: str | Path, done: "Merged", took: Took) -> dict[str, Any]:
    """Return what was merged."""
    return {"pipeline": "compact", "path": str(path)} | _with_ids(asdict(done), "after", "upto") | took.row


def rollup_row(done: "RolledUp", took: Took) -> dict[str, Any]:
    """Return what was counted."""
    return {"pipeline": "rollup"} | _with_ids(asdict(done), "after", "upto") | took.row


def rebuild_row(cache: str, done: "Rebuilt", took: Took, *, into: str | None, to: str | Path | None) -> dict[str, Any]:
    """Return what was made: a cache `into`, or a table at `to`."""
    made = {"into": into} if into is not None else {"to": str(to)}
    return {"pipeline": "rebuild", "cache": cache} | made | _with_ids(asdict(done), "after", "as_of") | took.row


def audit_row(cache: str, found: "Audit", in_topic: "MirrorVerification | None", took: Took) -> dict[str, Any]:
    """Return what was compared, with a mirror's topic where one was."""
    verified, first = found.verified, found.first
    counts = {
        "events": found.events,
        "events_verified": verified.events - verified.undigested,
        "events_undigested": verified.undigested,
        "files": verified.files,
        "rounds": verified.rounds,
    }
    unlike = {
        "differing": found.differing,
        "differences": [_of_hour(one) for one in found.differences],
        "first_difference": None if first is None else _of_hour(first) | id_fields(id=first.id),
        "mirror": None if in_topic is None else in_topic.plain(),
    }
    return {"pipeline": "audit", "cache": cache} | id_fields(after=found.after, upto=found.upto) | counts | unlike | took.row


def load_row(cache: str, took: Took, *, rows: int, files: int, files_before: int) -> dict[str, Any]:
    """Return what was loaded: of so many files now, and of others before."""
    return {"pipeline": "load", "cache": cache, "rows": rows, "files": files, "files_before": files_before} | took.row


def _with_ids(found: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return fields with those that are ids as text, too."""
    told: dict[str, Any] = {}
    for name, value in found.items():
        told |= id_fields(**{name: value}) if name in names else {name: value}
    return told


def _of_hour(one: "HourDifference | FirstDifference") -> dict[str, Any]:
    found = asdict(one)
    columns = {"columns": list(found.pop("columns"))} if "columns" in found else {}  # as JSON has it
    return {"segment": found.pop("segment"), "hour": hour_text(found.pop("hour_ms"))} | found | columns


def hour_text(time_ms: int) -> str:
    """Return the hour that begins at a time, as in 2026-11-20T10:00Z."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:00Z")
