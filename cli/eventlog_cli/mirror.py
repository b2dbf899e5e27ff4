"""`eventlog mirror`: caches written into topics of Kafka, each event once for readers of committed records."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from eventlog.errors import MirrorNotFound
from eventlog.ids import id_fields
from eventlog_cli.conventions import answers_by_exit_code, common_options, open_client, settings
from eventlog_cli.lazy import SynonymGroup
from eventlog_cli.output import note, print_row, print_text, table
from eventlog_cli.parameters import ID, PARAM, POSITIVE, SIZE, SPAN, Parsed, format_seconds, parse_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from eventlog.client.mirrors import AddedMirror, MirrorInfo, MirrorStatus, MirrorVerification, ShardInfo


class ListedMirrors(Protocol):
    """The mirrors of a cluster, as far as `list` asks."""

    def list(self) -> "list[MirrorInfo]": ...

    def status(self, mirror: str, /) -> "MirrorStatus": ...


MIRROR = click.argument("mirror", metavar="NAME")
EXIT_BEHIND = 3
ALTERABLE = ("--interval", "--hold", "--on-too-large")
_ANOTHER = "a topic's records are of one kind throughout: add a mirror with another --name and --topic, and remove this one"
FIXED = {
    **dict.fromkeys(
        ("--format", "--encoding", "--key-field", "--schema", "--registry", "--where", "--select", "--topic", "--prefix"), _ANOTHER
    ),
    "--partitions": "an event's partition follows from it: add a mirror with another --name and --topic, and remove this one",
    "--kafka": "its progress is there: add a mirror with another --name, and remove this one",
    "--from": "it goes on where it is: pause it, and eventlog mirror reset NAME --to",
    "--set": "a topic that is there is never altered: alter it with Kafka's own tools",
}
"""What cannot be altered, and why, with the way out."""
DIFFERENCES_SHOWN = 20


def parse_begin(text: str) -> int | str:
    """Return what `--from` and `--to` say: an id, `earliest`, `latest` or `snapshot`.

    Raises:
        ValueError: it is none of them.
    """
    return text if text in {"earliest", "latest", "snapshot"} else parse_id(text)


BEGIN = Parsed("earliest|latest|snapshot|id", parse_begin)


@click.group("mirror", cls=SynonymGroup, synonyms={"create": "add", "delete": "remove", "drop": "remove", "show": "status", "ls": "list"})
@common_options
def command() -> None:
    """Add, list, verify, alter, pause, resume, reset and remove mirrors of caches in Kafka."""


@command.command("add")
@click.argument("cache_name", metavar="CACHE")
@click.option("--kafka", required=True, metavar="NAME|HOST:PORT", help="A connection of the nodes' files, [kafka.NAME], or a broker.")
@click.option("--name", metavar="NAME", help="The mirror's name.  [default: CACHE]")
@click.option("--topic", metavar="TOPIC", help="The topic, which is made if it is not there.  [default: PREFIX.CACHE]")
@click.option("--prefix", metavar="TEXT", help="Names this cluster in topics and envelopes.  [default: eventlog]")
@click.option("--partitions", type=POSITIVE, help="Of the topic; segment s goes to s modulo this.  [default: 16, or the segments]")
@click.option(
    "--format", "format", type=click.Choice(["debezium", "upsert", "raw"]), help="[default: debezium where it can be, else upsert]"
)
@click.option(
    "--encoding",
    type=click.Choice(["json", "json-schema", "avro"]),
    help="json-schema puts the schema into each record, avro its id in a registry.  [default: json]",
)
@click.option("--key-field", metavar="FIELD", help="Where rows and record keys have the key.  [default: _key]")
@click.option(
    "--schema", metavar="FILE|SUBJECT", help="The type of a JSON cache's values: .avsc, .json (JSON Schema), or a subject's latest."
)
@click.option(
    "--registry", metavar="NAME|URL|internal", help="What has avro's ids: [registry.NAME], a URL, or the cluster.  [default: internal]"
)
@click.option("--tombstones/--no-tombstones", default=True, help="Whether a null value follows a removal.  [default: tombstones]")
@click.option("--from", "from_id", type=BEGIN, default="earliest", help="Everything behind this.  [default: earliest]")
@click.option("--where", metavar="SQL", help="Only events that match this condition.")
@click.option("--select", metavar="FIELDS", help="These fields of the value alone.")
@click.option("--hold", type=SIZE, help="Retention keeps so much of what is not in Kafka yet.  [default: 1GiB]")
@click.option("--interval", "interval_ms", type=SPAN, help="What happens within it becomes one transaction.  [default: 100ms]")
@click.option(
    "--on-too-large",
    type=click.Choice(["halt", "dead-letter"]),
    help="Of what the topic cannot have, or does not fit: stand still, or tell it in TOPIC.dlq.  [default: halt]",
)
@click.option("--set", "topic_settings", type=PARAM, multiple=True, help="A setting of the topic, if it is made; again for more.")
@click.option("--dry-run", is_flag=True, help="Check everything, say what would be, and do nothing.")
@common_options
def add(cache_name: str, *, topic_settings: tuple[tuple[str, Any], ...], select: str | None, schema: str | None, **options: Any) -> None:
    """Write what happens in CACHE into a topic of Kafka, from --from on."""
    for name, value in (options | {"select": select, "schema": schema}).items():
        if value == "":  # a variable of a script that is not set must not mean what is taken where nothing is given
            raise click.UsageError(f"--{name.replace('_', '-')} is empty: leave it out, or give one")
    options["topic_settings"] = {name: value if isinstance(value, str) else str(value).lower() for name, value in topic_settings}
    options["select"] = select.split(",") if select else None
    options |= _schema(schema)
    with open_client() as client:
        added = client.mirrors.add(cache_name, **options)
    if settings().is_json:
        print_row(_fields(added.mirror))
        return
    _tell(added, is_dry=options["dry_run"])


def _schema(given: str | None) -> dict[str, str]:
    """Return what `--schema` says: a file that is there, else a subject."""
    if given is None:
        return {}
    file = Path(given)
    if file.is_file():
        try:
            return {"schema": file.read_text(encoding="utf-8"), "schema_type": "json" if file.suffix == ".json" else "avro"}
        except UnicodeDecodeError as error:
            raise click.BadParameter(f"{given} is not UTF-8", param_hint="--schema") from error
    if "/" in given or file.suffix in {".avsc", ".json"}:
        raise click.BadParameter(f"{given} is no file", param_hint="--schema")
    return {"schema_subject": given}


def _tell(added: "AddedMirror", *, is_dry: bool) -> None:
    mirror, homes = added.mirror, sorted(set(added.nodes))
    word = "would be written" if is_dry else "is written"
    print_text(f"cache {mirror.cache} {word} to topic {mirror.topic} ({mirror.partitions} partitions) of {mirror.kafka}")
    print_text(f"format {mirror.format}, because {added.why_format}; encoding {mirror.encoding}; {_begin(mirror)}")
    spread = ", ".join(f"{added.nodes.count(node)} at node {node}" for node in homes)
    print_text(f"{mirror.shards} shards: {spread}")
    if not is_dry:
        note(f"how far it is: eventlog mirror status {mirror.name}")


def _begin(mirror: "MirrorInfo") -> str:
    return "the entries, and what follows them" if mirror.snapshot else f"everything after id {mirror.from_id}"


def _fields(mirror: "MirrorInfo") -> dict[str, Any]:
    names = ("cache", "topic", "progress_topic", "partitions", "shards", "format", "encoding")
    return {"mirror": mirror.name} | {name: getattr(mirror, name) for name in names}


@command.command("list")
@common_options
def list_() -> None:
    """Print all mirrors, and how many events are not in Kafka yet."""
    with open_client() as client:
        found = shards_of_all(client.mirrors)
    rows = [(one, _worst(one, shards), sum(shard.lag_events for shard in shards)) for one, shards in found]
    if settings().is_json:
        for one, state, lag in rows:
            print_row({**_fields(one), "state": state, "lag_events": lag})
        return
    heads = ("mirror", "cache", "kafka", "topic", "format", "state", "lag")
    print_text(table(heads, [(one.name, one.cache, one.kafka, one.topic, one.format, state, lag) for one, state, lag in rows]))


def shards_of_all(mirrors: "ListedMirrors") -> "list[tuple[MirrorInfo, Sequence[ShardInfo]]]":
    """Return all mirrors and how their shards stand, without those that are removed meanwhile."""
    found = []
    for one in mirrors.list():
        with suppress(MirrorNotFound):
            found.append((one, mirrors.status(one.name).shards))
    return found


def _worst(mirror: "MirrorInfo", shards: "list[ShardInfo] | Any") -> str:
    """Return the state that somebody has to know of: the first of these that a shard has."""
    states = {shard.state for shard in shards}
    return next(
        (one for one in ("halted", "diverged", "trimmed", "ended", "waiting", "snapshot", "starting", "running") if one in states),
        mirror.state,
    )


@command.command("status")
@MIRROR
@click.option(
    "--wait", "wait_ms", type=SPAN, default=0, help="Until all that was written before this is in Kafka; exits with 3 if not in time."
)
@common_options
def status(mirror: str, *, wait_ms: int) -> None:
    """Print how the shards of the mirror NAME stand."""
    answers_by_exit_code()
    with open_client() as client:
        found = client.mirrors.status(mirror, wait_ms=wait_ms)
    if settings().is_json:
        for one in found.shards:
            print_row(
                {
                    "mirror": one.mirror,
                    "shard": one.shard,
                    "node": one.node,
                    "term": one.term,
                    "state": one.state,
                    "position": one.position,
                    **id_fields(position_id=one.position_id or None),
                    "lag_events": one.lag_events,
                    "lag_ms": one.lag_ms,
                    "events_per_second": one.events_per_second,
                    "since_ms": one.since_ms or None,
                    "error": one.why or None,
                }
            )
    else:
        rows = [
            (one.shard, one.node, one.term, one.state, one.position_id, one.lag_events, format_seconds(one.lag_ms / 1000), one.events)
            for one in found.shards
        ]
        print_text(table(("shard", "node", "term", "state", "position", "lag", "oldest", "events"), rows))
        for why in dict.fromkeys(one.why for one in found.shards if one.why):
            print_text(why)
    if found.is_behind:
        raise click.exceptions.Exit(EXIT_BEHIND)


@command.command("verify")
@MIRROR
@click.option("--from", "from_id", type=ID, default=0, help="Only what lies behind this id.")
@click.option("--until", "until_id", type=ID, default=0, help="Only what lies up to this id.")
@common_options
def verify(mirror: str, *, from_id: int, until_id: int) -> None:
    """Compare the topic of the mirror NAME with the log: each event once, and nothing else. Exits with 1 on a difference."""
    answers_by_exit_code()
    with open_client() as client:
        found = client.mirrors.verify(mirror, from_id=from_id, until_id=until_id)
    if settings().is_json:
        print_row(found.plain())
    else:
        tell_verification(found)
    if not found.is_alike:
        raise click.exceptions.Exit(1)


def tell_verification(found: "MirrorVerification") -> None:
    """Print a comparison of topic and log."""
    print_text(f"{found.events} events, {found.records} records, {len(found.differences)} differences, {found.foreign} foreign records")
    heads = ("segment", "offset", "id", "times in the log", "in the topic")
    rows = [(one.segment, one.offset, one.id, one.in_log, one.in_topic) for one in found.differences[:DIFFERENCES_SHOWN]]
    if rows:
        print_text(table(heads, rows))


@command.command("pause")
@MIRROR
@common_options
def pause(mirror: str) -> None:
    """Have the mirror NAME stand still. Retention goes on holding what it has not written."""
    with open_client() as client:
        _say(client.mirrors.pause(mirror), "stands still")


@command.command("resume")
@MIRROR
@click.option("--accept-diverged", is_flag=True, help="Go on where a forced primary gave up events that are in the topic; they stay there.")
@common_options
def resume(mirror: str, *, accept_diverged: bool) -> None:
    """Have the mirror NAME go on: one that is paused, and one that waits for somebody to look after it."""
    with open_client() as client:
        _say(client.mirrors.resume(mirror, accept_diverged=accept_diverged), "goes on")


@command.command("reset")
@MIRROR
@click.option("--to", type=BEGIN, required=True, help="Begin anew behind this.")
@click.option("--dry-run", is_flag=True, help="Say where it would begin, and do nothing.")
@common_options
def reset(mirror: str, *, to: int | str, dry_run: bool) -> None:
    """Have the paused mirror NAME begin anew. What it wrote stays in the topic, and may come again."""
    with open_client() as client:
        found = client.mirrors.reset(mirror, to=to, dry_run=dry_run)
    _say(found, f"{'would write' if dry_run else 'writes'} {_begin(found)}, when it is resumed")


def _fixed(_context: click.Context, option: click.Parameter, value: object) -> None:
    if value is not None:
        why = FIXED["--" + (option.name or "").replace("_", "-")]
        raise click.UsageError(f"{option.opts[0]} of a mirror stays as it was added, since {why}")


@command.command("alter")
@MIRROR
@click.option("--interval", "interval_ms", type=SPAN, help="What happens within it becomes one transaction.")
@click.option("--hold", type=SIZE, help="Retention keeps so much of what is not in Kafka yet.")
@click.option("--on-too-large", type=click.Choice(["halt", "dead-letter"]), help="Of what the topic cannot have, or does not fit.")
@common_options
def alter(mirror: str, **options: Any) -> None:
    """Have the mirror NAME go on in another way, where it is. What its records are stays: for another, add a mirror of another topic."""
    given = {name: value for name, value in options.items() if value is not None}
    if not given:
        raise click.UsageError(f"say what to alter: {', '.join(ALTERABLE)}")
    with open_client() as client:
        _say(client.mirrors.alter(mirror, **given), "goes on altered")


for _name in FIXED:
    alter.params.append(click.Option([_name], hidden=True, callback=_fixed, expose_value=False))


@command.command("remove")
@MIRROR
@click.option("--yes", is_flag=True, help="Without this nothing is removed.")
@click.option("--delete-topics", is_flag=True, help="Delete its topic, with everything in it.")
@common_options
def remove(mirror: str, *, yes: bool, delete_topics: bool) -> None:
    """Remove the mirror NAME. Its topic stays unless --delete-topics."""
    if not yes:
        raise click.UsageError(f"this ends mirror {mirror} for good; if that is meant, add --yes")
    with open_client() as client:
        client.mirrors.remove(mirror, delete_topics=delete_topics)
    if settings().is_json:
        print_row({"mirror": mirror, "removed": True})
    else:
        note(f"removed mirror {mirror}")


def _say(mirror: "MirrorInfo", what: str) -> None:
    if settings().is_json:
        print_row({**_fields(mirror), "state": mirror.state, **id_fields(from_id=mirror.from_id)})
    else:
        note(f"mirror {mirror.name} {what}")
