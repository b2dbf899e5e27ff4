"""What the nodes of one host are started with. The processes themselves: tests/process/test_cluster_processes.py."""

from pathlib import Path

import pytest

from eventlog.errors import BadConfig
from eventlog.node.cluster.supervisor import check, config_of
from eventlog.node.config import NodeConfig, environment_of, load_config

SEVERAL = NodeConfig(data=Path("d"), processes=3)


def test_ports_and_directories_count_up_and_the_rest_is_shared():
    configs = [config_of(SEVERAL, index) for index in range(3)]
    assert [config.listen for config in configs] == ["127.0.0.1:7400", "127.0.0.1:7401", "127.0.0.1:7402"]
    assert [config.http for config in configs] == ["127.0.0.1:7480", "127.0.0.1:7481", "127.0.0.1:7482"]
    assert [config.data for config in configs] == [Path("d/0"), Path("d/1"), Path("d/2")]
    assert {config.processes for config in configs} == {1}
    assert len({config.host_label for config in configs}) == 1
    assert configs[0].host_label
    assert {config.meta for config in configs} == {f"sqlite:{Path('d.meta/meta.db').absolute()}"}


def test_what_is_given_is_kept_or_counted():
    given = NodeConfig(
        processes=2, listen="[::1]:9000", http="127.0.0.1:0", advertise="h:9100", host_label="x", node_name="n", ready_file="r"
    )
    second = config_of(given, 1)
    assert (second.listen, second.http, second.advertise) == ("[::1]:9001", "127.0.0.1:0", "h:9101")
    assert (second.host_label, second.node_name, second.ready_file) == ("x", "n-1", "r.1")


def test_who_joins_is_told_where_the_metadata_are():
    assert config_of(NodeConfig(processes=2, join=("h:1",)), 1).meta == ""
    assert config_of(NodeConfig(processes=2, meta="etcd://h:1"), 1).meta == "etcd://h:1"


def test_too_few_ports_are_named():
    with pytest.raises(BadConfig, match="65536"):
        check(NodeConfig(processes=2, listen="127.0.0.1:65535"))


def test_ports_that_both_count_up_to_are_refused_before_a_node_starts():
    for http in ("h:7401", "h:7402", "h:7398"):
        with pytest.raises(BadConfig, match="put them further apart") as caught:
            check(NodeConfig(listen="h:7400", http=http, processes=3))
        assert caught.value.option == "http"
    for listen, http in (("h:7400", "h:7403"), ("h:7400", "i:7401"), ("h:0", "h:0")):
        check(NodeConfig(listen=listen, http=http, processes=3))


def test_the_directory_of_one_node_is_not_taken_for_several(tmp_path):
    (tmp_path / "member.json").write_text("{}")
    with pytest.raises(BadConfig, match="one node"):
        check(NodeConfig(processes=2, data=tmp_path))


def test_the_environment_makes_the_same_configuration():
    config = NodeConfig(data=Path("a b"), join=("h:1", "i:2"), gateway=True, replicas=5, node_name="n-1.a", insecure=True)
    assert load_config({}, environment=environment_of(config)) == config
