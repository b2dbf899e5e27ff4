"""What becomes of a request whose work fails, or cannot begin: its own refusal, and nobody else's concern."""

import logging
from collections.abc import Awaitable, Iterable

from eventlog.errors import BadMessage, EventLogError, tellable
from eventlog.ids import ID_MAX
from eventlog.transport.connection import Exchange

log = logging.getLogger("eventlog.node")


async def see_through(exchange: Exchange, work: Awaitable[None]) -> None:
    """Wait for what is done for a request. An error, of whatever kind, is answered: it must not end the task, and the node with it."""
    try:
        await work
    except Exception as error:  # noqa: BLE001 -- the edge to what a client can make happen
        refuse_with(exchange, error)


def refuse_with(exchange: Exchange, error: Exception) -> None:
    """Answer with an error, unless nobody waits for it any more; one that nobody expected is logged."""
    if not isinstance(error, EventLogError):
        log.error("handler_failed kind=%s", exchange.kind, exc_info=error)
        error = tellable(error)
    if not exchange.is_over:
        exchange.fail(error)


def check_ids(numbers: Iterable[int]) -> None:
    """Raise BadMessage where one of a request's numbers is above every id."""
    for number in numbers:
        if number > ID_MAX:
            raise BadMessage(why=f"{number} is no id")
