"""What was acknowledged against what is there. Pure: lists in, findings out."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

PROBLEMS_SHOWN = 3
Entries = dict[bytes, tuple[bytes, int]]  # value and version by key


@dataclass(frozen=True, slots=True, kw_only=True)
class TriedWrite:
    """One write that a writer tried. `id` is None where it was never told what became of it. `value` None is a removal."""

    writer: int
    key: bytes
    value: bytes | None
    id: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenEvent:
    """One event read from the log. `value` None is a removal."""

    id: int
    key: bytes
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One promise, how many things it was checked on, and what broke it."""

    promise: str
    checked: int
    problems: tuple[str, ...]

    @property
    def is_kept(self) -> bool:
        """Whether nothing broke it and there was something to check."""
        return not self.problems and self.checked > 0


def check_log(writes: Sequence[TriedWrite], log: Sequence[SeenEvent]) -> list[Check]:
    """Compare writes, each writer's in its order, with the whole log."""
    acknowledged = [write for write in writes if write.id is not None]
    unknown = [write for write in writes if write.id is None]
    by_id = {seen.id: seen for seen in log}
    times = Counter((seen.key, seen.value) for seen in log)
    tries = Counter((write.key, write.value) for write in writes)
    return [
        Check(
            promise="every acknowledged write is in the log, with its id", checked=len(acknowledged), problems=_missing(acknowledged, by_id)
        ),
        Check(
            promise="no write is in the log twice",
            checked=len(times),
            problems=tuple(
                f"{_name(key)} {value!r} is there {count} times, written {tries[key, value]} times"
                for (key, value), count in times.items()
                if count > max(tries[key, value], 1)
            ),
        ),
        _foreign(writes, log, unknown),
        Check(
            promise="ids rise through the whole log",
            checked=len(log),
            problems=tuple(f"id {after.id} follows {before.id}" for before, after in pairwise(log) if after.id <= before.id),
        ),
        Check(
            promise="the writes of a key have ids in the order of writing", checked=len(acknowledged), problems=_out_of_order(acknowledged)
        ),
    ]


def _missing(acknowledged: Iterable[TriedWrite], by_id: Mapping[int, SeenEvent]) -> tuple[str, ...]:
    problems = []
    for write in acknowledged:
        seen = by_id.get(write.id or 0)
        if seen is None:
            problems.append(f"{_name(write.key)} was acknowledged as {write.id}, which is not there")
        elif (seen.key, seen.value) != (write.key, write.value):
            problems.append(f"id {write.id} holds {_name(seen.key)} {seen.value!r}, not {_name(write.key)} {write.value!r}")
    return tuple(problems)


def _foreign(writes: Sequence[TriedWrite], log: Sequence[SeenEvent], unknown: Sequence[TriedWrite]) -> Check:
    tried = {(write.key, write.value) for write in writes}
    return Check(
        promise=f"nothing is in the log that was not written ({len(unknown)} writes of unknown fate)",
        checked=len(log),
        problems=tuple(f"id {seen.id} holds {_name(seen.key)} {seen.value!r}" for seen in log if (seen.key, seen.value) not in tried),
    )


def _out_of_order(acknowledged: Iterable[TriedWrite]) -> tuple[str, ...]:
    last: dict[tuple[int, bytes], int] = {}
    problems = []
    for write in acknowledged:
        assert write.id is not None, "acknowledged"
        place = write.writer, write.key
        if write.id <= last.get(place, 0):
            problems.append(f"writer {write.writer}, {_name(write.key)}: id {write.id} after {last[place]}")
        last[place] = write.id
    return tuple(problems)


def replay(log: Iterable[SeenEvent]) -> Entries:
    """Return the entries that the events leave behind."""
    entries: Entries = {}
    for seen in log:
        if seen.value is None:
            entries.pop(seen.key, None)
        else:
            entries[seen.key] = seen.value, seen.id
    return entries


def check_state(name: str, log: Iterable[SeenEvent], entries: Entries) -> Check:
    """Compare the entries of a cache with a replay of its events."""
    expected = replay(log)
    different = [key for key in expected.keys() | entries.keys() if expected.get(key) != entries.get(key)]
    return Check(
        promise=f"the entries of {name} equal a replay of its events",
        checked=len(expected),
        problems=tuple(f"{_name(key)} is {entries.get(key)}, replayed {expected.get(key)}" for key in sorted(different)),
    )


def check_rest(after: int, log: Sequence[SeenEvent], rest: Sequence[SeenEvent]) -> Check:
    """Compare what reading after an id gave with the part of the log above it."""
    expected = [seen for seen in log if seen.id > after]
    problems = () if expected == list(rest) else (f"{len(rest)} events were read, {len(expected)} lie above {after}, or they differ",)
    return Check(promise="reading from an id in the middle gives exactly the rest", checked=len(log), problems=problems)


def check_same(cache: str, logs: Mapping[str, Sequence[SeenEvent]]) -> Check:
    """Compare what the nodes give to a reader from the beginning, by node."""
    first, *others = logs
    problems = tuple(
        f"{name} gives {len(logs[name])} events, {first} {len(logs[first])}, or they differ" for name in others if logs[name] != logs[first]
    )
    return Check(
        promise=f"{cache}: all {len(logs)} nodes give the same events in the same order", checked=len(logs[first]), problems=problems
    )


def check_stream(batch: Sequence[SeenEvent], stream: Sequence[SeenEvent]) -> Check:
    """Compare the rows of a stream with those of a batch, both by id."""
    differing = set(batch) ^ set(stream)
    problems = tuple(f"id {seen.id} is in one of them alone, or not the same" for seen in sorted(differing, key=lambda seen: seen.id))
    if len(batch) != len(stream):
        problems += (f"the batch has {len(batch)} rows, the stream {len(stream)}",)
    return Check(promise="a stream from the beginning has the same events as a batch", checked=len(stream), problems=problems)


def check_forgotten(whole: Sequence[SeenEvent], kept: Sequence[SeenEvent]) -> Check:
    """Compare what the nodes still keep with the end of the whole log; `checked` is how many events they keep no more."""
    differs = list(whole[len(whole) - len(kept) :]) != list(kept)
    problems = ("what the nodes keep is not the end of what was read",) if differs else ()
    return Check(promise="what the nodes keep no more is read from the archive", checked=len(whole) - len(kept), problems=problems)


def _name(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")
