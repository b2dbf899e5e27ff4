"""Listeners as messages: what is registered, and what is answered about one."""

from eventlog.consume import token
from eventlog.consume.listeners.records import FilterFrom, ListenerRecord
from eventlog.node.consumers.listener_home import KeptListener
from eventlog.node.reading.filters import message_of
from eventlog.predicate.spec import FilterSpec
from eventlog.wire import eventlog_pb2 as pb


def spec_in(filter_: pb.Filter) -> FilterSpec:
    """Return what a message's filter says; one that says nothing wants everything."""
    return FilterSpec(
        where=filter_.where,
        parameters=filter_.parameters,
        select=tuple(filter_.select),
        name=filter_.name,
        version=filter_.version,
        arguments=filter_.arguments,
        continuous=filter_.continuous,
    )


def described(kept: KeptListener) -> pb.Listener:
    """Return a listener as the node that keeps it shows it; how far it lags is for others to count."""
    record = kept.record
    position = kept.progress.position()
    listener = pb.Listener(
        id=record.id,
        cache_id=record.cache_id,
        cache=record.cache,
        filter=message_of(record.newest.spec),
        from_id=record.newest.from_id,
        durable=record.durable,
        hold_bytes=record.hold_bytes,
        hold_ms=record.hold_ms,
        expire_ms=record.expire_ms,
        last_id=record.last_id,
        first_id=record.first_id,
        position=token.encode(position) if record.durable else b"",
        position_id=kept.progress.lowest if record.durable else 0,
        held_percent=kept.held_percent,
        version=kept.version,
    )
    for found in record.filters:
        listener.filters.add(from_id=found.from_id, filter=message_of(found.spec))
    return listener


def record_of(listener: pb.Listener) -> ListenerRecord:
    """Return the record of a listener that another node describes."""
    return ListenerRecord(
        id=listener.id,
        cache_id=listener.cache_id,
        cache=listener.cache,
        filters=tuple(FilterFrom(from_id=found.from_id, spec=spec_in(found.filter)) for found in listener.filters),
        durable=listener.durable,
        hold_bytes=listener.hold_bytes,
        hold_ms=listener.hold_ms,
        expire_ms=listener.expire_ms,
        last_id=listener.last_id,
        first_id=listener.first_id,
    )
