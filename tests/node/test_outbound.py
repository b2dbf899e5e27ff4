"""Connections beyond the cluster: what a file may say of them, where they may lead, and what of them is written anywhere."""

from pathlib import Path

import pytest

from eventlog.errors import BadConfig, InvalidArgument, KafkaFailed, NoConnection, OutboundRefused
from eventlog.node.config import NodeConfig, environment_of, load_config
from eventlog.node.outbound import KafkaConnection, Outbound, RegistryConnection, secret

TABLE = """
allow-outbound = ["*.example.com:9093", "10.0.0.1:*"]

[kafka.main]
bootstrap = "b1.example.com:9093, b2.example.com:9093"
security = "SASL_SSL"
mechanism = "SCRAM-SHA-512"
user = "eventlog"
password-file = "/run/secrets/kafka"
ca-file = "/etc/ca.pem"
settings = { request_timeout_ms = 20_000 }

[kafka.plain]
bootstrap = "10.0.0.1:9092"

[registry.main]
url = "https://registry.example.com/avro"
user = "eventlog"
password-file = "/run/secrets/registry"
ca-file = "/etc/ca.pem"
"""


def loaded(tmp_path: Path, text: str) -> NodeConfig:
    file = tmp_path / "node.toml"
    file.write_text(text)
    return load_config({}, file=file, environment={})


def outbound(*allow: str, **kafka: KafkaConnection) -> Outbound:
    return Outbound(node="n1", kafka=kafka, allow=allow)


def test_tables_of_a_file_are_connections_and_reach_the_children_of_a_node(tmp_path):
    config = loaded(tmp_path, TABLE)
    main = config.kafka["main"]
    assert main.addresses == ["b1.example.com:9093", "b2.example.com:9093"]
    assert (main.security, main.mechanism, main.user, main.settings) == (
        "SASL_SSL",
        "SCRAM-SHA-512",
        "eventlog",
        {"request_timeout_ms": 20_000},
    )
    assert config.kafka["plain"] == KafkaConnection(bootstrap="10.0.0.1:9092")
    assert config.registry["main"].url == "https://registry.example.com/avro"
    assert config.registry["main"].password_file == "/run/secrets/registry"
    assert load_config({}, environment=environment_of(config)) == config
    assert load_config({}, environment=environment_of(NodeConfig())).kafka == {}


