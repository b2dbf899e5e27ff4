"""A mirror into brokers that take nobody without a password, over TLS; where that password is written; and rights that are taken away."""

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from benchmarks.peers.kafka import KafkaBrokers, Secured
from eventlog import blocking
from eventlog.errors import EventLogError, KafkaFailed
from tests.kafka.brokers import READY_S
from tests.kafka.mirrors import wait
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]
PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"
PEM = Path(__file__).parents[1] / "process" / "localhost.pem"
USER, PASSWORD = "eventlog", "planted-a4f1c0d2"  # what is searched for afterwards


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    secured = Secured(pem=PEM, user=USER, password=PASSWORD)
    with KafkaBrokers(tmp_path_factory.mktemp("kafka"), 1, quick=True, secure=secured) as running:
        yield running.addresses.replace("127.0.0.1", "localhost")


def until_ready(client: blocking.Client, cache: str) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        try:
            client.mirrors.add(cache, kafka="main", dry_run=True)
        except KafkaFailed:
            assert time.monotonic() < deadline
            time.sleep(0.3)  # a look at the broker; nothing else tells
        else:
            return


def configured(folder: Path, brokers: str, mechanism: str, password: Path) -> Path:
    """Return a node's file with a connection to brokers."""
    config = folder / "node.toml"
    config.write_text(
        f'[kafka.main]\nbootstrap = "{brokers}"\nsecurity = "SASL_SSL"\nmechanism = "{mechanism}"\nuser = "{USER}"\n'
        f'password-file = "{password}"\nca-file = "{PEM}"\n'
    )
    return config


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_mirror_has_its_password_from_a_file_and_writes_it_nowhere(brokers: str, tmp_path: Path, mechanism: str) -> None:
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    config = configured(tmp_path, brokers, mechanism, password)
    name = f"c-{mechanism.lower()}"
    with NodeProcess(tmp_path / "node", "--config", str(config), "--segments", "8") as node:
        with blocking.connect(node.address) as client:
            client.create_cache(name).put_many([(f"k{number}", number) for number in range(100)])
            until_ready(client, name)
            password.write_text("wrong\n")
            with pytest.raises(KafkaFailed) as refused:
                client.mirrors.add(name, kafka="main")
            assert PASSWORD not in str(refused.value)
            password.write_text(f"{PASSWORD}\n")
            said = [repr(client.mirrors.add(name, kafka="main"))]
            status = client.mirrors.status(name, wait_ms=60_000)
            assert not status.is_behind, status
            assert sum(shard.events for shard in status.shards) == 100
            said += [repr(status), repr(client.mirrors.list())]
            with pytest.raises(EventLogError) as unknown:
                client.mirrors.add(name, kafka="other", name="x", topic="y")
            said += [str(unknown.value), node.command("mirror", "status", name).stdout.decode()]
            command = Path(f"/proc/{node.pid}/cmdline").read_bytes() + Path(f"/proc/{node.pid}/environ").read_bytes()
        assert node.stop() == 0
        found = [text for text in said if PASSWORD in text]
        assert found == []
        assert PASSWORD.encode() not in command
        assert PASSWORD not in node.log_text()
    written = [Path(folder) / file for folder, _, files in os.walk(tmp_path) for file in files]
    assert len(written) > 5
    assert [file for file in written if PASSWORD.encode() in file.read_bytes()] == [password]


WRONG = {
    "certificate": ("ca-file", "", "the certificate of its broker is not trusted"),
    "user": ("user", "nobody", "does not take the user and the password"),
    "password": ("password-file", "wrong", "does not take the user and the password"),
    "no file": ("password-file", "none", "none cannot be read"),
    "no encryption": ("security", "SASL_PLAINTEXT", r"wants to be spoken to in another way \(security of"),
}


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_what_is_wrong_with_a_connection_is_said_at_add_and_in_the_status(brokers: str, tmp_path: Path, mechanism: str) -> None:
    right = {"bootstrap": brokers, "security": "SASL_SSL", "mechanism": mechanism, "user": USER, "ca-file": str(PEM)}
    right["password-file"] = str(tmp_path / "password")
    (tmp_path / "wrong").write_text("another\n")
    tables = {"main": right}
    for name, (setting, value, _) in WRONG.items():
        wrong = right | {setting: str(tmp_path / value) if setting == "password-file" else value}
        tables[name.replace(" ", "-")] = {key: value for key, value in wrong.items() if value}
    tables["no-encryption"].pop("ca-file")
    config = tmp_path / "node.toml"
    config.write_text(
        "".join(f"[kafka.{name}]\n" + "".join(f'{key} = "{value}"\n' for key, value in table.items()) for name, table in tables.items())
    )
    (tmp_path / "password").write_text(PASSWORD)
    cache = f"wrong-{mechanism.lower()}"
    with NodeProcess(tmp_path / "node", "--config", str(config), "--segments", "8") as node, blocking.connect(node.address) as client:
        client.create_cache(cache).put("k", 1)
        until_ready(client, cache)
        for name, (_, _, why) in WRONG.items():
            with pytest.raises(EventLogError, match=why):
                client.mirrors.add(cache, kafka=name.replace(" ", "-"))
        client.mirrors.add(cache, kafka="main", partitions=1)
        wait(client, cache)
        for text, why in (("another", "does not take the user and the password"), (None, "cannot be read")):
            client.mirrors.pause(cache)
            (tmp_path / "password").unlink()
            if text is not None:
                (tmp_path / "password").write_text(text)
            client.mirrors.resume(cache)
            while (shard := client.mirrors.status(cache).shards[0]).state != "waiting" or not re.search(why, shard.why):
                pass  # the timeout of the test ends it
            (tmp_path / "password").write_text(PASSWORD)
            client.cache(cache).put("k", 2)
            wait(client, cache)


