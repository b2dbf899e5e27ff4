"""The root of the tree and its four branches."""

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
        if set(facts) != set(self.fact_names):
            raise TypeError(f"{type(self).__name__} takes {', '.join(self.fact_names) or 'no facts'}; got {', '.join(facts) or 'none'}")
        super().__init__()
        self.outcome = outcome
        for name, value in facts.items():
            setattr(self, name, value)

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
        """Return the attributes that make up this error, by name."""
        return {name: getattr(self, name) for name in self.fact_names}


_NOT_FACTS = frozenset({"code", "retry", "sentence", "exit_code", "http_status", "fact_names", "outcome"})


def _rebuild(kind: type[EventLogError], outcome: Outcome, facts: dict[str, Any]) -> EventLogError:
    return kind(outcome=outcome, **facts)


class Misuse(EventLogError):
    """Our caller passed something that can never work."""

    code = "MISUSE"
    http_status = 400
    why: str


class PeerViolation(EventLogError):
    """Bytes that break the format; whoever sent or stored them is to blame."""

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
