"""Asking for the cluster: what is said where nobody answers."""

import asyncio
import logging
from pathlib import Path

import pytest

from eventlog.control.metastores.location import SqliteLocation
from eventlog.errors import ConnectionLost
from eventlog.node.cluster import joining
from eventlog.node.cluster.joining import first_answer
from eventlog.wire import eventlog_pb2 as pb


def test_where_nobody_answers_that_is_logged_once_an_address_and_told_in_one_sentence(caplog):
    asked = []

    async def ask(address):
        asked.append(address)
        raise ConnectionLost(address=address, why="refused")

    with caplog.at_level(logging.INFO), pytest.raises(ConnectionLost) as caught:
        asyncio.run(first_answer(("a:1", "b:2"), ask, wait_ms=50, pause_ms=1))
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
