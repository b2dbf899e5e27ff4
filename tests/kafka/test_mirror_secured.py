"""A mirror into brokers that take nobody without a password, over TLS; and where that password is written."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.peers.kafka import KafkaBrokers, Secured
from eventlog import blocking
from eventlog.errors import EventLogError, KafkaFailed
from tests.kafka.brokers import READY_S
from tests.process.nodes import NodeProcess

pytestmark = [pytest.mark.process, pytest.mark.timeout(300)]
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


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_mirror_has_its_password_from_a_file_and_writes_it_nowhere(brokers: str, tmp_path: Path, mechanism: str) -> None:
    password = tmp_path / "password"
    password.write_text(f"{PASSWORD}\n")
    config = tmp_path / "node.toml"
    config.write_text(
        f'[kafka.main]\nbootstrap = "{brokers}"\nsecurity = "SASL_SSL"\nmechanism = "{mechanism}"\nuser = "{USER}"\n'
        f'password-file = "{password}"\nca-file = "{PEM}"\n'
    )
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
