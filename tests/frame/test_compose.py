"""The compose file: what it builds is there, and each node is started with options that `serve` takes."""

from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from eventlog_cli.serve import command as serve

pytestmark = pytest.mark.source

DOCKER = Path(__file__).resolve().parents[2] / "docker"
COMPOSE: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
NODES = {name: service for name, service in COMPOSE["services"].items() if name != "etcd"}


def options_of(name: str) -> dict[str, Any]:
    words = NODES[name]["command"]
    assert words[0] == "serve"
    return serve.make_context("serve", list(words[1:]), resilient_parsing=False).params


def test_there_are_three_nodes_and_an_etcd() -> None:
    assert sorted(COMPOSE["services"]) == ["etcd", "n1", "n2", "n3"]


@pytest.mark.parametrize("name", sorted(COMPOSE["services"]))
def test_what_a_service_builds_from_exists(name: str) -> None:
    build = COMPOSE["services"][name]["build"]
    assert (DOCKER / build["context"] / build["dockerfile"]).resolve().exists()


@pytest.mark.parametrize("name", sorted(NODES))
def test_a_node_is_started_with_options_that_serve_takes(name: str) -> None:
    options = options_of(name)
    assert options["node_name"] == options["host_label"] == name
    assert options["advertise"] == f"{name}:7400"
    assert options["meta"] == "etcd://etcd:2379"


def test_a_word_that_serve_does_not_know_would_be_noticed() -> None:
    with pytest.raises(click.UsageError):
        serve.make_context("serve", ["--no-such-option"])


def test_ports_are_published_to_loopback_alone_and_differ() -> None:
    published = [port for service in NODES.values() for port in service["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":")[1] for port in published}) == len(published) == 6


def test_every_volume_is_declared_and_holds_data_and_nothing_is_shared() -> None:
    mounted = [volume.split(":") for service in COMPOSE["services"].values() for volume in service["volumes"]]
    assert sorted(name for name, _ in mounted) == sorted(COMPOSE["volumes"])
    for name in NODES:
        assert Path(options_of(name)["data"]).parent == Path(NODES[name]["volumes"][0].split(":")[1])
