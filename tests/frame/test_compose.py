"""The compose file: what it builds is there, and each node is started with options that `serve` takes."""

from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest

from eventlog_cli.serve import command as serve

pytestmark = pytest.mark.source

DOCKER = Path(__file__).resolve().parents[2] / "docker"
NODES = ("n1", "n2", "n3")


@cache
def compose() -> dict[str, Any]:
    """Return the page; read here, because the wheel's tests are collected without its reader."""
    import yaml

    found: dict[str, Any] = yaml.safe_load((DOCKER / "compose.yaml").read_text())
    return found


def service(name: str) -> dict[str, Any]:
    found: dict[str, Any] = compose()["services"][name]
    return found


def options_of(name: str) -> dict[str, Any]:
    words = service(name)["command"]
    assert words[0] == "serve"
    return serve.make_context("serve", list(words[1:]), resilient_parsing=False).params


def test_there_are_three_nodes_and_an_etcd() -> None:
    assert sorted(compose()["services"]) == ["etcd", *NODES]


@pytest.mark.parametrize("name", ["etcd", *NODES])
def test_what_a_service_builds_from_exists(name: str) -> None:
    build = service(name)["build"]
    assert (DOCKER / build["context"] / build["dockerfile"]).resolve().exists()


@pytest.mark.parametrize("name", NODES)
def test_a_node_is_started_with_options_that_serve_takes(name: str) -> None:
    options = options_of(name)
    assert options["node_name"] == options["host_label"] == name
    assert options["advertise"] == f"{name}:7400"
    assert options["meta"] == "etcd://etcd:2379"


def test_a_word_that_serve_does_not_know_would_be_noticed() -> None:
    with pytest.raises(click.UsageError):
        serve.make_context("serve", ["--no-such-option"])


def test_ports_are_published_to_loopback_alone_and_differ() -> None:
    published = [port for name in NODES for port in service(name)["ports"]]
    assert all(port.startswith("127.0.0.1:") for port in published)
    assert len({port.split(":")[1] for port in published}) == len(published) == 6


def test_every_volume_is_declared_and_holds_data_and_nothing_is_shared() -> None:
    mounted = [volume.split(":") for found in compose()["services"].values() for volume in found["volumes"]]
    assert sorted(name for name, _ in mounted) == sorted(compose()["volumes"])
    for name in NODES:
        assert Path(options_of(name)["data"]).parent == Path(service(name)["volumes"][0].split(":")[1])
