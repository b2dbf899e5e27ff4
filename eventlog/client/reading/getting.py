"""The call of a cache that reads one entry."""

from eventlog.client.handle import CacheHandle
from eventlog.client.values import Entry
from eventlog.client.wording import checked_id, consistency_number
from eventlog.errors import EventLogError, NotPrimary
from eventlog.wire import eventlog_pb2 as pb
from eventlog.wire.eventlog_pb2 import Message

COPY_ASK_MS = 250  # a read that has failed says a little later what another one would be answered


class CacheGetting(CacheHandle):
    """One entry as of now."""

    async def get(self, key: str | bytes, *, consistency: str = "primary", at_least: int = 0) -> Entry | None:
        """Return the entry of `key`, None if there is none. `at_least`: an id that the answering node must have applied.

        Raises:
            NotPrimary: nobody can answer for the segment with this consistency; `copy_upto` says how far a copy is that `"any"` would be
                answered from, 0 where none was found.
        """
        info, form = await self._found()
        stored_key, number = form.key(key), consistency_number(consistency)
        request = pb.Get(cache_id=info.id, key=stored_key, consistency=number, at_least=checked_id(at_least))
        segment = None if number == pb.ANY else self._core.routes.segment(stored_key, by_prefix=info.route_by_prefix)
        try:
            answer = (await self._core.requests.ask(Message(get=request), segment=segment)).message.get_answer
        except NotPrimary as error:
            if number == pb.ANY:
                raise
            raise NotPrimary(segment=error.segment, copy_upto=await self._copy_upto(request)) from error
        if not answer.found:
            return None
        return Entry(
            value=form.read_value(answer.value),
            value_bytes=answer.value,
            version=answer.version,
            expires_ms=answer.expires_ms or None,
        )

    async def _copy_upto(self, request: pb.Get) -> int:
        """Return up to which id the copy is complete that a read from any copy would be answered from; 0 if none answers at once."""
        anyhow = pb.Get(cache_id=request.cache_id, key=request.key, consistency=pb.ANY)
        for connection in self._core.nodes.live():
            try:
                reply = await connection.request(Message(get=anyhow), timeout_ms=COPY_ASK_MS)
            except EventLogError:
                continue
            applied_id: int = reply.message.get_answer.applied_id
            return applied_id
        return 0
