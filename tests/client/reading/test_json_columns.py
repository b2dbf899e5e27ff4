"""Lines of JSON by columns are byte by byte those that are made event by event, and None where these have to be."""

import json
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.json_lines import JsonLines
from eventlog.client.reading.batches import EventBatch
from eventlog.client.reading.following import to_batches
from eventlog.client.reading.json_columns import lines_of
from eventlog.events import EventSource, Kind, encode_headers
from tests.client.answers import CACHE, Row, make

JSON = EventSource(cache="c", cache_id=CACHE, cluster="x", text_keys=True, json_values=True)
VALUES = ("1", '"ä\\n"', '{"a": [1.50, null]}', " true ", "123456789012345678901234567890", '"\u2028"')


def rows(count: int = 100) -> list[Row]:
    """Return events of all kinds over some seconds."""
    found = []
    for n in range(count):
        kind = (Kind.CREATED, Kind.MODIFIED, Kind.REMOVED, Kind.EXPIRED, Kind.STATE)[n % 5]
        value = b"" if kind in (Kind.REMOVED, Kind.EXPIRED) else VALUES[n % len(VALUES)].encode()
        found.append(Row((1 << 40) + n * (97 << 22), n % 7, n, int(kind), f"k{n} ä".encode(), value))
    return found


def batch_of(given: list[Row], source: EventSource = JSON) -> EventBatch:
    answer, body = make(("joined", given))
    (found,) = to_batches(answer, body, source)
    return found


def one_by_one(batch: EventBatch, *, by_id: bool = False, server_sent: bool = False) -> bytes:
    lines = JsonLines((lambda event: str(event.id)) if by_id else None).lines
    return b"".join((b"id: %d\ndata: %b\n" % (event.id, lines((event,)))) if server_sent else lines((event,)) for event in batch.events())


@pytest.mark.parametrize("with_images", [False, True])
@pytest.mark.parametrize("form", [{}, {"by_id": True}, {"by_id": True, "server_sent": True}])
def test_they_are_those_made_one_by_one(form: dict[str, bool], *, with_images: bool) -> None:
    given = [replace(row, before=b"0" if row.kind else b"") for row in rows()] if with_images else rows()
    batch = batch_of(given)
    assert lines_of(batch, **form) == one_by_one(batch, **form)
    assert (b'"before":0' in one_by_one(batch)) is with_images


@pytest.mark.parametrize("seconds", [100, 101, 10**9])
def test_events_that_lie_far_apart_have_their_own_times(seconds: int) -> None:
    batch = batch_of([*rows(), replace(rows()[0], id=(1 << 40) + ((seconds * 1_000) << 22))])
    assert lines_of(batch) == one_by_one(batch)


ANY_VALUE = st.sampled_from([*VALUES, "", "1,2", "[1", "2]", "1\n2", "1\r", "\n", "nul", '"\x01"', "[" * 5_000]).map(
    str.encode
) | st.binary(max_size=4)


@given(st.integers(0, 99), ANY_VALUE, st.binary(max_size=5) | st.text(max_size=5).map(str.encode), st.booleans())
def test_whatever_is_stored_the_lines_are_the_same_or_none(at: int, value: bytes, key: bytes, is_image: bool) -> None:
    given = rows()
    given[at] = replace(given[at], kind=int(Kind.MODIFIED), key=key, value=b"1" if is_image else value, before=value if is_image else b"")
    batch = batch_of(given)
    found = lines_of(batch, by_id=True)
    assert found is None or found == one_by_one(batch, by_id=True)


def test_what_needs_a_closer_look_gets_it() -> None:
    odd = {
        "headers": replace(rows()[0], headers=encode_headers({"h": b"x"})),
        "a quote in a key": replace(rows()[0], key=b'"'),
        "a key that is no text": replace(rows()[0], key=b"\xff"),
        "no JSON": replace(rows()[0], value=b"x"),
        "two lines": replace(rows()[0], value=b"[1,\n2]"),
        "nothing": replace(rows()[0], value=b""),
    }
    for name, row in odd.items():
        assert lines_of(batch_of([row, *rows()])) is None, name
    assert lines_of(batch_of(rows(3))) is None, "few are faster in a loop"
    for source in (
        msgspec.structs.replace(JSON, json_values=False),
        msgspec.structs.replace(JSON, columns=("id", "key", "value")),
        msgspec.structs.replace(JSON, may_repeat=lambda _: True),
    ):
        assert lines_of(batch_of(rows(), source)) is None
    assert json.loads(bytes(lines_of(batch_of(rows())) or b"").splitlines()[0])["key"] == "k0 ä"
