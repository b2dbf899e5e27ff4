"""Events as applications see them."""

from typing import Any

from eventlog.events import Event, EventSource, Kind


def test_an_event_is_printed_as_it_is_read() -> None:
    source = EventSource(cache="c", cache_id=1, cluster="x", text_keys=True, json_values=True)
    event = Event(id=7, kind_number=Kind.MODIFIED, key_bytes=b"k", value_bytes=b'{"total":3}', segment=2, offset=5, source=source)
    assert repr(event) == "Event(id=7, kind='MODIFIED', key='k', value={'total': 3}, segment=2, offset=5)"


def test_events_are_equal_where_all_that_they_say_is_whoever_read_them() -> None:
    def read(reader: object, **changed: Any) -> Event:
        source = EventSource(
            cache="c", cache_id=1, cluster=changed.pop("cluster", "x"), text_keys=True, json_values=True, position_at=lambda _: f"{reader}"
        )
        said = {"id": 7, "kind_number": Kind.CREATED, "key_bytes": b"k", "value_bytes": b"1", "segment": 2, "offset": 5} | changed
        return Event(source=source, **said)

    assert read(1) == read(2)
    assert len({read(1), read(2)}) == 1
    others = [read(1, id=8), read(1, value_bytes=b"2"), read(1, cluster="y"), read(1, before_bytes=b"0"), read(1, change_number=1)]
    assert all(other != read(1) for other in others)
    assert read(1) != 7
