"""Which segments an iteration is over: all, those that the answering node leads, those that were named, or what a function says.

A function is installed on the nodes as an entry point of the group `eventlog.scopes`: it gets the topology and parameters and returns
segments. Nothing that a client sends is executed.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from eventlog.errors import BadMessage, EventLogError, InvalidArgument, foreign
from eventlog.topology import Topology

GROUP = "eventlog.scopes"
Scope = Callable[[Topology, Mapping[str, Any]], Iterable[int]]
BUILT_IN = ("global", "local", "segments")


def segments_in(
    name: str, topology: Topology, *, asked: tuple[int, ...], number: int, custom: tuple[Scope | None, Mapping[str, Any]]
) -> tuple[int, ...]:
    """Return the segments of a scope, rising; `asked` narrows all of them but `segments`, which is `asked`.

    `number` is the node that answers; `custom` the function of a name that is not built in, and what to call it with.

    Raises:
        InvalidArgument: nobody installed a scope of this name, or its function refuses the parameters.
        BadMessage: a function returned what are not segments.
    """
    function, parameters = custom
    if name in {"", "global", "segments"}:
        return asked
    if name == "local":
        return tuple(segment for segment in asked if topology.primaries[segment] == number)
    if function is None:
        raise InvalidArgument(why=f"no scope {name!r} is installed here: use {', '.join(BUILT_IN)} or an entry point of {GROUP}")
    try:
        found: Collection[Any] = set(function(topology, parameters))
    except EventLogError:
        raise
    except BaseException as error:  # the edge to an operator's code
        raise InvalidArgument(why=f"scope {name!r} with these parameters: {foreign(error)}") from error
    bad = [segment for segment in found if type(segment) is not int or not 0 <= segment < topology.segments]
    if bad:
        raise BadMessage(why=f"scope {name!r} returned {bad[0]!r}, which is no segment of {topology.segments}")
    return tuple(segment for segment in asked if segment in found)
