"""The first half of a group's way: frames joined by cache, checked, put in sequence, and turned into what will be stored.

Nothing here waits but `read`, which a thread calls for a draft that is not `is_known`. All segments of the frames have nothing in flight,
so what is read is all there is.

A write that was done before and is asked for its old value again gets what the log has (`logged_image`).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from eventlog.batch.check import BadBlocks, BlockLimits
from eventlog.batch.entries import decode_entry
from eventlog.batch.views import decode_value
from eventlog.errors import BadBlock, CacheDropped, CorruptData, EventLogError, SequenceGap, TooLarge
from eventlog.ids import ID_STEP
from eventlog.segment.keys import entry_prefix, log_range
from eventlog.segment.port import Store
from eventlog.state.producers import Verdict
from eventlog.write import INTERCEPTORS, Share, admit, lay_out, plan_reads
from eventlog.write.groups import REPLACING, CachePart, JoinedFrames, Pending, join_frames
from eventlog.write.overlay import Overlay, find_held


@dataclass(slots=True, kw_only=True, eq=False)
class Draft:
    """The frames of one cache in a group. `wanted`: keys by state key; `missing`: state keys that only the store can tell.

    `repeats`: by block, the ids of events written before whose frames want to know, again, what those replaced; `images` says it.
    """

    joined: JoinedFrames
    share: Share
    verdict: Verdict
    wanted: dict[bytes, bytes] = field(default_factory=dict)
    found: dict[bytes, bytes | None] = field(default_factory=dict)
    missing: list[bytes] = field(default_factory=list)
    repeats: dict[int, int] = field(default_factory=dict)
    images: dict[int, bytes | None] = field(default_factory=dict)

    @property
    def is_known(self) -> bool:
        """Whether nothing has to be read before anybody can say what the frames do."""
        return not (self.missing or self.repeats)


class Drafter:
    """Makes drafts of frames, and parts of drafts; refuses what cannot be written. `put_back` takes frames for the next group."""

    def __init__(self, *, overlay: Overlay, store: Store, bounds: BlockLimits, put_back: Callable[[Sequence[Pending]], None]) -> None:
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
        if draft.verdict.answered and cache.options.state:
            draft.repeats = _wanted_again(joined, draft.verdict)
        return draft

    def read(self, draft: Draft) -> None:
        """Read what a draft lacks. May wait for the disk.

        Raises:
            EventLogError: an entry is damaged.
        """
        draft.found.update(zip(draft.missing, self._store.get_many(draft.missing), strict=True))
        cache_id, segments = draft.share.rules.cache_id, draft.share.submitted.segments
        for block, id_ in draft.repeats.items():
            draft.images[block] = logged_image(self._store, cache_id=cache_id, segment=segments.item(block), id_=id_)

    def _admit(self, frames: list[Pending], *, now: int) -> tuple[JoinedFrames | None, Share | None]:
        """Check all blocks in one pass; frames with bad ones are refused and the rest is checked again."""
        cache = frames[0].cache
        while frames:
            joined = join_frames(frames, now=now)
            try:
                return joined, admit(joined.submitted, rules=cache.rules, table=cache.keys, bounds=self._bounds)
            except BadBlocks as error:
                frames = _refuse_bad(joined, error)
        return None, None

    def part(self, draft: Draft) -> CachePart | None:
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
        return CachePart(joined=joined, share=share, verdict=verdict, postponed=postponed, images=draft.images, stamped=lay_out(share))

    def _postpone(self, joined: JoinedFrames, share: Share, verdict: Verdict) -> frozenset[int]:
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


def _wanted_again(joined: JoinedFrames, verdict: Verdict) -> dict[int, int]:
    """Return the ids of events written before whose frames want what they replaced, by the first block of the frame."""
    found = {}
    for pending, block in zip(joined.frames, joined.blocks, strict=False):
        if pending.previous and block in verdict.answered:
            ids, kinds = verdict.answered[block]
            if kinds.item(0) in REPLACING:
                found[block] = ids.item(0)
    return found


def refuse(frames: Sequence[Pending], error: EventLogError) -> None:
    """Tell frames that nothing of them is written, or whatever `error` says."""
    for pending in frames:
        pending.done(error)


def refuse_share(frames: Sequence[Pending], share: Share, error: EventLogError) -> None:
    """Refuse frames of one cache; their sequences may come again."""
    frames[0].cache.producers.give_back(share)
    refuse(frames, error)


def check_frame(pending: Pending, *, bounds: BlockLimits, now: int) -> None:
    """Look at a frame that is to be written later as if it were now.

    Raises:
        BadBlock, TooLarge: it would be refused.
    """
    joined = join_frames([pending], now=now)
    try:
        admit(joined.submitted, rules=pending.cache.rules, bounds=bounds)
    except BadBlocks as error:
        raise _why_bad(joined, *error.found[0], first=0) from error


def _why_bad(joined: JoinedFrames, block: int, why: str | TooLarge, *, first: int) -> EventLogError:
    """Return why a frame is refused whose blocks begin at `first` of the joined ones."""
    return why if isinstance(why, TooLarge) else BadBlock(segment=int(joined.submitted.segments[block]), block=block - first, why=why)


def _refuse_bad(joined: JoinedFrames, error: BadBlocks) -> list[Pending]:
    """Refuse the frames that hold bad blocks; return the others."""
    found = dict(error.found)
    good = []
    for index, pending in enumerate(joined.frames):
        bad = next((block for block in range(joined.blocks[index], joined.blocks[index + 1]) if block in found), None)
        if bad is None:
            good.append(pending)
            continue
        pending.done(_why_bad(joined, bad, found[bad], first=joined.blocks[index]))
    return good


def logged_image(store: Store, *, cache_id: int, segment: int, id_: int) -> bytes | None:
    """Return the value that the event `id_` replaced; None where the log does not have it, any more or undamaged."""
    found = store.last_log(*log_range(segment, cache_id, after=-1, upto=id_))
    if found is None:
        return None
    try:
        value = decode_value(segment, cache_id, found[1])
    except CorruptData:
        return None
    row, rest = divmod(id_ - value.head.base, ID_STEP)
    for block in value.blocks:
        if row < block.count:
            return None if block.before is None or rest else block.before.to_list()[row]
        row -= block.count
    return None
