"""What happened to a group, as its members lived it and as its cache was written. What can be judged at once is judged at once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from eventlog.groups.record import GroupState, decode_committed, decode_group, decode_key

VIOLATIONS_MAX = 20


@dataclass(slots=True, kw_only=True)
class GroupHistory:
    """`done` are the ids that somebody has processed, by segment; `reading` who reads a segment, as far as the members know."""

    segments: int
    log: dict[int, list[int]] = field(default_factory=dict)
    done: dict[int, set[int]] = field(default_factory=dict)
    reading: dict[int, set[str]] = field(default_factory=dict)
    places: dict[int, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)
    commits: int = 0
    state: GroupState | None = None

    def violate(self, what: str) -> None:
        if len(self.violations) < VIOLATIONS_MAX and what not in self.violations:
            self.violations.append(what)

    def begins(self, segment: int, member: str, *, after: int, awake: Iterable[str]) -> None:
        """Note that a member begins to read behind `after`; `awake` are those whose session, as they know it, goes on at this moment."""
        if after < self.places.get(segment, 0):
            self.violate(f"{member} begins to read segment {segment} behind {after}, and {self.places[segment]} is committed")
        others = self.reading.setdefault(segment, set())
        for other in sorted(others.intersection(awake) - {member}):
            self.violate(f"segment {segment} is read by {member} and by {other}, whose session goes on")
        others.add(member)

    def ends(self, segment: int, member: str) -> None:
        self.reading.setdefault(segment, set()).discard(member)

    def processed(self, segment: int, ids: Iterable[int]) -> None:
        self.done.setdefault(segment, set()).update(ids)

    def kept(self, puts: Mapping[bytes, bytes]) -> None:
        """Note what was written into the cache: a commit counts only for whoever has the segment then, and no place goes back."""
        rows = [(decode_key(key), value) for key, value in puts.items()]
        for key, value in rows:
            if key.tag == "g":
                self._keep(decode_group(value))
        for key, value in rows:
            if key.tag != "p":
                continue
            committed = decode_committed(value)
            member, _, epoch = committed.metadata.partition(" ")
            self.commits += 1
            self._check_held(key.segment, member, int(epoch))
            before = self.places.get(key.segment, 0)
            if committed.place.id < before:
                self.violate(f"the place in segment {key.segment} went back from {before} to {committed.place.id}")
            missed = [id_ for id_ in self._missed(key.segment) if id_ <= committed.place.id]
            if missed:
                self.violate(f"segment {key.segment} is committed up to {committed.place.id}, and nobody has processed {missed[0]}")
            self.places[key.segment] = committed.place.id

    def _missed(self, segment: int) -> list[int]:
        done = self.done.get(segment, set())
        return [id_ for id_ in self.log.get(segment, ()) if id_ not in done]

    def _check_held(self, segment: int, member: str, epoch: int) -> None:
        state = self.state
        if state is None or state.holders[segment] != member or state.given[segment] > epoch:
            holder = state.holders[segment] if state is not None else "nobody"
            self.violate(f"a commit of {member}, epoch {epoch}, counted in segment {segment}, which {holder or 'nobody'} has")

    def _keep(self, state: GroupState) -> None:
        if self.state is not None and state.generation < self.state.generation:
            self.violate(f"generation {state.generation} came after {self.state.generation}")
        self.state = state

    def check_end(self) -> list[str]:
        """Return what does not hold when everything has healed and the members have come to the end."""
        for segment, ids in self.log.items():
            missed = self._missed(segment)
            if missed:
                self.violate(f"{len(missed)} events of segment {segment} were never processed, the first {missed[0]}")
            if ids and self.places.get(segment, 0) != ids[-1]:
                self.violate(f"segment {segment} is committed up to {self.places.get(segment, 0)}, and ends at {ids[-1]}")
        return self.violations


def committing(puts: Mapping[bytes, bytes]) -> set[str]:
    """Return who commits places by a write."""
    places = [value for key, value in puts.items() if decode_key(key).tag == "p"]
    return {decode_committed(value).metadata.partition(" ")[0] for value in places}
