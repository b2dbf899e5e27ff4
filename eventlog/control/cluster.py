"""The driver: reads records, lets the pure modules plan, commits, and on a conflict does so again.

At start, in this order: `open_or_create`, `join`, `appoint`, `renew_lease`; then `renew_lease` every second, `release` at a clean
stop. One task calls these; `watch`, `decide` and `carry_out` may run beside it. A term that another node gave to this one is told by
`lead` before anything is stamped in it. The caches have a driver of their own: `cache_records.CacheRecords`.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from eventlog.clock import Clock, Entropy
from eventlog.control.appointment import RECORDS_PER_COMMIT_MAX, next_appointments, segments_to_start
from eventlog.control.membership import Joining, NodeLabels, check_own, lost_segments, plan_ceiling, plan_join
from eventlog.control.metastore import Listing, MetaStore
from eventlog.control.proposals import InSyncChange, Outcome, Proposals, plan_batch
from eventlog.control.records import (
    CLUSTER_KEY,
    IDENTITY_KEY,
    MOVED_KEY,
    NODE_PREFIX,
    SEGMENT_PREFIX,
    SETTINGS_KEY,
    ClusterIdentity,
    ClusterKey,
    ClusterSettings,
    CommitPlan,
    Moved,
    NodeRecord,
    Remembered,
    SegmentRecord,
    Versioned,
    decode,
    encode,
    node_key,
    segment_key,
)
from eventlog.control.view import PREFIXES, ClusterView, read_nodes, read_segments, read_view
from eventlog.errors import InvalidArgument, MetadataConflict, MetadataLost, MetadataMoved, MetadataUnavailable, WrongCluster
from eventlog.ids import FlakeClock
from eventlog.limits import REPLICAS_DEFAULT, SEGMENTS_MAX

CONFLICTS_MAX = 32  # more nodes than that do not start in one moment
_READ_SINGLY_MAX = 4  # more records than that are read as one listing
TOKEN_BYTES = 8
KEY_BYTES = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnMember:
    """This process as the cluster knows it. `clock` is its only source of ids, above all that its number ever issued.

    It leads a segment only in terms that were given to its `session`.
    """

    number: int
    name: str
    address: str
    incarnation: str
    session: str
    clock: FlakeClock


class ClusterRecords:
    """What one node knows and changes of the cluster's records. `where` names the store in errors."""

    def __init__(self, store: MetaStore, *, incarnation: str, entropy: Entropy, where: str) -> None:
        self._store = store
        self._incarnation = incarnation
        self._entropy = entropy
        self._where = where
        self._identity: ClusterIdentity | None = None
        self._member: OwnMember | None = None
        self._own: Versioned[NodeRecord] | None = None  # the own record as last seen
        self._led: dict[int, int] = {}  # segment -> epoch of the terms this process was appointed for
        self._read: dict[int, int] = {}  # segment -> epoch, as read after the own record: what ends a later term rewrites that
        self._revision = 0
        self._number = 0  # that the data directory remembers

    @property
    def identity(self) -> ClusterIdentity:
        """Return the cluster's identity, known after `open_or_create`."""
        assert self._identity is not None, "open_or_create comes first"
        return self._identity

    @property
    def member(self) -> OwnMember:
        """Return this node, known after `join`."""
        assert self._member is not None, "join comes first"
        return self._member

    @property
    def acknowledged(self) -> int:
        """Return an id that this directory's log had reached when an earlier process renewed its lease, 0 for none."""
        return self._seen_own().record.acknowledged

    @property
    def unreadable(self) -> bool:
        """Return whether an earlier process met a damaged file in this directory."""
        return self._seen_own().record.unreadable

    def remember(self) -> Remembered:
        """Return what the data directory should keep, to be passed to the next process's `open_or_create`."""
        number = self._member.number if self._member else 0
        return Remembered(
            cluster=self.identity.cluster,
            incarnation=self._incarnation,
            node=number,
            revision=self._revision,
            copies=self.identity.copies,
        )

    # ------------------------------------------------------------ start

    async def open_or_create(
        self, *, segments: int, now_ms: int, remembered: Remembered | None, replicas: int = REPLICAS_DEFAULT
    ) -> ClusterIdentity:
        """Return the cluster's identity, which is made if there is none and the data directory remembers none.

        `segments`, `replicas` and `now_ms` (since 1970) are used for a new cluster alone.

        Raises:
            MetadataLost: the store is empty, or older than what was remembered.
            MetadataMoved: it was left for another.
            WrongCluster: the store is another cluster's.
            InvalidArgument: `segments` is not a power of two up to `SEGMENTS_MAX`.
        """
        if not 0 < segments <= SEGMENTS_MAX or segments & (segments - 1):
            raise InvalidArgument(why=f"segments {segments} is not a power of two from 1 to {SEGMENTS_MAX}")
        await self._check_not_moved()
        identity = await self._read_identity()
        if remembered is not None:
            self._compare(identity, remembered)
            self._number = remembered.node
        for _ in range(CONFLICTS_MAX):
            if identity is not None:
                self._identity = identity
                await self._make_key()
                return identity
            fresh = ClusterIdentity(cluster=self._token(), segments=segments, created_ms=now_ms)
            try:
                settings = encode(ClusterSettings(replicas=replicas))
                await self._commit(CommitPlan(expect={IDENTITY_KEY: 0}, puts={IDENTITY_KEY: encode(fresh), SETTINGS_KEY: settings}))
                identity = fresh
            except MetadataConflict:
                identity = await self._read_identity()
        raise MetadataConflict(key=IDENTITY_KEY)

    async def _make_key(self) -> None:
        """See that there is a cluster key: a rebuilt store has none, and one that an earlier version made."""
        if await self._store.get(CLUSTER_KEY) is None:
            with suppress(MetadataConflict):  # another node's will do
                made = ClusterKey(key=self._entropy.token(KEY_BYTES))
                await self._commit(CommitPlan(expect={CLUSTER_KEY: 0}, puts={CLUSTER_KEY: encode(made)}))

    async def _check_not_moved(self) -> None:
        for item in (await self._list(MOVED_KEY)).items:
            to = decode(item.value, Moved, where=item.key).to
            raise MetadataMoved(where=self._where, to=to)

    async def _read_identity(self) -> ClusterIdentity | None:
        found = [item for item in (await self._list(IDENTITY_KEY)).items if item.key == IDENTITY_KEY]
        return decode(found[0].value, ClusterIdentity, where=IDENTITY_KEY) if found else None

    def _compare(self, identity: ClusterIdentity | None, remembered: Remembered) -> None:
        if identity is None:
            raise MetadataLost(where=self._where, why=f"it is empty, and this node belongs to cluster {remembered.cluster}")
        if identity.cluster != remembered.cluster:
            raise WrongCluster(where=f"metadata at {self._where}", theirs=identity.cluster, ours=remembered.cluster)
        if identity.copies < remembered.copies:
            raise MetadataLost(where=self._where, why="it is an older copy: this node has seen the store that its records were moved to")
        if identity.copies == remembered.copies and self._revision < remembered.revision:
            why = f"it is an older copy, at revision {self._revision}; this node has seen {remembered.revision}"
            raise MetadataLost(where=self._where, why=why)

    async def displaced(self, *, name: str, address: str) -> NodeRecord | None:
        """Return the member whose place `join` would take: of this directory or a copy of it at another address, or else of this name."""
        members = [node.record for node in read_nodes(await self._list(NODE_PREFIX)).values() if not node.record.removed_id]
        own = next((member for member in members if member.incarnation == self._incarnation), None)
        if own is not None and own.address != address:
            return own
        return next((member for member in members if member.name == name and member is not own), None)

    async def join(self, *, name: str, address: str, clock: Clock, labels: NodeLabels | None = None) -> OwnMember:
        """Become a member, or be one again; return it with its clock, above the ceiling of its number, and without a lease yet.

        Raises:
            BadConfig: the name cannot be used.
            MemberReplaced: the data directory's member was removed, or is another directory's now; nothing was committed.
            NodeNumbersExhausted: there are too many members.
        """
        session = self._token()
        joining = Joining(
            name=name,
            address=address,
            incarnation=self._incarnation,
            session=session,
            number=self._number,
            labels=labels or NodeLabels(),
        )
        for _ in range(CONFLICTS_MAX):
            nodes = read_nodes(await self._list(NODE_PREFIX))
            record, plan = plan_join(nodes, joining)
            try:
                self._own = Versioned(record, await self._commit(plan))
            except MetadataConflict:
                continue
            flake_clock = FlakeClock(clock, node=record.number)
            flake_clock.start_above(record.ceiling)
            self._member = OwnMember(
                number=record.number, name=name, address=address, incarnation=self._incarnation, session=session, clock=flake_clock
            )
            return self._member
        raise MetadataConflict(key=NODE_PREFIX)

    async def appoint(self, *, accepts_loss: bool = False) -> list[SegmentRecord]:
        """Make this node primary of its segments, and of all that a new cluster has, each under a new epoch; return their records.

        The clock is above their floors afterwards. What was committed before an error holds; call again.

        Raises:
            LostDisk: acknowledged events of its segments are in another data directory, and the loss was not accepted.
        """
        nonce = self._token()
        for _ in range(CONFLICTS_MAX):
            view = await self.view()
            own = self._check_own(view.nodes.get(self.member.number))
            chosen = segments_to_start(view, own.record, segments=self.identity.segments, accepts_loss=accepts_loss)
            try:
                while plan := next_appointments(view, own.record, segments=chosen, nonce=nonce):
                    view = view.after(plan, await self._commit(plan))
            except MetadataConflict:
                continue
            records = [view.segments[segment].record for segment in sorted(chosen)]
            self._own = view.nodes[self.member.number]
            self._read = _epochs(view.segments)
            for record in records:  # terms that others gave to this process meanwhile are noted already
                self._led[record.segment] = max(self._led.get(record.segment, 0), record.epoch)
            self.member.clock.raise_above(max((record.floor for record in records), default=0))
            return records
        raise MetadataConflict(key=SEGMENT_PREFIX)

    def lead(self, terms: Mapping[int, int]) -> frozenset[int]:
        """Note terms (segment -> epoch) that this process was given, so that a later loss of them is noticed; return those lost already.

        These are over: the node that told of the term lagged behind what was read with the own record, so no renewal would tell of it.
        """
        lost = frozenset(segment for segment, epoch in terms.items() if self._read.get(segment, 0) > epoch)
        self._led |= {segment: epoch for segment, epoch in terms.items() if segment not in lost}
        return lost

    def resign(self, segments: Iterable[int]) -> None:
        """Note that this process leads these segments no more, and has stopped to stamp and promise."""
        for segment in segments:
            self._led.pop(segment, None)

    # ------------------------------------------------------------ once a second, and at the end

    async def renew_lease(self, *, on_lost: Callable[[Sequence[int]], None], acknowledged: int = 0, unreadable: bool = False) -> None:
        """Raise the ceiling in the own record, then in the clock; note there that the log has reached `acknowledged` on disk.

        With `unreadable`, note that a damaged file was met in this directory.

        `on_lost` is called first with segments that this node does not lead any more, if any: when it returns, no id may be
        stamped and no promise given for them.

        Raises:
            MemberReplaced: the record is another directory's now; stop.
            MetadataLost: the store is not what it was.
            MetadataUnavailable: the present ceiling stays; so long as it lasts, go on and try again.
        """
        clock = self.member.clock
        for _ in range(CONFLICTS_MAX):
            own = self._seen_own()
            record, plan = plan_ceiling(  # never lowered, whichever node raised it
                own, max(own.record.ceiling, clock.ceiling_wanted()), acknowledged=acknowledged, unreadable=unreadable
            )
            try:
                self._own = Versioned(record, await self._commit(plan))
            except MetadataConflict:
                await self._read_again(on_lost)
                continue
            clock.set_ceiling(record.ceiling)
            return
        raise MetadataConflict(key=node_key(self.member.number))

    async def _read_again(self, on_lost: Callable[[Sequence[int]], None]) -> None:
        """Read the own record and after it all segments: a move later than the first makes the next commit conflict again."""
        own = self._check_own(read_nodes(await self._list(NODE_PREFIX)).get(self.member.number))
        segments = read_segments(await self._list(SEGMENT_PREFIX))
        self._read = _epochs(segments)
        lost = lost_segments(self._led, segments, number=self.member.number)
        if lost:
            self._led = {segment: epoch for segment, epoch in self._led.items() if segment not in lost}
            on_lost(lost)
        self._own = own

    async def release(
        self, *, on_lost: Callable[[Sequence[int]], None] = lambda _: None, acknowledged: int = 0, unreadable: bool = False
    ) -> None:
        """Give back what is left of the lease: nothing is issued until it is renewed, and the next start begins right above what was.

        `on_lost` is for code that goes on afterwards, as in `renew_lease`.

        Raises:
            MemberReplaced, MetadataUnavailable: the ceiling stays as it is, which does no harm.
        """
        clock = self.member.clock
        clock.set_ceiling(min(clock.ceiling, clock.last + 1))
        for _ in range(CONFLICTS_MAX):
            own = self._seen_own()
            record, plan = plan_ceiling(own, min(own.record.ceiling, clock.last + 1), acknowledged=acknowledged, unreadable=unreadable)
            try:
                self._own = Versioned(record, await self._commit(plan))
            except MetadataConflict:
                await self._read_again(on_lost)
                continue
            return
        raise MetadataConflict(key=node_key(self.member.number))

    def _seen_own(self) -> Versioned[NodeRecord]:
        assert self._own is not None, "join comes first"
        return self._own

    def _check_own(self, found: Versioned[NodeRecord] | None) -> Versioned[NodeRecord]:
        if found is None:  # of a member that was removed something stays
            raise MetadataLost(where=self._where, why=f"the record of {self.member.name} is gone")
        own = self.member
        return check_own(found, number=own.number, name=own.name, incarnation=own.incarnation, session=own.session)

    # ------------------------------------------------------------ any time

    async def view(self) -> ClusterView:
        """Return members, segments and the rest; nodes are read first."""
        return read_view({prefix: await self._list(prefix) for prefix in PREFIXES})

    async def with_nodes(self, view: ClusterView) -> ClusterView:
        """Return a view with the node records as they are now, and all else as it was."""
        listing = await self._list(NODE_PREFIX)
        return replace(view, nodes=read_nodes(listing), revision=max(view.revision, listing.revision))

    async def watch(self) -> AsyncGenerator[ClusterView, None]:
        """Yield the view, then the view after each revision that changes it, until it is closed.

        Raises:
            MetadataUnavailable: the store does not answer; watch again.
        """
        while True:
            view = await self.view()
            yield view
            try:
                async for changes in self._store.watch("", view.revision + 1):
                    self._revision = max(self._revision, changes.revision)
                    after = view.applied(changes)
                    if after is not view:
                        view = after
                        yield view
            except LookupError:
                continue  # revisions were forgotten
            return

    async def decide(
        self,
        proposals: Proposals,
        *,
        seen: Mapping[int, Versioned[SegmentRecord]],
        decided: Callable[[list[Outcome]], None],
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        """Carry out what is proposed, until it is certain what became of all of it; what is added meanwhile goes into the next commit.

        `decided` hears of each change once, `pause` is awaited before one of unknown outcome is tried again. `seen` are the latest
        records known, as in `propose`.
        """
        while changes := proposals.take():
            certain = proposals.settle(await self.propose(changes, seen=seen))
            if certain:
                decided(certain)
            if proposals.is_unsure:
                await pause()

    async def propose(self, changes: Sequence[InSyncChange], *, seen: Mapping[int, Versioned[SegmentRecord]]) -> list[Outcome]:
        """Commit what this node proposes for segments that it leads, at most one change a segment; return one outcome a change.

        `seen` are the records that the proposals were made from. A record that is another now makes a conflict of its own change,
        not of the others. Unavailable metadata are an outcome, too.
        """
        outcomes: dict[int, Outcome] = {}
        for begin in range(0, len(changes), RECORDS_PER_COMMIT_MAX):
            outcomes.update(await self._propose_some(list(changes[begin : begin + RECORDS_PER_COMMIT_MAX]), seen))
        return [outcomes[change.segment] for change in changes]

    async def _propose_some(self, changes: list[InSyncChange], seen: Mapping[int, Versioned[SegmentRecord]]) -> dict[int, Outcome]:
        outcomes: dict[int, Outcome] = {}
        records = {change.segment: seen[change.segment] for change in changes if change.segment in seen}
        for _ in range(CONFLICTS_MAX):
            batch = plan_batch(records, changes, nonce=self._token())
            outcomes |= {outcome.change.segment: outcome for outcome in batch.refused}
            changes = [change for change in changes if change.segment in batch.proposed]
            if batch.plan is None:
                return outcomes
            try:
                revision = await self._commit(batch.plan)
            except MetadataConflict:
                pass
            except (MetadataUnavailable, MetadataLost) as error:
                kind = error.outcome if isinstance(error, MetadataUnavailable) else "unknown"
                return outcomes | {change.segment: Outcome(change=change, kind=kind) for change in changes}
            else:
                return outcomes | {
                    change.segment: Outcome(change=change, kind="committed", record=Versioned(batch.proposed[change.segment], revision))
                    for change in changes
                }
            try:
                now = await self.segments_now([change.segment for change in changes])
            except (MetadataUnavailable, MetadataLost):
                break
            moved = {change.segment for change in changes if now.get(change.segment) != records[change.segment]}
            outcomes |= {
                change.segment: Outcome(change=change, kind="conflict", record=now.get(change.segment))
                for change in changes
                if change.segment in moved
            }
            changes = [change for change in changes if change.segment not in moved]
        return outcomes | {change.segment: Outcome(change=change, kind="none") for change in changes}

    async def segments_now(self, segments: Iterable[int]) -> dict[int, Versioned[SegmentRecord]]:
        """Return the records of some segments as they are in the store, not as they were seen; those that are there.

        Raises:
            MetadataUnavailable, MetadataLost: the store does not answer.
        """
        keys = [segment_key(segment) for segment in segments]
        if len(keys) > _READ_SINGLY_MAX:
            wanted = set(keys)
            items = [item for item in (await self._list(SEGMENT_PREFIX)).items if item.key in wanted]
        else:
            items = [item for key in keys if (item := await self._store.get(key)) is not None]
        records = [Versioned(decode(item.value, SegmentRecord, where=item.key), item.revision) for item in items]
        return {found.record.segment: found for found in records}

    async def led_now(self, terms: Mapping[int, int]) -> frozenset[int]:
        """Return the segments of some terms (segment -> epoch) that are this node's in the store as it is now.

        Ending a term rewrites the own record. So where that is the one seen last, every term that was noted is still this process's,
        however many there are; else the segments' records are read.

        Raises:
            MetadataUnavailable, MetadataLost: the store does not answer.
        """
        seen = self._seen_own().revision
        item = await self._store.get(node_key(self.member.number))
        is_seen = item is not None and item.revision == seen
        led = {segment for segment, epoch in terms.items() if is_seen and self._led.get(segment) == epoch}
        for segment, found in (await self.segments_now(terms.keys() - led)).items():
            if found.record.primary == self.member.number and found.record.epoch == terms[segment]:
                led.add(segment)
        return frozenset(led)

    async def carry_out(self, plan: CommitPlan) -> int:
        """Commit what a pure module planned; return the revision.

        Raises:
            MetadataConflict: a record is another now; read the view again and plan again.
            MetadataUnavailable: nothing was changed, or, with `outcome` "unknown", perhaps.
        """
        return await self._commit(plan)

    def token(self) -> str:
        """Return a nonce that nobody had before."""
        return self._token()

    async def _list(self, prefix: str) -> Listing:
        listing = await self._store.list(prefix)
        self._revision = max(self._revision, listing.revision)
        return listing

    async def _commit(self, plan: CommitPlan) -> int:
        revision = await self._store.commit(plan.expect, puts=plan.puts, deletes=plan.deletes)
        self._revision = max(self._revision, revision)
        return revision

    def _token(self) -> str:
        return self._entropy.token(TOKEN_BYTES).hex()


def _epochs(segments: Mapping[int, Versioned[SegmentRecord]]) -> dict[int, int]:
    return {segment: found.record.epoch for segment, found in segments.items()}
