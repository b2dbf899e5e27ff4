"""An API over a node that has one cache, `c`, and nothing in it: for what the server does before a node is asked."""

from eventlog.errors import CacheNotFound
from eventlog.http.server import Api, ApiOptions
from eventlog.transport.connection import Exchange
from eventlog.wire.eventlog_pb2 import CacheAnswer, CacheDescription, CacheOptions, GetAnswer, HelloAnswer, Message


def dispatch(exchange: Exchange) -> None:
    """Answer as that node does."""
    if exchange.kind == "hello":
        exchange.answer(Message(hello_answer=HelloAnswer(version=1, cluster="c", segments=1, frame_bytes_max=1 << 20)))
    elif exchange.kind == "get":
        exchange.answer(Message(get_answer=GetAnswer()))
    elif exchange.kind == "describe_cache" and exchange.message.describe_cache.name == "c":
        cache = CacheDescription(name="c", id=1, options=CacheOptions(events=True, state=True))
        exchange.answer(Message(cache_answer=CacheAnswer(cache=cache)))
    else:
        raise CacheNotFound(cache="?")


def api_of(**options) -> Api:
    """Return an API over that."""
    return Api(dispatch, ApiOptions(body_bytes_max=1_000, **options))
