"""What must hold of a history, given the logs as they are when everything has healed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from eventlog.control.records import LostRange
from eventlog.ids import ID_STEP
from tests.sim.cores.history import Fate, History, Value

Log = Sequence[Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """The logs at the end by segment: the primary's, those of all owners by node, and the ranges of ids that an operator gave up."""

    final: Mapping[int, Log]
    replicas: Mapping[int, Mapping[int, Log]]
    lost: Mapping[int, Sequence[LostRange]] = field(default_factory=dict)

    def is_lost(self, segment: int, id_: int) -> bool:
        """Return whether what was at this id may be gone."""
        return any(gone.after < id_ <= gone.upto for gone in self.lost.get(segment, ()))


def check(history: History, logs: Logs) -> list[str]:
    """Return what does not hold, as sentences; those that were found on the way come first."""
    events = {segment: _events(log) for segment, log in logs.final.items()}
    _check_order(history, logs.final)
    _check_replicas(history, logs)
    _check_appends(history, events, logs)
    _check_watermarks(history, logs)
    _check_promises(history, logs.final)
    _check_readers(history, events, logs)
    return history.violations


def _events(log: Log) -> dict[int, int]:
    return {value.base + rank * ID_STEP: token for value in log for rank, token in enumerate(value.tokens)}


def _check_order(history: History, final: Mapping[int, Log]) -> None:
    for segment, log in final.items():
        for before, after in pairwise(log):
            if after.base <= before.last:
                history.violate(f"ids of segment {segment} do not rise: {before.last}, then {after.base}")


def _check_replicas(history: History, logs: Logs) -> None:
    for segment, owners in logs.replicas.items():
        final = list(logs.final[segment])
        for node, log in owners.items():
            if list(log) != final:
                same = next((rank for rank, (a, b) in enumerate(zip(log, final, strict=False)) if a != b), min(len(log), len(final)))
                history.violate(
                    f"node {node} holds {len(log)} values of segment {segment}, the primary {len(final)}; they differ from value {same} on"
                )


def _check_appends(history: History, events: Mapping[int, Mapping[int, int]], logs: Logs) -> None:
    places: dict[int, list[tuple[int, int]]] = {}
    for segment, found in events.items():
        for id_, token in found.items():
            places.setdefault(token, []).append((segment, id_))
    for token, append in history.appends.items():
        held = places.get(token, [])
        if append.fate is Fate.ACKNOWLEDGED and (append.segment, append.id) not in held and not logs.is_lost(append.segment, append.id):
            history.violate(f"event {token} was acknowledged as {append.id} of segment {append.segment} and is not there")
        if append.fate is Fate.FAILED and held:
            history.violate(f"event {token} failed and is there: {held}")
        if len(held) > 1:
            history.violate(f"event {token} is there {len(held)} times: {held}")
    for token in sorted(set(places) - set(history.appends)):
        history.violate(f"event {token} was never asked for: {places[token]}")


def _check_watermarks(history: History, logs: Logs) -> None:
    """What was committed once is committed for ever: each watermark told is the end of a value that is there."""
    ends = {segment: {value.last for value in log} | {0} for segment, log in logs.final.items()}
    for (segment, watermark), (node, epoch) in history.told.items():
        if segment in ends and watermark not in ends[segment] and not logs.is_lost(segment, watermark):
            history.violate(f"node {node} showed segment {segment} up to {watermark} in epoch {epoch}; no value ends there now")


def _check_promises(history: History, final: Mapping[int, Log]) -> None:
    for (segment, epoch, last_id), id_ in history.promises.items():
        for value in final.get(segment, ()):
            if value.tokens and value.base <= id_ and value.last > last_id:
                history.violate(
                    f"a primary of epoch {epoch} promised that segment {segment} ends at {last_id} up to {id_}; {value.base} is there"
                )
                break


def _check_readers(history: History, events: Mapping[int, Mapping[int, int]], logs: Logs) -> None:
    gone = [one for ranges in logs.lost.values() for one in ranges]
    everything = {id_: token for found in events.values() for id_, token in found.items()}
    for number, reader in history.readers.items():
        for id_, token in reader.seen.items():
            if everything.get(id_) != token and not any(one.after < id_ <= one.upto for one in gone):
                history.violate(f"reader {number} saw event {token} at {id_}; there is now {everything.get(id_)}")
        missed = [
            id_
            for segment, found in events.items()
            for id_ in found
            if id_ <= reader.position
            and id_ not in reader.seen
            and not any(one.after < id_ <= one.upto for one in logs.lost.get(segment, ()))
        ]
        if missed:
            history.violate(f"reader {number} is at {reader.position} and never saw {len(missed)} events, the first {min(missed)}")
