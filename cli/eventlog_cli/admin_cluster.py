"""`eventlog admin`: members of the cluster, what they hold, and moving it."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from eventlog.errors import TimedOut, Unavailable
from eventlog.ids import id_fields
from eventlog.limits import REPLICAS_MAX
from eventlog_cli.conventions import answers_by_exit_code, common_options, open_operator_client, settings
from eventlog_cli.lazy import SynonymGroup
from eventlog_cli.output import ProgressLine, note, print_row, print_text, table
from eventlog_cli.parameters import DURATION, SEGMENTS, SIZE, Whole, format_size

if TYPE_CHECKING:
    from eventlog.blocking import Client
    from eventlog.client.cluster import Move, NodeInfo, RebalanceInfo

_ASK_EVERY_SECONDS = 0.25
_WAIT_MS_DEFAULT = 24 * 3_600_000
_COMPARED_AT_ONCE = 16
_VERIFY_MS_MAX = 600_000
_MOVES_SHOWN_MAX = 40
EXIT_DIFFERENT = 1


# ---------------------------------------------------------------- members


@click.command("nodes")
@common_options
def nodes() -> None:
    """List the nodes."""
    with open_operator_client() as client:
        found = client.admin.nodes()
    if settings().is_json:
        for node in found:
            print_row({**_node_row(node), "host_label": node.host_label or None, "rack": node.rack or None})
        return
    rows = [tuple(_node_row(node).values()) for node in found]
    print_text(table(("name", "address", "state", "primaries", "segments"), rows))


def _node_row(node: "NodeInfo") -> dict[str, Any]:
    return {
        "name": node.name,
        "address": node.address,
        "state": node.state,
        "primaries": node.primaries,
        "segments": node.segments,
    }


@click.command("drain")
@click.argument("node")
@click.option("--cancel", is_flag=True, help="Stop emptying it; it takes its share again.")
@click.option("--wait/--no-wait", default=True, help="Wait until it is empty.  [default: wait]")
@common_options
def drain(node: str, *, cancel: bool, wait: bool) -> None:
    """Move everything that NODE leads and holds to others, primaries first."""
    with open_operator_client() as client:
        before = client.admin.nodes()
        client.admin.drain(node, cancel=cancel)
        if cancel:
            _say({"node": node, "draining": False}, f"{node} is not being drained any more")
            return
        _warn_of_fewer_copies(node, before, segments=client.segments_count)
        if wait:
            _until_empty(client, node)
        left = _segments_of(client, node)
    done = (
        f"{node} holds nothing: eventlog admin remove {node}, or stop it" if not left else f"{node} is being drained, {left} segments left"
    )
    _say({"node": node, "draining": True, "segments": left}, done)


def _warn_of_fewer_copies(drained: str, nodes: "Sequence[NodeInfo]", *, segments: int) -> None:
    """Say so where the nodes that are left hold fewer copies of each segment than there are now."""
    own = _named(nodes, drained)
    left = sum(not node.gateway and node.state != "draining" and node is not own for node in nodes)
    copies = sum(node.segments for node in nodes) // segments
    if not 0 < left < copies:
        return
    held, had = ("1 node is", "1 copy") if left == 1 else (f"{left} nodes are", f"{left} copies")
    undo = f"eventlog admin drain --cancel {drained}"
    note(f"warning: {held} left to hold data, so each segment will have {had}, not {copies}: add nodes, or {undo}")


@click.command("remove")
@click.argument("node")
@common_options
def remove(node: str) -> None:
    """Remove NODE for ever: it is down, or drained. Others take its segments; a copy that it alone has is never given up."""
    with open_operator_client() as client:
        client.admin.remove(node)
    _say({"node": node, "removed": True}, f"{node} is removed; what it held is copied to others: eventlog admin status --wait 10m")


@click.command("replace")
@click.argument("old")
@click.argument("new")
@click.option("--wait/--no-wait", default=True, help="Wait until NEW has everything.  [default: wait]")
@common_options
def replace(old: str, new: str, *, wait: bool) -> None:
    """Move everything of OLD, dead or alive, to NEW, and nothing else."""
    with open_operator_client() as client:
        before = client.admin.nodes()
        client.admin.replace(old, new)
        _warn_of_fewer_copies(old, before, segments=client.segments_count)
        if wait:
            _until_empty(client, old)
        left = _segments_of(client, old)
    done = f"{old} is being replaced, {left} segments left" if left else f"{new} has what {old} held: eventlog admin remove {old}"
    _say({"old": old, "new": new, "segments": left}, done)


@click.group("set", cls=SynonymGroup)
@common_options
def change() -> None:
    """Change settings of the cluster."""


@change.command("replicas")
@click.argument("replicas", type=Whole(1, REPLICAS_MAX))
@common_options
def set_replicas(replicas: int) -> None:
    """Keep REPLICAS copies of each segment, where there are as many nodes.

    A majority of them is written to: of three, one may be down. With two copies the segments of a node that is down take no writes before
    it is back, or removed; nothing is lost.
    """
    with open_operator_client() as client:
        client.admin.set_replicas(replicas)
    _say({"replicas": replicas}, f"{replicas} replicas; copies are made or dropped now: eventlog admin status --wait 10m")


@click.group("cluster-key", cls=SynonymGroup)
@common_options
def cluster_key() -> None:
    """Replace the key that members prove to know."""


@cluster_key.command("rotate")
@click.option("--overlap", type=DURATION, default="60s", show_default=True, help="How long the key before goes on to hold.")
@common_options
def rotate_cluster_key(overlap: int) -> None:
    """Make a new cluster key, without a stop.

    Members prove the new key to each other on the connections that they have. When the key before has ended, a process that knows it alone
    is no member any more. Nobody is shown a key.
    """
    with open_operator_client() as client:
        client.admin.rotate_key(overlap_ms=overlap)
    _say({"overlap_ms": overlap}, f"the members have a new key; the one before ends in {overlap / 1000:g} s")


def _until_empty(client: "Client", node: str) -> None:
    first = _segments_of(client, node)
    seen: set[str] = set()
    with ProgressLine(f"draining {node}", noun="segments") as progress:

        def is_empty() -> bool:
            found = _named(client.admin.nodes(), node)
            left = 0 if found is None else found.segments
            progress.update(max(first - left, 0), part=1 - left / first if first else 1.0)
            if left and found is not None and "draining" in seen and found.state == "live":
                raise click.ClickException(f"{node} is not being drained any more, and holds {left} segments")
            seen.update(() if found is None else (found.state,))
            return not left

        _wait(is_empty, what=f"{node} to be empty", wait_ms=_WAIT_MS_DEFAULT)


def _segments_of(client: "Client", node: str) -> int:
    found = _named(client.admin.nodes(), node)
    return 0 if found is None else found.segments


def _named(nodes: "Sequence[NodeInfo]", node: str) -> "NodeInfo | None":
    """Return the node of this name, or else whose number it is."""
    by_name = next((found for found in nodes if found.name == node), None)
    return by_name or next((found for found in nodes if str(found.number) == node), None)


# ---------------------------------------------------------------- rebalancing


@click.group("rebalance", cls=SynonymGroup)
@common_options
def rebalance() -> None:
    """Even out what nodes hold: plan, start, status, cancel, verify."""


@rebalance.command("plan")
@common_options
def rebalance_plan() -> None:
    """Say what a rebalancing would move."""
    with open_operator_client() as client:
        moves = client.admin.plan_rebalance()
    if settings().is_json:
        for move in moves:
            print_row(_move_row(move))
        return
    if not moves:
        print_text("load is even: nothing to move")
        return
    _print_moves([(move, move.bytes) for move in moves], "bytes")
    copied = sum(len(set(move.target) - set(move.owners)) for move in moves)
    size = format_size(sum(move.bytes for move in moves))
    print_text(f"{len(moves)} segments would move, {copied} copies of {size} be made: eventlog admin rebalance start")


def _move_row(move: "Move") -> dict[str, Any]:
    return {"segment": move.segment, "owners": list(move.owners), "target": list(move.target), "bytes": move.bytes}


def _print_moves(moves: "Sequence[tuple[Move, int]]", figure: str) -> None:
    rows = [(move.segment, ",".join(move.owners), ",".join(move.target), nbytes) for move, nbytes in moves[:_MOVES_SHOWN_MAX]]
    print_text(table(("segment", "owners", "would be", figure), rows))
    if len(moves) > _MOVES_SHOWN_MAX:
        print_text(f"... and {len(moves) - _MOVES_SHOWN_MAX} more (all with --json)")


@rebalance.command("start")
@click.option("--throttle", "throttle_bytes", type=SIZE, default=0, help="Bytes a second that its copies may take together; 0: no limit.")
@click.option("--wait", is_flag=True, help="Wait until it is done.")
@common_options
def rebalance_start(*, throttle_bytes: int, wait: bool) -> None:
    """Begin to even out load; it goes on whichever node dies."""
    if wait:
        answers_by_exit_code()
    with open_operator_client() as client:
        begun = client.admin.start_rebalance(throttle_bytes=throttle_bytes)
        if wait and begun:
            _until_rebalanced(client)
        found = client.admin.rebalance_status()
    if not begun:
        _say(_rebalance_row(found), "load is even: nothing to move")
    else:
        _say(_rebalance_row(found), f"{found.state}: {found.moves_done} of {found.moves_total} segments moved")
    if begun and wait and found.state != "done":
        click.get_current_context().exit(EXIT_DIFFERENT)


def _until_rebalanced(client: "Client") -> None:
    with ProgressLine("rebalancing", noun="segments") as progress:
        _wait(lambda: _is_rebalanced(client, progress), what="the rebalancing to be done", wait_ms=_WAIT_MS_DEFAULT)


def _is_rebalanced(client: "Client", progress: ProgressLine) -> bool:
    found = client.admin.rebalance_status()
    progress.update(found.moves_done, part=found.moves_done / found.moves_total if found.moves_total else None)
    return found.state != "running"


@rebalance.command("status")
@common_options
def rebalance_status() -> None:
    """Say how far the last rebalancing is."""
    with open_operator_client() as client:
        found = client.admin.rebalance_status()
    if settings().is_json:
        print_row(_rebalance_row(found))
        return
    print_text(f"{found.state}, {found.moves_done} of {found.moves_total} segments, {_of(found)}")
    if found.moving:
        _print_moves([(move, move.copied) for move in found.moving], "copied")


def _of(found: "RebalanceInfo") -> str:
    seconds = max(time.time() - found.started_ms / 1_000, 1e-3)
    rate = found.bytes_done / seconds if found.state == "running" else 0
    left = f", {format_size(int(rate))}/s, about {(found.bytes_total - found.bytes_done) / rate:.0f} s left" if rate else ""
    return f"{format_size(found.bytes_done)} of {format_size(found.bytes_total)}{left}"


def _rebalance_row(found: "RebalanceInfo") -> dict[str, Any]:
    return {
        "state": found.state,
        "moves_total": found.moves_total,
        "moves_done": found.moves_done,
        "bytes_total": found.bytes_total,
        "bytes_done": found.bytes_done,
        "throttle_bytes": found.throttle_bytes,
        "moving": [move.segment for move in found.moving],
    }


@rebalance.command("cancel")
@common_options
def rebalance_cancel() -> None:
    """Stop; nothing is lost, every segment keeps its copies."""
    with open_operator_client() as client:
        client.admin.cancel_rebalance()
        found = client.admin.rebalance_status()
    _say(_rebalance_row(found), f"cancelled after {found.moves_done} of {found.moves_total} segments")


@rebalance.command("verify")
@common_options
def rebalance_verify() -> None:
    """Compare all copies by checksum; exit with 1 on a difference, or where there was nothing to compare a copy with."""
    verify_copies()


def verify_copies(chosen: Sequence[int] | None = None) -> None:
    """Print the checksum of every copy of the segments chosen, or of all, and which copies that there should be were not compared.

    Exit with 1 if two of a segment differ, or only one of several was compared.
    """
    answers_by_exit_code()
    copies, different, alone, missing = 0, [], 0, Counter[str]()
    with open_operator_client() as client, ProgressLine("comparing", noun="segments") as progress:
        segments = list(range(client.segments_count)) if chosen is None else list(chosen)
        owners = {segment.segment: set(segment.owners) for segment in client.segments()}
        for begin in range(0, len(segments), _COMPARED_AT_ONCE):
            some = segments[begin : begin + _COMPARED_AT_ONCE]
            seen: dict[int, set[tuple[int, ...]]] = {segment: set() for segment in some}
            held: dict[int, set[str]] = {segment: set() for segment in some}
            for copy in client.admin.compare_copies(some, timeout_ms=_VERIFY_MS_MAX):
                copies += 1
                held[copy.segment].add(copy.node)
                seen[copy.segment].add((copy.events, copy.last_id, copy.digest, copy.entries, copy.state_digest))
                if settings().is_json:
                    names = {"segment": copy.segment, "node": copy.node, "events": copy.events}
                    digests = {"digest": f"{copy.digest:08x}", "entries": copy.entries, "state_digest": f"{copy.state_digest:016x}"}
                    print_row({**names, **id_fields(last_id=copy.last_id or None), **digests})
            different += [segment for segment, digests in seen.items() if len(digests) != 1]
            for segment, nodes in held.items():
                left = owners[segment] - nodes
                missing.update(left)
                alone += len(nodes) == 1 and bool(left)
            progress.update(begin + len(some), part=(begin + len(some)) / len(segments))
    if not settings().is_json:
        for segment in different:
            print_text(f"different, or not readable: segment {segment}")
        print_text(f"{copies} copies of {len(segments)} segments compared: {'all equal' if not different else f'{len(different)} differ'}")
    if missing:
        by_node = ", ".join(f"{count} of {name}" for name, count in sorted(missing.items()))
        note(f"not compared, as out of sync or not reached: copies {by_node}")
    if alone:
        note(f"{alone} segments had one copy alone to read, and nothing to compare it with")
    if different or alone:
        click.get_current_context().exit(EXIT_DIFFERENT)


# ---------------------------------------------------------------- the last resort


@click.command("force-primary")
@click.argument("segments", required=False)
@click.argument("node", required=False)
@click.option("--all-lost", is_flag=True, help="Every segment that nobody in sync can lead.")
@click.option("--dry-run", is_flag=True, help="Only say which nodes could lead, and what may be lost.")
@click.option("--accept-data-loss", is_flag=True, help="Give up the committed events that the chosen replica lacks.")
@common_options
def force_primary(segments: str | None, node: str | None, *, all_lost: bool, dry_run: bool, accept_data_loss: bool) -> None:
    """Let NODE lead SEGMENTS (17 or 0,3-7) although it may lack committed events; the lost range is recorded for ever.

    Without NODE each segment's longest log is taken. Only where no in-sync replica is left. `--dry-run` says for NODE what
    may be lost, and where another node's log is longer; without NODE it does so for every node that could lead.
    """
    if "" in (segments, node):  # a variable that is not set must not mean any node, or all segments
        raise click.UsageError("an argument is empty: name segments and a node, or leave the node out")
    if all_lost and segments and node is None:
        segments, node = None, segments
    if all_lost == bool(segments):
        raise click.UsageError("name segments, or pass --all-lost")
    try:
        chosen = None if all_lost else SEGMENTS.convert(segments, None, None)
    except click.BadParameter as error:
        raise click.BadParameter(error.message, param_hint="'SEGMENTS'") from error
    with open_operator_client() as client:
        found = client.admin.force_primary(chosen, node=node or "", dry_run=dry_run, accept_data_loss=accept_data_loss)
    for replica in found:
        if settings().is_json:
            ids = id_fields(last_id=replica.last_id, upto=replica.upto)
            chosen_row = {"chosen": replica.chosen, "why_not": replica.why_not or None, "longer": replica.longer or None}
            print_row({"segment": replica.segment, "node": replica.node, **ids, **chosen_row})
        elif replica.why_not:
            print_text(f"segment {replica.segment}: not {replica.node}: {replica.why_not}")
        else:
            verb = ("would lead" if dry_run else "leads") if replica.chosen else "could lead" if dry_run else "was not taken"
            longer = f"; the log of {replica.longer} is longer" if replica.longer else ""
            print_text(f"segment {replica.segment}: {replica.node} {verb}; ids in ({replica.last_id}, {replica.upto}] may be lost{longer}")
    if not found and not settings().is_json:
        print_text("no segment needs it")


# ---------------------------------------------------------------- waiting and saying


def _wait(is_done: Callable[[], bool], *, what: str, wait_ms: int) -> None:
    deadline = time.monotonic() + wait_ms / 1_000
    while True:
        try:
            if is_done():
                return
        except Unavailable:
            pass  # a node that was asked goes away in between; another one answers
        if time.monotonic() >= deadline:
            raise TimedOut(what=what, timeout_ms=wait_ms)
        time.sleep(_ASK_EVERY_SECONDS)


def _say(row: dict[str, Any], text: str) -> None:
    if settings().is_json:
        print_row(row)
    else:
        print_text(text)


COMMANDS: tuple[click.Command, ...] = (nodes, drain, remove, replace, change, rebalance, force_primary, cluster_key)