@pytest.mark.parametrize(
    ("text", "where", "why"),
    [
        ("kafka = 1", "kafka", "tables"),
        ("[kafka]\nmain = 1", "kafka.main", "not a table"),
        ("[kafka.main]", "bootstrap", "name at least one"),
        ('[kafka.main]\nbootstrap = "b1"', "bootstrap", "HOST:PORT"),
        ('[kafka.main]\nbootstrap = "b1:9092,b2:65536"', "bootstrap", "'b2:65536': write HOST:PORT"),
        ('[kafka.main]\nbootstrap = "b1:0"', "bootstrap", "HOST:PORT"),
        ("[kafka.main]\nbootstrap = 9092", "bootstrap", "not a text"),
        ('[kafka."a b"]\nbootstrap = "b:1"', "kafka.a b", "a name is"),
        ('[kafka.main]\nbootstrap = "b:1"\npassword = "x"', "kafka.main.password", "no such setting"),
        ('[kafka.main]\nbootstrap = "b:1"\nsecurity = "TLS"', "security", "use PLAINTEXT"),
        ('[kafka.main]\nbootstrap = "b:1"\nmechanism = "GSSAPI"', "mechanism", "use PLAIN"),
        ('[kafka.main]\nbootstrap = "b:1"\nsecurity = "SASL_SSL"', "user", "SASL"),
        ('[kafka.main]\nbootstrap = "b:1"\nuser = "u"\npassword-file = "p"', "user", "SASL"),
        ('[kafka.main]\nbootstrap = "b:1"\nca-file = "c"', "security", "no certificates"),
        ('[kafka.main]\nbootstrap = "b:1"\nsecurity = "SSL"\ncert-file = "c"', "cert_file", "together"),
        ('[kafka.main]\nbootstrap = "b:1"\nsettings = { acks = 0 }', "settings.acks", "may be set"),
        ('[kafka.main]\nbootstrap = "b:1"\nsettings = { request_timeout_ms = true }', "settings.request_timeout_ms", "may be set"),
        ('allow-outbound = ["b"]', "allow_outbound", "HOST:PORT"),
        ("[registry.main]", "registry.main.url", "like http://HOST:PORT"),
        ('[registry.main]\nurl = "r:8081"', "registry.main.url", "like http://HOST:PORT"),
        ('[registry.main]\nurl = "http://r:x"', "registry.main.url", "is none"),
        ('[registry.main]\nurl = "http://r/?a=b"', "registry.main.url", "nothing behind it"),
        ('[registry.main]\nurl = "http://r/a b"', "registry.main.url", "encoded"),
        ('[registry.main]\nurl = "http://u:p@r"', "registry.main.url", "everybody may read"),
        ('[registry.main]\nurl = "http://r"\nuser = "u"', "registry.main.user", "given together"),
        ('[registry.main]\nurl = "http://r"\nuser = "u:v"\npassword-file = "p"', "registry.main.user", "a colon"),
        ('[registry.main]\nurl = "https://r"\nkey-file = "k"', "registry.main.cert_file", "together"),
        ('[registry.main]\nurl = "http://r"\nca-file = "c"', "registry.main.url", "no certificates"),
        ('[registry.main]\nurl = "http://r"\npassword = "x"', "registry.main.password", "no such setting"),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path, text, where, why):
    with pytest.raises(BadConfig, match=why) as refused:
        loaded(tmp_path, text)
    assert where in str(refused.value)


def test_a_name_is_a_table_or_an_address():
    found = outbound(main=KafkaConnection(bootstrap="b:1"))
    assert found.connection("main").bootstrap == "b:1"
    assert found.connection("127.0.0.1:9092,[::1]:9092").addresses == ["127.0.0.1:9092", "[::1]:9092"]
    with pytest.raises(NoConnection, match=r"node n1 has no table \[kafka.other\] in its file; it has main"):
        found.connection("other")


@pytest.mark.parametrize("given", ["127.0.0.1", "127.0.0.1:65536", "127.0.0.1:0", "b:1,", ""])
def test_what_is_neither_a_table_nor_an_address_is_said_to_be(given):
    with pytest.raises(NoConnection, match=f"and '{given}' is no HOST:PORT"):
        outbound().connection(given)


def test_a_registry_is_a_table_or_a_url():
    found = Outbound(node="n1", kafka={}, registry={"main": RegistryConnection(url="http://r:8081")}, allow=())
    assert found.registry_at("main").url == "http://r:8081"
    assert found.registry_at("http://127.0.0.1:8081/") == RegistryConnection(url="http://127.0.0.1:8081/")
    with pytest.raises(NoConnection, match=r"node n1 has no table \[registry.other\] in its file; it has main"):
        found.registry_at("other")
    with pytest.raises(InvalidArgument, match="which everybody may read") as refused:
        found.registry_at("http://eventlog:hunter2@r:8081")
    assert "hunter2" not in str(refused.value)


@pytest.mark.parametrize(
    ("allow", "found", "may"),
    [
        ((), ["127.0.0.1", "::1"], True),
        ((), ["127.0.0.1", "10.0.0.1"], False),
        ((), [], False),
        (("r.example.com:*",), ["10.0.0.1"], True),
        (("10.0.0.1:*",), ["10.0.0.1"], False),
    ],
)
def test_what_a_name_resolves_to_counts_where_no_name_is_allowed(allow, found, may):
    if may:
        outbound(*allow).check_found("r.example.com", 8081, found)
        return
    with pytest.raises(OutboundRefused, match=r"may not connect to r\.example\.com:8081"):
        outbound(*allow).check_found("r.example.com", 8081, found)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_this_machine_may_be_reached_unless_others_are_named(host):
    outbound().check(host, 9092)
    with pytest.raises(OutboundRefused, match="allow_outbound names b:9092"):
        outbound("b:9092").check(host, 9092)


@pytest.mark.parametrize(
    ("allow", "host", "port", "may"),
    [
        ((), "10.0.0.1", 9092, False),
        (("10.0.0.1:*",), "10.0.0.1", 9092, True),
        (("*.example.com:9093",), "b1.EXAMPLE.com", 9093, True),
        (("*.example.com:9093",), "b1.example.com", 9092, False),
        (("*.example.com:9093",), "example.com.evil.org", 9093, False),
        (("*:*",), "anywhere.org", 1, True),
        (("[::1]:9092",), "::1", 9092, True),
        (("[fe80::*]:*",), "fe80::1", 9092, True),
        (("[::1]:9092",), "::2", 9092, False),
        (("[::1]:9092",), "1", 9092, False),
        (("b.org:9092",), "bxorg", 9092, False),
    ],
)
def test_patterns_say_where_connections_may_lead(allow, host, port, may):
    if may:
        outbound(*allow).check(host, port)
        return
    with pytest.raises((OutboundRefused, KafkaFailed)):
        outbound(*allow).check(host, port)


def test_a_secret_is_the_first_line_of_a_file_and_never_said(tmp_path):
    file = tmp_path / "secret"
    file.write_text("hunter2\r\nmore\n")
    assert secret(str(file), option="password_file") == "hunter2"
    file.write_text("\nhunter2")
    with pytest.raises(BadConfig, match="is empty") as refused:
        secret(str(file), option="password_file")
    assert "hunter2" not in str(refused.value)
    file.write_bytes(b"hunter2\xff")
    with pytest.raises(BadConfig, match="no text") as refused:
        secret(str(file), option="password_file")
    assert "hunter2" not in str(refused.value)
    with pytest.raises(BadConfig, match="No such file"):
        secret(str(tmp_path / "none"), option="password_file")
