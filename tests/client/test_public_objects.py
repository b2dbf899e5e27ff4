"""What the objects of a client say of themselves, and that they are not sent to other processes."""

import pickle
from dataclasses import fields
from typing import get_type_hints

import pytest

import eventlog
from eventlog.client.options import ClientOptions, ConnectOptions


def test_a_client_says_where_it_would_connect() -> None:
    assert repr(eventlog.connect("n1:7400,n2:7401")) == "<eventlog.Client: not connected, at n1:7400, n2:7401>"


def test_a_client_that_is_pickled_says_what_to_do_instead() -> None:
    with pytest.raises(TypeError, match="at n1:7400> cannot be pickled: send its address or name, and connect in the other process"):
        pickle.dumps(eventlog.connect("n1"))


def test_what_type_checkers_know_of_the_options_is_what_there_is() -> None:
    known = get_type_hints(ConnectOptions)
    assert known == {
        name: kind for name, kind in get_type_hints(ClientOptions).items() if name in {field.name for field in fields(ClientOptions)}
    }
