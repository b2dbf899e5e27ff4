"""Groups whose commands are imported when one is called, so that `eventlog --help` costs no import of the client.

A word that no group knows is answered with the commands that may have been meant. `EXAMPLES` is what `--help` of each command shows; a
test has click parse every line of it.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click
from click.shell_completion import CompletionItem

from eventlog_cli.importing import Importing

ELSEWHERE = {
    "topic": "cache",
    "topics": "cache list",
    "ls": "cache list",
    "set": "put",
    "publish": "put",
    "produce": "put",
    "del": "remove",
    "rm": "remove",
    "subscribe": "consume",
    "watch": "consume",
    "tail": "consume",
    "scan": "entries",
    "import": "load",
    "offsets": "group describe",
    "start": "serve",
    "run": "serve",
    "server": "serve",
}
"""What other systems call a thing, and the command here."""
_MEANT_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPlace:
    """Where a command lives and what `--help` of its group says about it. A hidden one is a synonym of a shown one."""

    module: str
    attribute: str
    summary: str = ""
    section: str = "Commands"
    hidden: bool = False


class SuggestingGroup(click.Group):
    """A group that answers a word it does not know with what may have been meant, here or in the groups below."""

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that `args` begin with.

        Raises:
            click.UsageError: there is none of that name; says which are like it.
        """
        name = args[0]
        if name.startswith("-") or ctx.resilient_parsing or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        meant = " or ".join(self.meant(ctx, name)[:_MEANT_MAX])
        raise click.UsageError(f"No such command {name!r}." + (f" Did you mean: {meant}?" if meant else ""), ctx)

    def meant(self, ctx: click.Context, word: str) -> list[str]:
        """Return command lines that are like a word: of this group and those below it, else of all."""
        from difflib import get_close_matches  # noqa: PLC0415 -- for words that no group knows

        paths: dict[str, list[str]] = {} if ctx.parent is not None else {name: [path] for name, path in ELSEWHERE.items()}
        for path in sorted(self.paths(ctx), key=lambda path: path.count(" ")):
            name = path.rpartition(" ")[2]
            if ctx.parent is not None or name not in ELSEWHERE:
                paths.setdefault(name, []).append(path)
        found = [f"{ctx.command_path} {path}" for name in get_close_matches(word, paths, n=1) for path in paths[name]]
        root = ctx.find_root()
        if not found and ctx is not root and isinstance(root.command, SuggestingGroup):
            return root.command.meant(root, word)
        return found

    def paths(self, ctx: click.Context) -> Iterator[str]:
        """Yield what may be typed behind this group's name, the groups below included."""
        for name in self.list_commands(ctx):
            yield name
            found = self.get_command(ctx, name)
            if isinstance(found, SuggestingGroup):
                yield from (f"{name} {path}" for path in found.paths(ctx))


class LazyGroup(SuggestingGroup):
    """A group that knows its commands by a table; `table` maps names to entries in the order shown."""

    def __init__(self, *args: Any, table: Mapping[str, CommandPlace], **options: Any) -> None:
        super().__init__(*args, **options)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the names shown, in the order of the table."""
        return [name for name, entry in self.table.items() if not entry.hidden]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's signature
        """Return the command of that name or synonym, imported now."""
        entry = self.table.get(cmd_name)
        if entry is None:
            return None
        with Importing():
            command = getattr(import_module(f"eventlog_cli.{entry.module}"), entry.attribute)
        assert isinstance(command, click.Command), f"{entry.module}.{entry.attribute} is no command"
        is_same = [name for name, other in self.table.items() if (other.module, other.attribute) == (entry.module, entry.attribute)]
        show_examples(command, is_same[0])  # a synonym shows those of the name that it stands for
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        """Write names and summaries by section, from the table alone."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, entry in self.table.items():
            if not entry.hidden:
                sections.setdefault(entry.section, []).append((name, entry.summary))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows, col_max=14)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return commands that begin with `incomplete`, from the table, then options."""
        found = [
            CompletionItem(name, help=entry.summary)
            for name, entry in self.table.items()
            if not entry.hidden and name.startswith(incomplete)
        ]
        return found + [item for item in click.Command.shell_complete(self, ctx, incomplete) if item.value not in self.table]


class SynonymGroup(SuggestingGroup):
    """A group in which some commands answer to hidden further names; `synonyms` maps each further name to the shown one."""

    def __init__(self, *args: Any, synonyms: Mapping[str, str] | None = None, **options: Any) -> None:
        super().__init__(*args, **options)
        self.synonyms = synonyms or {}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of that name or synonym."""
        return super().get_command(ctx, self.synonyms.get(cmd_name, cmd_name))


