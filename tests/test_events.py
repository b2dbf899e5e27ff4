"""Events as applications see them."""

from eventlog.events import Event, EventSource, Kind


def test_an_event_is_printed_as_it_is_read() -> None:
    source = EventSource(cache="c", cache_id=1, cluster="x", text_keys=True, json_values=True)
    event = Event(id=7, kind_number=Kind.MODIFIED, key_bytes=b"k", value_bytes=b'{"total":3}', segment=2, offset=5, source=source)
    assert repr(event) == "Event(id=7, kind='MODIFIED', key='k', value={'total': 3}, segment=2, offset=5)"
