"""What the objects of a client say of themselves, and that they are not sent to other processes."""

import pickle
from collections.abc import Callable
from inspect import Parameter, signature
from typing import get_type_hints

import pytest

import eventlog
from eventlog.client.members.consuming import CacheConsumers, ConsumerOptions, WorkOptions
from eventlog.client.options import ClientOptions, ConnectOptions


def test_a_client_says_where_it_would_connect() -> None:
    assert repr(eventlog.connect("n1:7400,n2:7401")) == "<eventlog.Client: not connected, at n1:7400, n2:7401>"


def test_a_client_that_is_pickled_says_what_to_do_instead() -> None:
    with pytest.raises(TypeError, match="at n1:7400> cannot be pickled: send its address or name, and connect in the other process"):
        pickle.dumps(eventlog.connect("n1"))


def test_every_public_name_is_there_and_an_error_is_shown_by_the_one_to_catch_it_by() -> None:
    assert all(getattr(eventlog, name).__name__ for name in set(eventlog.__all__) - {"REMOVE"})
    for kind in eventlog.errors.walk():
        assert (kind.__module__, getattr(eventlog.errors, kind.__name__)) == ("eventlog.errors", kind)


@pytest.mark.parametrize(
    ("known", "call"),
    [(ConnectOptions, ClientOptions), (ConsumerOptions, CacheConsumers.new_consumer), (WorkOptions, CacheConsumers.new_worker)],
)
def test_what_type_checkers_know_of_options_is_what_there_is(known: type, call: Callable[..., object]) -> None:
    hints = get_type_hints(call)
    assert get_type_hints(known) == {
        name: hints[name] for name, parameter in signature(call).parameters.items() if parameter.kind is Parameter.KEYWORD_ONLY
    }
