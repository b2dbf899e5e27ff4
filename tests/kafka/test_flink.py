"""docs/kafka.md, its Flink SQL run as it is written: the changelog of each query ends in what the cache has."""

import json
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from benchmarks.peers.kafka import FLINK
from eventlog import blocking
from tests.docs.pages import TOP, blocks_of, section_of
from tests.kafka import java_mains
from tests.kafka.mirrors import wait
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "customer", "type": "string"}, {"name": "total", "type": "double"}]}
Changelog = list[tuple[str, dict[str, Any]]]


def write(cache: blocking.Cache) -> None:
    for number in range(3):
        cache.put_many([(f"k{key} ä", {"customer": f"c{key % 3}", "total": number + key / 2}) for key in range(40)])
    for key in range(0, 40, 7):
        cache.remove(f"k{key} ä")


def folded(changelog: Changelog) -> list[dict[str, Any]]:
    """Return the rows that a changelog leaves; what it takes away has to be there."""
    left: Counter[str] = Counter()
    for kind, row in changelog:
        text = json.dumps(row, sort_keys=True)
        left[text] += 1 if kind in ("+I", "+U") else -1
        assert left[text] in (0, 1), f"{kind} of {text}"
    return [json.loads(text) for text in left.elements()]


@pytest.fixture(scope="module")
def client(node: NodeProcess) -> Iterator[blocking.Client]:
    with blocking.connect(node.address) as connected:
        yield connected


@pytest.fixture(scope="module")
def changelogs(client: blocking.Client, node: NodeProcess, broker: str, tmp_path_factory: pytest.TempPathFactory) -> list[Changelog]:
    """The changelogs of the page's queries, in their order."""
    place = tmp_path_factory.mktemp("flink")
    schema = place / "order.avsc"
    schema.write_text(json.dumps(ORDER))
    own = {"127.0.0.1:9092": broker, "127.0.0.1:7480": node.http, "order.avsc": str(schema)}
    write(client.create_cache("orders"))
    statements = ""
    for block in blocks_of(section_of((TOP / "docs" / "kafka.md").read_text(), "Flink SQL")):
        text = block.text
        for shown, here in own.items():
            text = text.replace(shown, here)
        if block.language == "sh":
            for line in text.splitlines():
                node.command(*shlex.split(line)[1:])
        else:
            statements += text
    for mirror in ("orders", "orders-avro", "orders-upsert"):
        wait(client, mirror)
    found: dict[int, Changelog] = defaultdict(list)
    for line in java_mains.run("FlinkSql", statements, artifacts=FLINK, folder="flink", place=place, options=("-Xmx512m",)):
        told = json.loads(line)
        found[told["statement"]].append((told["kind"], told["row"]))
    return [found[number] for number in sorted(found)]


def by_key(rows: list[dict[str, Any]]) -> dict[str, Any]:
    assert len({row["_key"] for row in rows}) == len(rows)
    return {row.pop("_key"): row for row in rows}


def test_the_changelog_of_envelopes_ends_in_the_cache(client: blocking.Client, changelogs: list[Changelog]) -> None:
    entries = dict(client.cache("orders").entries())
    assert Counter(kind for kind, _ in changelogs[0]) == {"+I": 40, "-U": 80, "+U": 80, "-D": 6}
    ids = {row["_key"]: int(row["id"]) for kind, row in changelogs[0] if kind in ("+I", "+U")}
    assert {key: ids[key] for key in entries} == {key: entry.version for key, entry in entries.items()}
    rows = folded([(kind, {name: value for name, value in row.items() if name != "id"}) for kind, row in changelogs[0]])
    assert by_key(rows) == {key: entry.value for key, entry in entries.items()}


def test_groups_are_counted_right(client: blocking.Client, changelogs: list[Changelog]) -> None:
    expected: dict[str, list[float]] = defaultdict(list)
    for _, entry in client.cache("orders").entries():
        expected[entry.value["customer"]].append(entry.value["total"])
    found = {row["customer"]: (row["orders"], row["total"]) for row in folded(changelogs[1])}
    assert found == {customer: (len(totals), sum(totals)) for customer, totals in expected.items()}


@pytest.mark.parametrize("query", [2, 3], ids=["debezium-avro-confluent", "upsert-kafka"])
def test_the_other_formats_end_there_too(client: blocking.Client, changelogs: list[Changelog], query: int) -> None:
    assert "-D" in {kind for kind, _ in changelogs[query]}
    assert by_key(folded(changelogs[query])) == {key: entry.value for key, entry in client.cache("orders").entries()}
