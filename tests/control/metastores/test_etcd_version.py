"""Versions of etcd that lose data are refused, old ones named."""

import logging

import pytest

from eventlog.control.metastores.etcd import after_prefix, check_version
from eventlog.errors import BadConfig


@pytest.mark.parametrize("version", ["3.5.0", "3.5.5", "3.4.20", "3.4.21", "3.5.3-rc.1"])
def test_a_version_that_corrupts_its_data_is_refused_with_the_reason(version):
    with pytest.raises(BadConfig, match=f"etcd {version} at host:1 can corrupt its data"):
        check_version(version, "host:1")


@pytest.mark.parametrize(("version", "logged"), [("3.4.23", True), ("3.5.13", True), ("3.5.14", False), ("3.6.0", False), ("odd", True)])
def test_an_old_version_is_warned_of_once(version, logged, caplog):
    with caplog.at_level(logging.WARNING):
        check_version(version, "host:1")
    assert bool(caplog.records) == logged


@pytest.mark.parametrize(("prefix", "end"), [(b"a", b"b"), (b"a/", b"a0"), (b"a\xff", b"b"), (b"\xff\xff", b"\0"), (b"", b"\0")])
def test_the_end_of_a_prefix_is_the_first_key_behind_it(prefix, end):
    assert after_prefix(prefix) == end