class Rights:
    """What may be done with one thing, as long as the block lasts; nothing else may be."""

    def __init__(self, brokers: str, kind: ResourceType, name: str, *may: AclOperation) -> None:
        settings = {"bootstrap.servers": brokers, "security.protocol": "SASL_SSL", "ssl.ca.location": str(PEM)}
        self._admin = AdminClient(settings | {"sasl.mechanism": "PLAIN", "sasl.username": "broker", "sasl.password": "broker"})
        self._kind, self._name, self._may = kind, name, [(USER, operation) for operation in may] or [("other", AclOperation.READ)]

    def __enter__(self) -> None:
        what = (self._kind, self._name, ResourcePatternType.LITERAL)
        rules = [AclBinding(*what, f"User:{user}", "*", operation, AclPermissionType.ALLOW) for user, operation in self._may]
        for made in self._admin.create_acls(rules).values():
            made.result()

    def __exit__(self, *_: object) -> None:
        every = (None, None, AclOperation.ANY, AclPermissionType.ANY)
        (gone,) = self._admin.delete_acls([AclBindingFilter(self._kind, self._name, ResourcePatternType.LITERAL, *every)]).values()
        assert gone.result()


SEE = AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS, AclOperation.READ
LACKS: dict[str, tuple[ResourceType, str, tuple[AclOperation, ...]]] = {
    "writing": (ResourceType.TOPIC, "eventlog.c", SEE),
    "topic": (ResourceType.TOPIC, "eventlog.c", ()),
    "progress": (ResourceType.TOPIC, "__eventlog.mirror", SEE),
    "transactions": (ResourceType.TRANSACTIONAL_ID, "*", ()),
    "transactions seen": (ResourceType.TRANSACTIONAL_ID, "*", SEE[:1]),
}


def test_a_right_that_is_taken_away_is_asked_for_and_given_back(brokers: str, tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    config = configured(tmp_path, brokers, "PLAIN", password)
    with NodeProcess(tmp_path / "node", "--config", str(config), "--segments", "8") as node, blocking.connect(node.address) as client:
        cache = client.create_cache("c")
        until_ready(client, "c")
        client.mirrors.add("c", kafka="main", partitions=1)
        for number, (kind, name, may) in enumerate(LACKS.values()):
            cache.put("k", number)
            wait(client, "c")
            with Rights(brokers, kind, name, *may):
                cache.put("k", -number)
                (shard,) = client.mirrors.status("c", wait_ms=60_000).shards
                assert (shard.state, shard.why.partition(" (")[0]) == ("halted", "Kafka does not allow it"), (name, may, shard)
                print(shard.why)
                assert shard.why.endswith("give the user the right, then eventlog mirror resume")
                assert cache.put("k", number).kind == "MODIFIED"
            client.mirrors.resume("c")
        wait(client, "c")
        assert client.mirrors.verify("c").is_alike


NEEDS = re.compile(r"^\| (topic|transactional id) \| `([^`]+)` \| ([A-Za-z, ]+) \|", re.MULTILINE)
KINDS = {"topic": ResourceType.TOPIC, "transactional id": ResourceType.TRANSACTIONAL_ID}


def granted(brokers: str, page: str) -> None:
    """Give the user the rights that the page names for the topics of cache `orders`, and no other."""
    rows = NEEDS.findall(page)
    assert len(rows) == 4
    settings = {"bootstrap.servers": brokers, "security.protocol": "SASL_SSL", "ssl.ca.location": str(PEM)}
    admin = AdminClient(settings | {"sasl.mechanism": "PLAIN", "sasl.username": "broker", "sasl.password": "broker"})
    for kind, name, operations in rows:
        pattern = ResourcePatternType.PREFIXED if name.endswith("*") and name != "*" else ResourcePatternType.LITERAL
        what = (KINDS[kind], name.rstrip("*") or "*", pattern)
        for operation in operations.split(", "):
            known = AclOperation[re.sub(r"(?<=[a-z])(?=[A-Z])", "_", operation).upper()]
            rule = AclBinding(*what, f"User:{USER}", "*", known, AclPermissionType.ALLOW)
            for made in admin.create_acls([rule]).values():
                made.result()


def test_the_rights_that_the_page_names_are_enough(tmp_path: Path) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    secured = Secured(pem=PEM, user=USER, password=PASSWORD)
    settings = {"allow.everyone.if.no.acl.found": "false"}
    with KafkaBrokers(tmp_path / "kafka", 1, quick=True, secure=secured, settings=settings) as running:
        brokers = running.addresses.replace("127.0.0.1", "localhost")
        config = configured(tmp_path, brokers, "PLAIN", password)
        granted(brokers, PAGE.read_text())
        with NodeProcess(tmp_path / "node", "--config", str(config), "--segments", "8") as node, blocking.connect(node.address) as client:
            cache = client.create_cache("orders")
            cache.put("k", 1)
            until_ready(client, "orders")
            client.mirrors.add("orders", kafka="main", partitions=2, on_too_large="dead-letter")
            wait(client, "orders")
            client.mirrors.pause("orders")
            cache.put("k", 2)
            client.mirrors.resume("orders")
            wait(client, "orders")
            assert client.mirrors.verify("orders").is_alike
            client.mirrors.remove("orders")
