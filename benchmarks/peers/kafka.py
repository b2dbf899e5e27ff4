"""Brokers of Kafka as local processes, from the jars that Maven fetches: one, or three that replicate."""

import base64
import shutil
import signal
import socket
import subprocess
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

TOP = Path(__file__).resolve().parents[2]
JARS = TOP / ".build" / "kafka"
VERSION = "4.3.1"
READY_S = 60
_SILENT = ("org.slf4j", "slf4j-nop", "1.7.36")
BROKER = (("org.apache.kafka", "kafka_2.13", VERSION), ("org.apache.kafka", "kafka-tools", VERSION), _SILENT)
CONNECT = (
    ("io.debezium", "debezium-connect-plugins", "3.6.3.Final"),
    ("org.apache.kafka", "connect-json", VERSION),
    ("org.apache.kafka", "connect-transforms", VERSION),
    ("org.apache.avro", "avro", "1.12.0"),
    ("com.fasterxml.jackson.core", "jackson-core", "2.21.2"),  # of one version with what the converters need, not of that of Avro
    _SILENT,
)
_FLINK_VERSION = "2.2.0"
FLINK = (
    *(
        ("org.apache.flink", name, _FLINK_VERSION)
        for name in (
            "flink-clients",
            "flink-connector-base",
            "flink-json",
            "flink-sql-avro-confluent-registry",
            "flink-table-api-java-bridge",
            "flink-table-planner-loader",
            "flink-table-runtime",
        )
    ),
    ("org.apache.flink", "flink-connector-kafka", "5.0.0-2.2"),
    _SILENT,
)
SPARK = (("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"), ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"))
Artifacts = tuple[tuple[str, str, str], ...]


class KafkaUnavailable(Exception):
    """The jars or Java are not to be had; says what is missing."""


def _pom(artifacts: Artifacts) -> str:
    wanted = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version></dependency>"
        for group, name, version in artifacts
    )
    return (
        '<?xml version="1.0" encoding="UTF-8"?><project><modelVersion>4.0.0</modelVersion><groupId>eventlog</groupId>'
        f"<artifactId>jars</artifactId><version>1</version><dependencies>{wanted}</dependencies></project>"
    )


def jars(artifacts: Artifacts = BROKER, *, folder: Path = JARS) -> Path:
    """Return the folder with jars and what they need, by default those of a broker, fetched once.

    Raises:
        KafkaUnavailable: Java or Maven is missing, or Maven cannot fetch them.
    """
    done = folder / f"{'-'.join(version for *_, version in artifacts)}.done"
    if done.exists():
        return folder
    for program, package in (("java", "a Java runtime 17 or newer"), ("mvn", "Maven")):
        if shutil.which(program) is None:
            raise KafkaUnavailable(f"brokers of Kafka need {package} ({program} on PATH)")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "pom.xml").write_text(_pom(artifacts))
    command = ["mvn", "-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    found = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if found.returncode:
        names = ", ".join(name for _, name, _ in artifacts)
        raise KafkaUnavailable(f"Maven could not fetch {names}:\n{found.stdout[-2000:]}")
    done.touch()
    return folder


def _token() -> str:
    while True:
        token = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not token.startswith("-"):  # the format tool would take it for an option
            return token


def _ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(found.getsockname()[1]) for found in sockets]
    for found in sockets:
        found.close()
    return ports


@dataclass(frozen=True, slots=True, kw_only=True)
class Secured:
    """Has brokers take SASL over TLS alone. `pem` has a key and its certificate, which clients trust.

    `user` may do what no rule is about; the user and password `broker` may do everything.
    """

    pem: Path
    user: str
    password: str

    @property
    def properties(self) -> str:
        """What the brokers are told."""
        own = 'username="broker" password="broker" user_broker="broker"'
        return (
            "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer\n"
            "allow.everyone.if.no.acl.found=true\nsuper.users=User:broker;User:ANONYMOUS\n"
            "inter.broker.listener.name=CLIENTS\nsasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n"
            "sasl.mechanism.inter.broker.protocol=PLAIN\nssl.keystore.type=PEM\n"
            f"ssl.keystore.location={self.pem}\nssl.truststore.type=PEM\nssl.truststore.location={self.pem}\n"
            "listener.name.clients.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'{own} user_{self.user}="{self.password}";\n'
            "listener.name.clients.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;\n"
            "listener.name.clients.scram-sha-512.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;\n"
        )

    @property
    def format_words(self) -> list[str]:
        """What makes the user known to the mechanisms that keep users."""
        kinds = ("SCRAM-SHA-256", "SCRAM-SHA-512")
        return [word for kind in kinds for word in ("--add-scram", f"{kind}=[name={self.user},password={self.password}]")]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerHost:
    """Where a broker runs: its address, what stands before a command so that it runs there. `reached_at`: another address, a proxy's."""

    address: str = "127.0.0.1"
    wrapper: tuple[str, ...] = ()
    reached_at: str = ""


