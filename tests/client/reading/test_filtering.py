"""What a reader wants, as requests carry it."""

from datetime import date

import numpy as np
import pytest

from eventlog.client.reading.filtering import filter_of
from eventlog.errors import InvalidArgument
from eventlog.wire.eventlog_pb2 import Filter


def test_nothing_said_is_no_filter():
    assert filter_of() is None
    assert filter_of(select=[], parameters=[], params={}) is None


def test_a_condition_has_its_parameters_as_json():
    assert filter_of(where="key = ? AND value.a IN (?)", parameters=["x", [1, None, b"\0"]]) == Filter(
        where="key = ? AND value.a IN (?)", parameters=b'["x",[1,null,{"base64":"AA=="}]]'
    )
    assert filter_of(where="key = :k", parameters={"k": "x"}).parameters == b'{"k":"x"}'


def test_fields_are_a_list_or_words_with_commas():
    assert list(filter_of(select="a, b.c").select) == list(filter_of(select=["a", "b.c"]).select) == ["a", "b.c"]


def test_a_factory_may_be_named_with_its_version():
    assert filter_of(filter="large", params={"least": 3}) == Filter(name="large", arguments=b'{"least":3}')
    assert filter_of(filter="large@2") == Filter(name="large", version=2)


@pytest.mark.parametrize(
    "given",
    [
        {"parameters": [1]},
        {"params": {"a": 1}},
        {"filter": ""},
        {"filter": "@2"},
        {"filter": "large@"},
        {"filter": "large@new"},
        {"filter": "large@²"},
        {"filter": "large@99999999999"},
        {"where": " "},
        {"select": "a,,b"},
        {"where": "key = ?", "parameters": [object()]},
        {"where": "value.n < ?", "parameters": [float("inf")]},
        {"where": "value.n IN :n", "parameters": {"n": [1, float("nan")]}},
        {"filter": "large", "params": {"n": {1: "x"}}},
        {"filter": "large", "params": {1: "x"}},
    ],
)
def test_what_says_nothing_is_refused(given):
    with pytest.raises(InvalidArgument):
        filter_of(**given)


def test_parameters_are_written_as_json_has_them():
    given = [np.int64(5), np.float32(0.5), b"\xff", {2}, (1, None), {"a": date(2020, 1, 2)}]
    assert filter_of(where="key = ?", parameters=given).parameters == b'[5,0.5,{"base64":"/w=="},[2],[1,null],{"a":"2020-01-02"}]'
