"""One request and its answer, tried again until the operation's deadline."""

from typing import Any

from eventlog.client.connections.patience import Patience, Roads
from eventlog.client.options import ClientOptions
from eventlog.errors import ClientClosed, EventLogError, Outcome, OutcomeUnknown, TimedOut, Unavailable
from eventlog.routing.retry import SEGMENTS_OWN
from eventlog.transport.stream import Reply
from eventlog.wire.eventlog_pb2 import Message
from eventlog.wire.kinds import read_error


class Requests:
    """Asks nodes on behalf of a client's calls."""

    def __init__(self, nodes: Roads[Any], options: ClientOptions) -> None:
        self._nodes = nodes
        self._options = options

    def __repr__(self) -> str:
        return repr(self._nodes)

    async def ask(
        self,
        message: Message,
        *buffers: bytes,
        segment: int | None = None,
        repeatable: bool = True,
        again_ms_max: int = 0,
        timeout_ms: int = 0,
        wait_ms: int = 0,
    ) -> Reply:
        """Return the answer to a request, whose body is `buffers`. `timeout_ms` is the client's where it is 0.

        `wait_ms`: how long the node itself may take on purpose. Of a write of one event it is the answer that it was written.

        `again_ms_max`, unless 0: after so long it is not sent again if nobody knows what became of an earlier try.

        It goes to the primary of `segment`, without one to any node. What is not `repeatable` is sent at most once, unless the node
        says that it did nothing.

        Raises:
            TimedOut: no answer until the deadline, and no refusal before that.
            OutcomeUnknown: it is not sent again.
            EventLogError: the node's refusal, or why no node could be asked.
        """
        timeout_ms = (timeout_ms or self._options.timeout_ms) + wait_ms
        patience = Patience(self._nodes, self._options, timeout_ms=timeout_ms)
        refusal: EventLogError | None = None
        is_in_doubt, sent_at, doubt_ends = False, 0.0, 0.0  # doubt ends: 0, nobody has to give up because of it
        while True:
            routes = self._nodes.routes
            try:
                if segment is not None and routes is not None:
                    connection = await patience.connection(routes.primary(segment))
                else:
                    connection = await patience.other_connection()
                sent_at = self._nodes.now()
                if doubt_ends and sent_at > doubt_ends:
                    raise OutcomeUnknown(outcome="unknown", why="an earlier try was not answered, and it could be written twice by now")
                return _not_refused(await connection.request(message, *buffers, timeout_ms=patience.left_ms))
            except TimedOut as error:
                outcome: Outcome = "unknown" if is_in_doubt else error.outcome
                if refusal is not None:
                    raise type(refusal)(outcome=outcome, **refusal.facts()) from None
                raise TimedOut(outcome=outcome, what=message.WhichOneof("kind"), timeout_ms=timeout_ms) from None
            except EventLogError as error:
                is_in_doubt = is_in_doubt or error.outcome == "unknown"
                if again_ms_max and error.outcome == "unknown":
                    doubt_ends = doubt_ends or sent_at + again_ms_max / 1000
                is_late = bool(doubt_ends) and self._nodes.now() > doubt_ends
                refusal = error if isinstance(error, SEGMENTS_OWN) else refusal
                try:
                    await patience.wait_after(error, repeatable=repeatable and not is_late)
                except (Unavailable, ClientClosed) as last:  # which says nothing of the tries before
                    if is_in_doubt:
                        raise type(last)(outcome="unknown", **last.facts()) from None
                    raise


def _not_refused(reply: Reply) -> Reply:
    """Return an answer, unless it is that of a write of one block which was refused. Raises why."""
    for refusal in reply.message.write_answer.refusals:
        raise read_error(refusal.error)
    return reply
