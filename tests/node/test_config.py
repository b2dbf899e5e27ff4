"""Settings: who wins, what is refused and how it is said."""

import ipaddress
from pathlib import Path

import pytest

from eventlog.control.metastores.location import SqliteLocation
from eventlog.errors import BadConfig, Insecure
from eventlog.node.config import NodeConfig, join_token, load_config, split_address
from eventlog_cli.serve import command


def test_options_win_over_the_environment_and_that_over_the_file(tmp_path):
    file = tmp_path / "node.toml"
    file.write_text('segments = 2\nlisten = "127.0.0.1:1"\nnode-name = "file"\n')
    environment = {"EVENTLOG_NODE_SEGMENTS": "4", "EVENTLOG_NODE_LISTEN": "127.0.0.1:2", "EVENTLOG_OTHER": "x"}
    config = load_config({"segments": 8, "http": None}, file=file, environment=environment)
    assert (config.segments, config.listen, config.node_name, config.http) == (8, "127.0.0.1:2", "file", NodeConfig().http)


@pytest.mark.parametrize(
    ("text", "size"), [("1", 1), ("3B", 3), ("2 KiB", 2048), ("5MiB", 5 << 20), ("1GiB", 1 << 30), ("2TiB", 2 << 40), ("3MB", 3_000_000)]
)
def test_sizes_have_units(text, size):
    assert load_config({"disk_reserve_bytes": text}, environment={}).disk_reserve_bytes == size


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("segments", 0),
        ("segments", 3),
        ("segments", 8192),
        ("segments", True),
        ("segments", "1" * 5_000),
        ("disk_reserve_bytes", "1.5MiB"),
        ("disk_reserve_bytes", -1),
        ("column_files_bytes_max", "some"),
        ("value_bytes_max", 0),
        ("value_bytes_max", "1GiB"),
        ("connections_max", 0),
        ("retention_interval_ms", 0),
        ("insecure", "perhaps"),
        ("durability", "none"),
        ("meta", "etcd://127.0.0.1"),
        ("meta", "managed-etcd:4"),
        ("weight", 0),
        ("node_name", "n 1"),
        ("host_label", "ä"),
        ("rack", "r\n1"),
        ("node_name", "n" * 201),
        ("data", 5),
        ("data", ""),
        ("data", "a\0b"),
        ("data", "a\udcff"),
        ("rack", "a\udcff"),
        ("listen", 7400),
        ("listen", "127.0.0.1"),
        ("listen", ":7400"),
        ("listen", "127.0.0.1:65536"),
        ("listen", "127.0.0.1:²"),
        ("listen", "no such host:1"),
        ("listen", "::1:7400"),
        ("listen", "[127.0.0.1]:7400"),
        ("listen", "[::1:7400"),
        ("advertise", "fd00::1:7400"),
        ("advertise", "n1.example.org:0"),
        ("advertise", "0.0.0.0:7400"),
        ("advertise", "0:7400"),
        ("advertise", "[::]:7400"),
        ("advertise", "[::ffff:0.0.0.0]:7400"),
        ("weight", "1GiB"),
        ("retention_interval_ms", "10KB"),
        ("join_token_file", "there is no such file"),
        ("join_token_file", "/"),
        ("join", "127.0.0.1:0"),
        ("http", "127.0.0.1:-1"),
        ("unheard_of", "1"),
    ],
)
def test_what_cannot_be_used_is_named(option, value):
    with pytest.raises(BadConfig) as caught:
        load_config({option: value}, environment={})
    assert caught.value.option == option


@pytest.mark.parametrize(
    ("option", "value", "why"),
    [
        ("weight", -1, "-1 is not from 1 to 100"),
        ("processes", "-3", "-3 is not from 1 to 64"),
        ("segments", -4, "-4 is not a power of two"),
        ("weight", "two", "'two' is not a whole number"),
        ("advertise", "0.0.0.0:7400", "others reach none by it"),
    ],
)
def test_what_is_wrong_is_said_truly(option, value, why):
    with pytest.raises(BadConfig, match=why):
        load_config({option: value}, environment={})


def test_a_join_token_is_looked_at_before_anything_is_opened(tmp_path):
    file = tmp_path / "token"
    file.write_text("too short\n")
    with pytest.raises(BadConfig, match="holds 9 bytes; 16 are the least"):
        load_config({"join_token_file": str(file)}, environment={})
    file.write_text("a text that is long enough\n")
    assert join_token(load_config({"join_token_file": str(file)}, environment={})) == b"a text that is long enough"


def test_settings_are_named_as_the_options_of_serve_are(tmp_path):
    options = [option for parameter in command.params for option in parameter.opts if parameter.expose_value]
    for option in sorted({*options} - {"--config"}):
        file = tmp_path / "node.toml"
        file.write_text(f"{option.removeprefix('--')} = 1.5\n")  # of no setting
        with pytest.raises(BadConfig, match="is n") as caught:
            load_config({}, file=file, environment={})
        assert "no such setting" not in str(caught.value)
    config = load_config({}, environment={"EVENTLOG_NODE_DISK_RESERVE": "1MiB", "EVENTLOG_NODE_VALUE_MAX": "2MiB"})
    assert (config.disk_reserve_bytes, config.value_bytes_max) == (1 << 20, 2 << 20)


@pytest.mark.parametrize("content", ["segments = ", "\x00", b"\xff\xfe"])
def test_a_file_that_is_none_is_named(tmp_path, content):
    file = tmp_path / "node.toml"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(BadConfig) as caught:
        load_config({}, file=file, environment={})
    assert caught.value.option == str(file)


@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "192.0.2.1:1"])
def test_beyond_loopback_needs_to_be_asked_for(address):
    for option in ("listen", "http"):
        with pytest.raises(Insecure):
            load_config({option: address}, environment={})
        assert getattr(load_config({option: address, "insecure": "yes"}, environment={}), option) == address


def test_metadata_never_lies_inside_the_data():
    with pytest.raises(BadConfig):
        load_config({"data": "d", "meta": "sqlite:d/meta.db"}, environment={})
    here = Path.cwd()
    assert load_config({"data": "d"}, environment={}).location == SqliteLocation(here / "d.meta" / "meta.db")
    assert load_config({"data": "."}, environment={}).location == SqliteLocation(here.parent / f"{here.name}.meta" / "meta.db")


def test_an_address_in_brackets_is_one_of_six():
    host, port = split_address("[::1]:7400", option="listen")
    assert (ipaddress.ip_address(host).version, port) == (6, 7400)


def test_a_setting_that_the_environment_spells_wrong_is_refused():
    with pytest.raises(BadConfig, match="segmnets"):
        load_config({}, environment={"EVENTLOG_NODE_SEGMNETS": "4"})