EXAMPLES: dict[str, tuple[str, ...]] = {
    "serve": (
        "eventlog serve",
        "eventlog serve --data n2 --listen 127.0.0.1:7401 --http 127.0.0.1:7481 --join 127.0.0.1:7400",
        "eventlog serve --processes 3 --data cluster",
    ),
    "demo": ("eventlog demo", "eventlog demo --nodes 1 --keep"),
    "cache": ("eventlog cache create orders", "eventlog cache list"),
    "cache create": (
        "eventlog cache create orders",
        "eventlog cache create clicks --format bytes --no-state --retain-time 24h",
        "eventlog cache create payments --format avro --schema payment.avsc --if-not-exists",
    ),
    "cache list": ("eventlog cache list", "eventlog cache list --json"),
    "cache describe": ("eventlog cache describe orders",),
    "cache alter": ("eventlog cache alter orders --retain-time 30d", "eventlog cache alter orders --promote value.customer"),
    "cache drop": ("eventlog cache drop orders --yes",),
    "put": (
        """eventlog put orders 4711 '{"total": 3}'""",
        "eventlog put orders 4711 - < order.json",
        """eventlog put orders 4711 '{"total": 4}' --if-version 912813402609418241""",
        r"printf 'a:1\nb:2\n' | eventlog put orders --key-separator :",
    ),
    "get": ("eventlog get orders 4711", "eventlog get orders 4711 --consistency any --json", "eventlog get orders 4711 --at 24h"),
    "remove": ("eventlog remove orders 4711",),
    "keys": ("eventlog keys orders --prefix 47 --max 10",),
    "entries": (
        "eventlog entries orders --where 'value.total > 2'",
        "eventlog entries orders --select value.total --max 10",
        "eventlog entries orders --at 2026-11-20T10:00:00Z",
    ),
    "size": ("eventlog size orders",),
    "clear": ("eventlog clear orders --yes",),
    "load": (
        "eventlog load orders orders.jsonl --key id --create",
        "zcat changes.csv.gz | eventlog load orders - --key id --op change --delete-value D",
        r"eventlog load orders pairs.txt --key-separator '\t' --delete-value ''",
    ),
    "consume": (
        "eventlog consume orders --follow",
        "eventlog consume orders --tail 10 --follow",
        """eventlog consume orders --where "value.total > 2 AND kind <> 'REMOVED'" --from-time 1h""",
        "eventlog consume orders --group billing --follow",
        r"eventlog consume orders --output-format '%t %k %v\n'",
        "eventlog consume orders --from-id 912813402609418241 --max 100 | jq .value",
    ),
    "filter": ("eventlog filter list",),
    "filter list": ("eventlog filter list",),
    "group": ("eventlog group list", "eventlog group describe billing"),
    "group list": ("eventlog group list",),
    "group describe": ("eventlog group describe billing", "eventlog group describe billing --segments"),
    "group reset": (
        "eventlog group reset billing --to earliest --dry-run",
        "eventlog group reset billing --to 2026-11-20T10:00:00Z",
        "eventlog group reset billing --shift-by -10 --segments 17",
    ),
    "group delete": ("eventlog group delete billing",),
    "listener": ("""eventlog listener register orders --where "value.total > 100" --durable --id large""", "eventlog listener list"),
    "listener register": (
        """eventlog listener register orders --where "value.total > 100" --durable --hold 1GiB --id large""",
        "eventlog listener register orders --durable --from-id earliest --id all",
        "eventlog consume orders --listener large",
    ),
    "listener list": ("eventlog listener list orders",),
    "listener describe": ("eventlog listener describe large",),
    "listener alter": ("eventlog listener alter large --hold 24h",),
    "listener acknowledge": ("eventlog listener acknowledge large 912813402609418241",),
    "listener remove": ("eventlog listener remove large",),
    "schema": ("eventlog schema register orders-value order.avsc", "eventlog schema list"),
    "schema register": (
        "eventlog schema register orders-value order.avsc",
        "eventlog schema register orders-value order.json --type json --reference address.json=address:1",
    ),
    "schema list": ("eventlog schema list", "eventlog schema list orders-value --json"),
    "schema get": ("eventlog schema get orders-value", "eventlog schema get --id 1"),
    "schema check": ("eventlog schema check orders-value order.avsc",),
    "schema config": ("eventlog schema config", "eventlog schema config orders-value --level FULL"),
    "schema delete": ("eventlog schema delete orders-value --version 1", "eventlog schema delete orders-value --permanent --yes"),
    "mirror": ("eventlog mirror add orders --kafka 127.0.0.1:9092", "eventlog mirror status orders"),
    "mirror add": (
        "eventlog mirror add orders --kafka main --dry-run",
        "eventlog mirror add orders --kafka 127.0.0.1:9092 --format upsert --where 'value.total > 100' --from latest",
        "eventlog mirror add orders --kafka main --topic shop.orders --set compression.type=zstd",
    ),
    "mirror list": ("eventlog mirror list", "eventlog mirror list --json"),
    "mirror status": ("eventlog mirror status orders", "eventlog mirror status orders --wait 30s --json"),
    "mirror verify": ("eventlog mirror verify orders",),
    "mirror pause": ("eventlog mirror pause orders",),
    "mirror resume": ("eventlog mirror resume orders",),
    "mirror reset": ("eventlog mirror reset orders --to earliest --dry-run", "eventlog mirror reset orders --to 912813402609418241"),
    "mirror alter": ("eventlog mirror alter orders --on-too-large dead-letter", "eventlog mirror alter orders --interval 20ms --hold 4GiB"),
    "mirror remove": ("eventlog mirror remove orders --yes", "eventlog mirror remove orders --yes --delete-topics"),
    "pipeline": ("eventlog pipeline archive orders --to /archives/orders", "eventlog pipeline audit orders --archive /archives/orders"),
    "pipeline archive": (
        "eventlog pipeline archive orders --to /archives/orders",
        "eventlog pipeline archive orders --to /archives/orders --every 5m --hold 10GiB",
    ),
    "pipeline compact": ("eventlog pipeline compact /archives/orders", "eventlog pipeline compact /archives/orders --vacuum 7d"),
    "pipeline load": (
        "eventlog pipeline load /landing/orders --into orders --key id --txn 2026-11-20",
        "eventlog pipeline load '/landing/*.csv' --into orders --key id --op op --delete-value D --master spark://m1:7077",
    ),
    "pipeline rebuild": ("eventlog pipeline rebuild orders --archive /archives/orders --as-of 24h --into orders-yesterday --verify",),
    "pipeline rollup": (
        "eventlog pipeline rollup orders --window 1h --by value.shop --measures 'count,keys,sum(value.total)' --to /rollups/orders",
        "eventlog pipeline rollup /archives/orders --window 1d --to /rollups/days",
    ),
    "pipeline audit": (
        "eventlog pipeline audit orders --archive /archives/orders --json",
        "eventlog pipeline audit orders --until 1h --mirror orders",
    ),
    "id": ("eventlog id decode 912813402609418241", "eventlog id at 1h"),
    "id decode": ("eventlog id decode 912813402609418241",),
    "id at": ("eventlog id at 2026-11-20T10:00:00Z", "eventlog consume orders --from-id $(eventlog id at 1h)"),
    "admin": ("eventlog admin status", "eventlog admin nodes"),
    "admin status": ("eventlog admin status", "eventlog admin status --check --wait 10m", "eventlog admin status --watch"),
    "admin nodes": ("eventlog admin nodes",),
    "admin segments": ("eventlog admin segments --under-replicated", "eventlog admin segments --cache orders --json"),
    "admin retention": ("eventlog admin retention show orders", "eventlog admin retention run orders --dry-run"),
    "admin retention show": ("eventlog admin retention show orders",),
    "admin retention set": ("eventlog admin retention set orders --retain-time 30d --retain-bytes 100GiB",),
    "admin retention run": ("eventlog admin retention run orders --dry-run",),
    "admin rebalance": ("eventlog admin rebalance plan", "eventlog admin rebalance start --throttle 50MiB --wait"),
    "admin rebalance plan": ("eventlog admin rebalance plan",),
    "admin rebalance start": ("eventlog admin rebalance start --throttle 50MiB --wait",),
    "admin rebalance status": ("eventlog admin rebalance status",),
    "admin rebalance cancel": ("eventlog admin rebalance cancel",),
    "admin rebalance verify": ("eventlog admin rebalance verify",),
    "admin drain": ("eventlog admin drain n2", "eventlog admin drain --cancel n2"),
    "admin remove": ("eventlog admin remove n2",),
    "admin replace": ("eventlog admin replace n2 n4",),
    "admin set": ("eventlog admin set replicas 3",),
    "admin set replicas": ("eventlog admin set replicas 3",),
    "admin force-primary": (
        "eventlog admin force-primary --all-lost --dry-run",
        "eventlog admin force-primary 17 n3 --accept-data-loss",
    ),
    "admin metastore": ("eventlog admin metastore copy --from sqlite:n1.meta/meta.db --to etcd://127.0.0.1:2379",),
    "admin metastore copy": ("eventlog admin metastore copy --from sqlite:n1.meta/meta.db --to etcd://127.0.0.1:2379",),
    "admin metastore rebuild": ("eventlog admin metastore rebuild --data n1 --data n2 --to sqlite:n1.meta/meta.db",),
    "admin cluster-key": ("eventlog admin cluster-key rotate",),
    "admin cluster-key rotate": ("eventlog admin cluster-key rotate --overlap 5m",),
    "admin check": ("eventlog admin check", "eventlog admin check --data n1"),
    "top": ("eventlog top", "eventlog top --count 1 --json"),
    "context": ("eventlog context add prod --server n1:7400,n2:7400,n3:7400", "eventlog context use prod"),
    "context add": ("eventlog context add prod --server n1:7400,n2:7400,n3:7400",),
    "context use": ("eventlog context use prod",),
    "context list": ("eventlog context list",),
    "context remove": ("eventlog context remove prod",),
    "completion": (
        'eval "$(eventlog completion bash)"    in ~/.bashrc',
        'eval "$(eventlog completion zsh)"     in ~/.zshrc',
        "eventlog completion fish | source     in ~/.config/fish/config.fish",
    ),
}
"""Lines as one types them, by the path of their command."""


def show_examples(command: click.Command, path: str) -> None:
    """Put the examples of a command, and of those below it, behind their options."""
    if path in EXAMPLES:
        command.epilog = "\n".join(["\b", "Examples:", *(f"  {line}" for line in EXAMPLES[path])])
    if isinstance(command, click.Group):
        for name, found in command.commands.items():
            show_examples(found, f"{path} {name}")
