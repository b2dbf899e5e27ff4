"""The root of the tree, its four branches, the table of codes, and how others hear of an error."""

from collections.abc import Collection
from functools import cache
from typing import Any, ClassVar, Literal

Outcome = Literal["none", "unknown", "committed"]


class EventLogError(Exception):
    """The root. `facts` are passed by keyword and become attributes of the same name."""

    code: ClassVar[str] = "INTERNAL"
    retry: ClassVar[bool] = False
    sentence: ClassVar[str] = "{why}"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 500
    fact_names: ClassVar[tuple[str, ...]] = ("why",)

    outcome: Outcome = "none"

    def __init__(self, *, outcome: Outcome = "none", **facts: Any) -> None:
        if not self.are_facts(facts):
            raise TypeError(f"{type(self).__name__} takes {', '.join(self.fact_names) or 'no facts'}; got {', '.join(facts) or 'none'}")
        super().__init__()
        self.outcome = outcome
        for name, value in facts.items():
            setattr(self, name, value)

    @classmethod
    def are_facts(cls, names: Collection[str]) -> bool:
        """Return whether facts of these names make up an error of this class; one that has a default may be left out."""
        return set(names) <= set(cls.fact_names) and all(name in names or hasattr(cls, name) for name in cls.fact_names)

    def __init_subclass__(cls) -> None:
        own = [name for name in cls.__annotations__ if name not in _NOT_FACTS] if "__annotations__" in cls.__dict__ else []
        if own:
            cls.fact_names = tuple(own)

    def __str__(self) -> str:
        text = self.sentence.format(**self.facts())
        return f"{text} (outcome unknown: it may have been written)" if self.outcome == "unknown" else text

    def __repr__(self) -> str:
        outcome = {} if self.outcome == "none" else {"outcome": self.outcome}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in (self.facts() | outcome).items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.outcome, self.facts())

    def facts(self) -> dict[str, Any]:
        """Return the attributes that make up this error, by name; without those that are as their class has them."""
        return {name: getattr(self, name) for name in self.fact_names if name in self.__dict__}


_CHARACTERS_MAX = 1_000
_NOT_FACTS = frozenset({"code", "retry", "sentence", "exit_code", "http_status", "fact_names", "outcome"})


UNEXPECTED = "a bug of eventlog; the log of the node that met it says more"
"""What is told of an error that nobody expected: its own text may hold anybody's data."""


def tellable(error: BaseException) -> EventLogError:
    """Return an error as others may hear of it. A caller with one that is not ours has logged it."""
    return error if isinstance(error, EventLogError) else EventLogError(why=UNEXPECTED)


def foreign(error: BaseException) -> str:
    """Return its class and the beginning of its text; the class alone where it cannot say more."""
    name = type(error).__name__
    try:
        return f"{name}: {str(error)[:_CHARACTERS_MAX]}"
    except BaseException:  # noqa: BLE001 -- its text is that code's, too
        return name


def _rebuild(kind: type[EventLogError], outcome: Outcome, facts: dict[str, Any]) -> EventLogError:
    return kind(outcome=outcome, **facts)


class Misuse(EventLogError):
    """Our caller passed something that can never work."""

    code = "MISUSE"
    http_status = 400
    why: str


class PeerViolation(EventLogError):
    """Bytes that break the format; the fault is their sender's or their store's."""

    code = "PEER_VIOLATION"
    http_status = 400
    why: str


class Unavailable(EventLogError):
    """The same request may succeed later."""

    code = "UNAVAILABLE"
    retry = True
    exit_code = 3
    http_status = 503
    why: str


class Refused(EventLogError):
    """Understood and declined."""

    code = "REFUSED"
    http_status = 409
    why: str


def walk(kind: type[EventLogError] = EventLogError) -> list[type[EventLogError]]:
    """Return the tree below and including `kind`, parents first."""
    found = [kind]
    for child in kind.__subclasses__():
        found += walk(child)
    return found


@cache  # a caller that is refused again and again reads an error each time
def by_code() -> dict[str, type[EventLogError]]:
    """Return the one table from code to class; the same codes stand on the wire."""
    return {kind.code: kind for kind in walk()}


def from_wire(code: str, outcome: str, facts: dict[str, Any]) -> EventLogError:
    """Return the error that a peer described; an unknown code or odd facts become `Unavailable` or its root with the text kept."""
    kind = by_code().get(code)
    known: Outcome = "unknown" if outcome == "unknown" else "committed" if outcome == "committed" else "none"
    if kind is None or not kind.are_facts(facts):
        return EventLogError(outcome=known, why=f"{code}: {facts.get('why', facts)}")
    return kind(outcome=known, **facts)
