"""Asking for the cluster: what is said where nobody answers."""

import asyncio
import logging
from pathlib import Path

import pytest

from eventlog.control.metastores.location import SqliteLocation
from eventlog.errors import ConnectionLost
from eventlog.node.cluster import joining
from eventlog.node.config import NodeConfig
from eventlog.wire import eventlog_pb2 as pb


def test_where_nobody_answers_that_is_logged_once_an_address_and_told_in_one_sentence(monkeypatch, caplog):
    asked = []

    async def ask(address, _config):
        asked.append(address)
        raise ConnectionLost(address=address, why="refused")

    monkeypatch.setattr(joining, "_ask", ask)
    monkeypatch.setattr(joining, "_PAUSE_MS", 1)
    with caplog.at_level(logging.INFO), pytest.raises(ConnectionLost) as caught:
        asyncio.run(joining._ask_any(NodeConfig(join=("a:1", "b:2")), wait_ms=50, proves=False))
    assert len(asked) > 2
    assert [record.getMessage().count("join_waits address=") for record in caplog.records] == [1, 1]
    assert str(caught.value) == str(ConnectionLost(address="a:1 or b:2", why="refused"))


def test_a_file_beside_a_relative_data_directory_is_found_from_another_working_directory(tmp_path, monkeypatch):
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path / "here")
    Path("meta.db").touch()
    told = pb.ClusterInfoAnswer()
    joining.tell(SqliteLocation(Path("meta.db")), told)
    monkeypatch.chdir(tmp_path / "there")
    assert joining.reachable(told) == SqliteLocation(tmp_path / "here" / "meta.db")
