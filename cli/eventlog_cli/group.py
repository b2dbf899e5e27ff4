"""`eventlog group`: consumer groups, how far they are, and moving them."""

import time
from typing import TYPE_CHECKING, Any

import click

from eventlog.ids import id_fields
from eventlog_cli.conventions import common_options, open_client, settings
from eventlog_cli.lazy import SynonymGroup
from eventlog_cli.output import note, print_row, print_text, table
from eventlog_cli.parameters import NUMBER_MAX, SEGMENTS, SHIFT, Parsed, format_seconds, format_size, parse_id, parse_moment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventlog.client.groups import GroupDescription, GroupMove, GroupSegment

GROUP = click.argument("group")
SEGMENTS_SHOWN = 8
To = tuple[str, int | str]


def parse_target(text: str) -> To:
    """Return what `--to` says: an id or word for `to_id`, a moment for `to_time`.

    Raises:
        ValueError: it is neither.
    """
    if text in ("earliest", "latest"):
        return "to_id", text
    if text.isdigit():
        return "to_id", parse_id(text)
    return "to_time", parse_moment(text, now_ms=time.time_ns() // 1_000_000)


TARGET = Parsed("earliest|latest|id|time", parse_target)


@click.group("group", cls=SynonymGroup, synonyms={"remove": "delete", "drop": "delete", "show": "describe", "ls": "list"})
@common_options
def command() -> None:
    """List, describe, reset and delete consumer groups."""


@command.command("list")
@common_options
def list_() -> None:
    """Print every group over each cache that it reads."""
    with open_client() as client:
        found = client.groups.list()
    if settings().is_json:
        for one in found:
            print_row({"group": one.group, "cache": one.cache, "mode": one.mode, "members": one.members, "generation": one.generation})
        return
    rows = [(one.group, one.cache, one.mode, one.members, one.generation) for one in found]
    print_text(table(("group", "cache", "mode", "members", "generation"), rows))


@command.command("describe")
@GROUP
@click.option("--segments", "all_segments", is_flag=True, help="Print every segment, not the latest few alone.")
@common_options
def describe(group: str, *, all_segments: bool) -> None:
    """Print how far GROUP is, which members read it, and how much is left to read.

    With --json always one object a segment.
    """
    with open_client() as client:
        found = client.groups.describe(group)
    for one in found:
        if settings().is_json:
            _print_rows(one)
        else:
            _print_table(one, all_segments=all_segments)


def _print_rows(one: "GroupDescription") -> None:
    for row in one.segments:
        print_row(
            {
                "group": one.group,
                "cache": one.cache,
                "segment": row.segment,
                "member": row.member,
                **id_fields(position=row.id),
                "lag_events": row.lag_events,
                "lag_bytes": row.lag_bytes,
                "lag_seconds": None if row.lag_ms is None else row.lag_ms / 1000,
                "metadata": row.metadata,
            }
        )


def _print_table(one: "GroupDescription", *, all_segments: bool) -> None:
    print_text(f"group {one.group}, cache {one.cache}, mode {one.mode}, assignor {one.assignor}, generation {one.generation}")
    lags: dict[str | None, list[int]] = {}
    for row in one.segments:
        total = lags.setdefault(row.member, [0, 0, 0, 0])
        total[0] += 1
        total[1] += row.lag_events or 0
        total[2] += row.lag_bytes or 0
        total[3] = max(total[3], row.lag_ms or 0)
    names = {member.member: member.instance or member.client or member.member for member in one.members}
    rows = [
        (names.get(member or "", member), count, events, format_size(size), format_seconds(oldest / 1000))
        for member, (count, events, size, oldest) in lags.items()
    ]
    rows += [(names[member.member], 0, 0, format_size(0), format_seconds(0)) for member in one.members if member.member not in lags]
    print_text(table(("member", "segments", "lag events", "lag bytes", "oldest"), rows))
    shown = one.segments
    if not all_segments:
        late = [row for row in shown if row.lag_events or row.lag_events is None]
        shown = sorted(late, key=lambda row: -(row.lag_events if row.lag_events is not None else NUMBER_MAX))[:SEGMENTS_SHOWN]
        if len(late) > len(shown):
            print_text(f"{len(late)} of {len(one.segments)} segments have events left; those with most (all: --segments):")
    if shown:
        heads = ("segment", "member", "position", "lag events", "lag bytes", "oldest")
        print_text(table(heads, [_late_row(row, names) for row in shown]))


def _late_row(row: "GroupSegment", names: dict[str, str]) -> tuple[object, ...]:
    size = None if row.lag_bytes is None else format_size(row.lag_bytes)
    oldest = None if row.lag_ms is None else format_seconds(row.lag_ms / 1000)
    return row.segment, names.get(row.member or ""), row.id, row.lag_events, size, oldest


@command.command("reset")
@GROUP
@click.option("--to", type=TARGET, metavar="earliest|latest|ID|TIME", help="After this id; at this time, or so long ago.")
@click.option(
    "--shift-by", type=SHIFT, metavar="N", help="N events further on in each segment, or back: -N. No further than there are some."
)
@click.option("--cache", "cache_name", help="Only for this cache.")
@click.option("--segments", type=SEGMENTS, help="These segments alone, as in 0,3-7.")
@click.option("--dry-run", is_flag=True, help="Say what would change.")
@common_options
def reset(group: str, *, to: To | None, shift_by: int | None, cache_name: str | None, segments: list[int] | None, dry_run: bool) -> None:
    """Have GROUP go on somewhere else. Refused while it has live members."""
    if (to is None) is (shift_by is None):
        raise click.UsageError("say where GROUP is to go on: --to a place, or --shift-by so many events, and not both")
    goal: dict[str, Any] = {"shift_by": shift_by} if to is None else {to[0]: to[1]}
    with open_client() as client:
        cache_id = client.describe_cache(cache_name).id if cache_name else 0
        moves = client.groups.reset(group, **goal, cache_id=cache_id, segments=segments, dry_run=dry_run)
    if settings().is_json:
        for move in moves:
            ids = id_fields(from_id=move.from_id, to_id=move.to_id)
            events = {} if move.events is None else {"events": move.events}
            print_row({"group": group, "cache": move.cache, "segment": move.segment, **ids, **events, "dry_run": dry_run})
        return
    changed = [move for move in moves if move.from_id != move.to_id]
    is_short = len(changed) <= SEGMENTS_SHOWN
    if not is_short:
        print_text(table(("cache", "segments", "back", "ahead", "from", "to"), _by_cache(changed)))
    elif shift_by is None:
        print_text(table(("cache", "segment", "from", "to"), [(move.cache, move.segment, move.from_id, move.to_id) for move in changed]))
    else:
        rows = [(move.cache, move.segment, move.from_id, move.to_id, move.events) for move in changed]
        print_text(table(("cache", "segment", "from", "to", "events"), rows))
    by = "" if shift_by is None else _by_events(moves, shift_by)
    note(f"{'would move' if dry_run else 'moved'} {len(changed)} of {len(moves)} segments{by}{'' if is_short else ' (each: --json)'}")


def _by_events(moves: "Sequence[GroupMove]", shift_by: int) -> str:
    """Return how far a shift goes in all, and in how many segments it ends at the log's first or last event."""
    events = [move.events or 0 for move in moves]
    short = sum(abs(one) < abs(shift_by) for one in events)
    return f" by {sum(events):+,} events{f'; {short} as far as their logs go' if short else ''}"


def _by_cache(moves: "Sequence[GroupMove]") -> list[tuple[object, ...]]:
    """Return a row a cache: how many segments go back and how many ahead, and between which ids."""
    rows: list[tuple[object, ...]] = []
    for cache in dict.fromkeys(move.cache for move in moves):
        of = [move for move in moves if move.cache == cache]
        back = sum(move.to_id < move.from_id for move in of)
        old, new = ([getattr(move, name) for move in of] for name in ("from_id", "to_id"))
        rows.append((cache, len(of), back, len(of) - back, _span(old), _span(new)))
    return rows


def _span(ids: list[int]) -> str:
    return str(ids[0]) if min(ids) == max(ids) else f"{min(ids)} .. {max(ids)}"


@command.command("delete")
@GROUP
@click.option("--cache", "cache_name", help="Only for this cache.")
@common_options
def delete(group: str, *, cache_name: str | None) -> None:
    """Remove GROUP with its positions. Refused while it has live members."""
    with open_client() as client:
        client.groups.delete(group, cache_id=client.describe_cache(cache_name).id if cache_name else 0)
    if settings().is_json:
        print_row({"group": group, "deleted": True})
    else:
        note(f"deleted group {group}")
