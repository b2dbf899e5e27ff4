"""Asking for the cluster: what is said where nobody answers."""

import asyncio
import logging

import pytest

from eventlog.errors import ConnectionLost
from eventlog.node.cluster import joining


def test_where_nobody_answers_that_is_logged_once_an_address_and_told_in_one_sentence(monkeypatch, caplog):
    asked = []

    async def ask(address):
        asked.append(address)
        raise ConnectionLost(address=address, why="refused")

    monkeypatch.setattr(joining, "_ask", ask)
    monkeypatch.setattr(joining, "_PAUSE_MS", 1)
    with caplog.at_level(logging.INFO), pytest.raises(ConnectionLost) as caught:
        asyncio.run(joining._ask_any(["a:1", "b:2"], wait_ms=50))
    assert len(asked) > 2
    assert [record.getMessage().count("join_waits address=") for record in caplog.records] == [1, 1]
    assert str(caught.value) == str(ConnectionLost(address="a:1 or b:2", why="refused"))
