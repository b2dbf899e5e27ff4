"""The first half of a group's way: frames joined by cache, checked, put in sequence, and turned into what will be stored.

Nothing here waits. What has to be read before anybody can say what a frame does is named by a draft's `missing`; whoever has read it
gives it to `found`. All segments of the frames have nothing in flight, so what is read is all there is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from eventlog.batch.check import BadBlocks, Bounds
from eventlog.batch.entries import decode_entry
from eventlog.errors import BadBlock, CacheDropped, EventLogError, SequenceGap, TooLarge
from eventlog.interceptor import INTERCEPTORS, Share, admit, lay_out, plan_reads
from eventlog.interceptor.producers import Verdict
from eventlog.node.writing.groups import Joined, Pending, join_frames
from eventlog.node.writing.overlay import Overlay, find_held
from eventlog.node.writing.results import Part
from eventlog.segment.keys import entry_prefix
from eventlog.segment.port import Store


@dataclass(slots=True, kw_only=True, eq=False)
class Draft:
    """The frames of one cache in a group. `missing`: state keys that only the store can tell; `wanted`: keys by state key."""

    joined: Joined
    share: Share
    verdict: Verdict
    wanted: dict[bytes, bytes] = field(default_factory=dict)
    found: dict[bytes, bytes | None] = field(default_factory=dict)
    missing: list[bytes] = field(default_factory=list)


class Drafter:
    """Makes drafts of frames, and parts of drafts; refuses what cannot be written. `put_back` takes frames for the next group."""

    def __init__(self, *, overlay: Overlay, store: Store, bounds: Bounds, put_back: Callable[[Sequence[Pending]], None]) -> None:
        self._overlay = overlay
        self._store = store
        self._bounds = bounds
        self._put_back = put_back

    def drafts(self, frames: list[Pending], *, now: int) -> list[Draft]:
        """Return a draft for each cache of which something can be written."""
        if len(frames) == 1:
            draft = self._draft(frames, now=now)
            return [] if draft is None else [draft]
        by_cache: dict[int, list[Pending]] = {}
        for pending in frames:
            by_cache.setdefault(pending.cache.cache_id, []).append(pending)
        return [draft for own in by_cache.values() if (draft := self._draft(own, now=now)) is not None]

    def _draft(self, frames: list[Pending], *, now: int) -> Draft | None:
        cache = frames[0].cache
        if cache.dropped:
            refuse(frames, CacheDropped(cache=cache.name))
            return None
        joined, share = self._admit(frames, now=now)
        if joined is None or share is None:
            return None
        draft = Draft(joined=joined, share=share, verdict=cache.producers.sort_out(share, joined.blocks))
        wanted = plan_reads(share)
        if wanted:
            prefixes = {segment: entry_prefix(segment, cache.cache_id) for segment in set(wanted.values())}
            draft.wanted = {prefixes[segment] + key: key for key, segment in wanted.items()}
            draft.found, draft.missing = find_held(self._overlay, self._store, list(draft.wanted))
        return draft

    def _admit(self, frames: list[Pending], *, now: int) -> tuple[Joined | None, Share | None]:
        """Check all blocks in one pass; frames with bad ones are refused and the rest is checked again."""
        cache = frames[0].cache
        while frames:
            joined = join_frames(frames, now=now)
            try:
                return joined, admit(joined.submitted, rules=cache.rules, table=cache.keys, bounds=self._bounds)
            except BadBlocks as error:
                frames = _refuse_bad(joined, error)
        return None, None

    def part(self, draft: Draft) -> Part | None:
        """Run the interceptors; None where an entry is damaged: nothing can be said about its key, the node serves the others."""
        joined, share, verdict = draft.joined, draft.share, draft.verdict
        if draft.wanted:
            where = f"cache {share.rules.cache_id}"
            try:
                for state_key, key in draft.wanted.items():
                    data = draft.found[state_key]
                    share.entries[key] = None if data is None else decode_entry(data, where=where)
            except EventLogError as error:
                refuse_share(joined.frames, share, error)
                return None
        postponed = self._postpone(joined, share, verdict) if verdict.deferred else frozenset()
        for intercept in INTERCEPTORS:
            intercept(share)
        return Part(joined=joined, share=share, verdict=verdict, postponed=postponed, stamped=lay_out(share))

    def _postpone(self, joined: Joined, share: Share, verdict: Verdict) -> frozenset[int]:
        """Put frames that repeat a frame of this very group back; the next group of their segments answers them."""
        postponed = set()
        for index, (low, high) in enumerate(pairwise(joined.blocks)):
            late = verdict.deferred & set(range(low, high))
            if late and not share.live[low:high].any():
                postponed.add(index)
                continue
            for block in late:
                segment, sequence = int(joined.submitted.segments[block]), int(joined.submitted.sequences[block])
                producer = int(joined.submitted.producers[block])
                share.refuse(block, SequenceGap(producer=producer, segment=segment, found=sequence, last=sequence))
        self._put_back([joined.frames[index] for index in sorted(postponed)])
        return frozenset(postponed)


def refuse(frames: Sequence[Pending], error: EventLogError) -> None:
    """Tell frames that nothing of them is written, or whatever `error` says."""
    for pending in frames:
        pending.done(error)


def refuse_share(frames: Sequence[Pending], share: Share, error: EventLogError) -> None:
    """Refuse frames of one cache; their sequences may come again."""
    frames[0].cache.producers.give_back(share)
    refuse(frames, error)


def _refuse_bad(joined: Joined, error: BadBlocks) -> list[Pending]:
    """Refuse the frames that hold bad blocks; return the others."""
    found = dict(error.found)
    good = []
    for index, pending in enumerate(joined.frames):
        bad = next((block for block in range(joined.blocks[index], joined.blocks[index + 1]) if block in found), None)
        if bad is None:
            good.append(pending)
            continue
        why, segment = found[bad], int(joined.submitted.segments[bad])
        pending.done(why if isinstance(why, TooLarge) else BadBlock(segment=segment, block=bad - joined.blocks[index], why=why))
    return good