class KafkaBrokers:
    """Running brokers inside `with`, each on one of `hosts`, by default on this one; `addresses` is what clients bootstrap from."""

    def __init__(
        self,
        directory: Path,
        brokers: int,
        *,
        heap: str = "1g",
        quick: bool = False,
        secure: Secured | None = None,
        hosts: Sequence[BrokerHost] = (),
        controllers: int | None = None,
        settings: Mapping[str, str] = {},
    ) -> None:
        """`controllers`: so many of them decide who leads what, by default all. `settings` are further ones of the brokers."""
        self._settings = "".join(f"{name}={value}\n" for name, value in settings.items())
        self._directory = directory
        self._secure = secure
        self._heap = heap
        self._quick = quick
        ports = _ports(2 * brokers)
        self._clients, self._controllers = ports[:brokers], ports[brokers:][:controllers]
        self._hosts = list(hosts) or [BrokerHost()] * brokers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.listening = [f"{host.address}:{port}" for host, port in zip(self._hosts, self._clients, strict=True)]
        self._reached = [host.reached_at or address for host, address in zip(self._hosts, self.listening, strict=True)]
        self.addresses = ",".join(self._reached)

    def _java(self, main: str, *arguments: str) -> list[str]:
        flags = [f"-Xms{self._heap}", f"-Xmx{self._heap}"]
        if self._quick:
            flags = ["-Xms128m", "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        classes = ":".join(str(jar) for jar in sorted(jars().glob("*.jar")))
        return ["java", *flags, "-cp", classes, main, *arguments]

    def __enter__(self) -> Self:
        cluster = _token()
        voters = ",".join(f"{number}@{self._hosts[number - 1].address}:{port}" for number, port in enumerate(self._controllers, 1))
        words = self._secure.format_words if self._secure else []
        copies, least = min(3, len(self._clients)), min(2, len(self._clients))
        for number, client in enumerate(self._clients, 1):
            host = self._hosts[number - 1].address
            controller = f",CONTROLLER://{host}:{self._controllers[number - 1]}" if number <= len(self._controllers) else ""
            place = self._directory / f"kafka-{number}"
            place.mkdir(parents=True, exist_ok=True)  # where it is a disk of its own
            properties = place / "server.properties"
            properties.write_text(
                f"process.roles=broker{',controller' if controller else ''}\nnode.id={number}\ncontroller.quorum.voters={voters}\n"
                f"listeners=CLIENTS://{host}:{client}{controller}\n"
                f"advertised.listeners=CLIENTS://{self._reached[number - 1]}\ncontroller.listener.names=CONTROLLER\n"
                f"listener.security.protocol.map=CLIENTS:{'SASL_SSL' if self._secure else 'PLAINTEXT'},CONTROLLER:PLAINTEXT\n"
                f"{self._secure.properties if self._secure else 'inter.broker.listener.name=CLIENTS' + chr(10)}"
                f"log.dirs={place / 'log'}\noffsets.topic.replication.factor={copies}\n"
                f"transaction.state.log.replication.factor={copies}\ntransaction.state.log.min.isr={least}\n"
                f"min.insync.replicas={least}\ndefault.replication.factor={copies}\nauto.create.topics.enable=false\n"
                f"group.initial.rebalance.delay.ms=0\n{self._settings}"
            )
            format_command = self._java("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties), *words)
            subprocess.run(format_command, check=True, capture_output=True, stdin=subprocess.DEVNULL)
            self._processes.append(self._spawn(number - 1))
        return self

    def _spawn(self, index: int) -> "subprocess.Popen[bytes]":
        place, wrapper = self._directory / f"kafka-{index + 1}", self._hosts[index].wrapper
        with (place / "out").open("ab") as output:
            command = [*wrapper, *self._java("kafka.Kafka", str(place / "server.properties"))]
            return subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=place)

    def kill(self, index: int = 0) -> None:
        """Send a broker SIGKILL, and wait until it is gone."""
        self._processes[index].kill()
        self._processes[index].wait(READY_S)

    def signal(self, index: int, number: int) -> None:
        """Send a broker a signal."""
        self._processes[index].send_signal(number)

    def is_running(self, index: int = 0) -> bool:
        """Return whether a broker has not ended."""
        return self._processes[index].poll() is None

    def start(self, index: int = 0) -> None:
        """Start a broker that was killed, on what it has."""
        self._processes[index] = self._spawn(index)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._processes:
            process.send_signal(signal.SIGKILL)  # voters that stop together would wait for each other
        for process in self._processes:
            process.wait(READY_S)

    @property
    def pids(self) -> list[int]:
        """Return the brokers' processes."""
        return [process.pid for process in self._processes]
