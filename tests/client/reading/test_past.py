"""What an id or a moment means, and what a before-image tells of the entry that it was."""

from datetime import UTC, datetime, timedelta

import pytest

from eventlog.client.reading.past import PastChange, Was, id_at, replaced
from eventlog.errors import InvalidArgument
from eventlog.events import Kind
from eventlog.ids import id_before, make_id
from eventlog.limits import CLOCK_AHEAD_MS_MAX

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
NOON_MS = int(NOON.timestamp() * 1000)
AT = make_id(NOON_MS, 0, 1)
LATER_MS = 2 * CLOCK_AHEAD_MS_MAX + 1


def change(kind: Kind, *, after_ms: int = LATER_MS, before: bytes | None = b"1") -> PastChange:
    return PastChange(id=make_id(NOON_MS + after_ms, 0, 1), kind=kind, value=b"2", before=before, expiry=0)


def test_a_moment_is_its_last_id_and_an_id_is_itself() -> None:
    assert id_at(NOON) == id_at(NOON + timedelta(microseconds=999)) == id_before(NOON_MS + 1)
    assert id_at(NOON) >= make_id(NOON_MS, 4095, 1023)
    assert id_at(AT) == AT


@pytest.mark.parametrize("wrong", [-1, 1 << 63, True, "1", 1.5, datetime(2026, 11, 20, 12)])  # noqa: DTZ001 -- that is what is wrong
def test_what_is_neither_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidArgument):
        id_at(wrong)


@pytest.mark.parametrize("kind", [Kind.MODIFIED, Kind.REMOVED])
def test_what_was_changed_or_removed_long_after_was_there_with_its_image_alone(kind: Kind) -> None:
    assert replaced(change(kind), at=AT) == Was(value=b"1", version=0, expiry=0)


def test_nothing_is_told_where_the_lifespan_may_have_ended_before_or_there_is_no_image() -> None:
    assert replaced(change(Kind.EXPIRED), at=AT) is None
    assert replaced(change(Kind.MODIFIED, after_ms=LATER_MS - 1), at=AT) is None
    assert replaced(change(Kind.MODIFIED, before=None), at=AT) is None


def test_an_event_leaves_its_value_or_nothing() -> None:
    event = change(Kind.MODIFIED)
    assert event.left == Was(value=b"2", version=event.id)
    assert change(Kind.REMOVED).left is None
    assert change(Kind.EXPIRED).left is None
