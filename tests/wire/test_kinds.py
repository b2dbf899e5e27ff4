"""What the kinds of the schema are for, and errors as messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import DiskFull, EventLogError, KeyExists, OutcomeUnknown, walk
from eventlog.wire.eventlog_pb2 import Error, Message
from eventlog.wire.kinds import CHANGES, ERROR_FACTS_BYTES_MAX, SHAPES, ExchangeShape, error_message, read_error


def test_every_kind_of_the_schema_has_a_shape():
    assert set(SHAPES) == {field.name for field in Message.DESCRIPTOR.oneofs_by_name["kind"].fields}
    assert ExchangeShape.UNKNOWN not in SHAPES.values()


@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("hello", ExchangeShape.REQUEST),
        ("hello_answer", ExchangeShape.ANSWER),
        ("write", ExchangeShape.REQUEST),
        ("write_answer", ExchangeShape.ANSWER),
        ("watch", ExchangeShape.STREAM),
        ("keys", ExchangeShape.STREAM),
        ("get_many", ExchangeShape.STREAM),
        ("poll", ExchangeShape.REQUEST),
        ("done", ExchangeShape.ANSWER),
        ("error", ExchangeShape.ERROR),
        ("stream_item", ExchangeShape.ITEM),
        ("stream_end", ExchangeShape.END),
        ("credit", ExchangeShape.CREDIT),
        ("end_stream", ExchangeShape.END_STREAM),
        ("ping", ExchangeShape.PING),
    ],
)
def test_kinds_are_read_from_their_names_and_fields(kind, shape):
    assert SHAPES[kind] is shape


def test_what_changes_something_asks():
    assert {SHAPES[kind] for kind in CHANGES} == {ExchangeShape.REQUEST, ExchangeShape.STREAM}


@pytest.mark.parametrize("kind", walk(), ids=lambda kind: kind.__name__)
def test_every_error_comes_back_as_it_was(kind):
    error = kind(outcome="unknown", **{name: 7 if name in {"key", "size", "limit"} else f"a {name}" for name in kind.fact_names})
    found = read_error(error_message(error).error)
    assert type(found) is type(error)
    assert found.facts() == error.facts()
    assert found.outcome == "unknown"


def test_facts_that_json_cannot_say_are_made_text():
    found = read_error(error_message(KeyExists(key=b"\xff\x00", version=2**70)).error)
    assert found.facts() == {"key": "\\xff\x00", "version": 2**70}


@pytest.mark.parametrize("kind", walk(), ids=lambda kind: kind.__name__)
def test_an_error_whose_facts_are_too_large_is_still_that_error(kind):
    for fact in ("x" * 20_000, "\N{GRINNING FACE}" * 20_000, b"x" * 20_000, ["x" * 10_000] * 20):
        message = error_message(kind(**dict.fromkeys(kind.fact_names, fact)))
        assert len(message.error.facts) <= ERROR_FACTS_BYTES_MAX
        found = read_error(message.error)
        assert type(found) is kind
        assert all(str(getattr(found, name))[:10] in (str(fact)[:10], "x" * 10) for name in kind.fact_names)


@pytest.mark.parametrize(("said", "read"), [("none", "none"), ("unknown", "unknown"), ("committed", "committed"), ("later", "none")])
def test_an_outcome_is_read_as_it_was_said(said, read):
    assert read_error(Error(code="DISK_FULL", outcome=said, facts=b"{}")).outcome == read


def test_an_error_of_a_later_version_keeps_its_text():
    found = read_error(Error(code="NEW_THING", outcome="unknown", facts=b'{"why": "because", "more": 1}'))
    assert type(found) is EventLogError
    assert "NEW_THING: because" in str(found)
    assert found.outcome == "unknown"


@given(
    st.text(max_size=20), st.text(max_size=10), st.binary(max_size=100) | st.sampled_from([b"[" * 100_000, b"[1]", b"null", b'{"why":3}'])
)
def test_any_error_message_is_an_error(code, outcome, facts):
    for named in (code, DiskFull.code, OutcomeUnknown.code):
        found = read_error(Error(code=named, outcome=outcome, facts=facts))
        assert isinstance(found, EventLogError)
        assert str(found)
