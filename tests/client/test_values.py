"""Messages and values."""

from typing import Any

import pytest

from eventlog.client.options import ClientOptions
from eventlog.client.reports import log_ends
from eventlog.client.values import cache_info, cache_options, consistency_number
from eventlog.errors import InvalidArgument
from eventlog.wire import eventlog_pb2 as pb


def test_only_given_options_are_sent_and_a_limit_of_0_is_given() -> None:
    found = cache_options({"format": "bytes", "key_format": "bytes", "events": False, "state": None, "retain_bytes": 0, "schema": "{}"})
    assert {field.name: value for field, value in found.ListFields()} == {
        "format": pb.BYTES,
        "bytes_keys": True,
        "events": False,
        "retain_bytes": 0,
        "schema": "{}",
    }
    assert cache_options({}) == pb.CacheOptions()


@pytest.mark.parametrize(
    "options",
    [{"format": "xml"}, {"key_format": "utf16"}, {"retain_bytes": -1}, {"retain_time_ms": 1.5}, {"lifespan_ms": 1 << 63}, {"colour": 1}],
)
def test_odd_options_are_refused_by_name(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        cache_options(options)


def test_a_description_says_none_for_no_limit() -> None:
    options = pb.CacheOptions(format=pb.JSON, events=True, state=True, before=True, bytes_keys=False, retain_bytes=5, lifespan_ms=0)
    info = cache_info(pb.CacheDescription(name="c", id=4, options=options, from_id=9))
    assert (info.name, info.id, info.format, info.key_format, info.from_id) == ("c", 4, "json", "utf8", 9)
    assert (info.retain_bytes, info.retain_time_ms, info.lifespan_ms) == (5, None, None)


def test_an_empty_log_has_no_first_id() -> None:
    assert log_ends(pb.LogEndsAnswer(last_id=7)).first_id is None


def test_consistency_is_one_of_three_words() -> None:
    assert [consistency_number(name) for name in ("primary", "linear", "any")] == [pb.PRIMARY, pb.LINEAR, pb.ANY]
    with pytest.raises(InvalidArgument, match="eventual"):
        consistency_number("eventual")


@pytest.mark.parametrize("name", ["timeout_ms", "bytes_unanswered_max", "read_ahead_bytes", "frame_bytes_target", "connect_timeout_ms"])
def test_options_of_a_client_are_above_0(name: str) -> None:
    with pytest.raises(InvalidArgument, match=name):
        ClientOptions(**{name: 0})  # type: ignore[arg-type]


@pytest.mark.parametrize("given", [0, -1, -0.5, float("nan"), "7", b"7", [7], True])
def test_the_time_of_one_operation_is_above_0(given: float) -> None:
    options = ClientOptions(timeout_ms=700)
    assert (options.limit_ms(None), options.limit_ms(5)) == (700, 5)
    with pytest.raises(InvalidArgument, match="timeout_ms is"):
        options.limit_ms(given)  # type: ignore[arg-type]


def test_reading_ahead_is_bounded_by_what_a_connection_holds() -> None:
    with pytest.raises(InvalidArgument, match="read_ahead"):
        ClientOptions(read_ahead_bytes=1 << 40)
