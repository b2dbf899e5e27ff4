"""Filters that Spark hands over: which the nodes judge, as bounds of ids, segments and a `where`, and which stay with Spark. Pure.

No column that is judged here is ever null, so a condition is TRUE, FALSE, or NULL where its literal is null; only TRUE matches.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from operator import eq, ge, gt, le, lt
from typing import Any, Final, Literal

from eventlog.errors import BadPredicate
from eventlog.events import KIND_NAMES, Kind
from eventlog.hashing import hash_key, route_bytes, segment_of
from eventlog.ids import ID_MAX, id_before
from eventlog.integrations.spark.options import SourceOptions

Operator = Literal["=", "<=>", "<", "<=", ">", ">=", "IN", "IS NULL", "IS NOT NULL", "STARTS WITH"]
PUSHED_MAX: Final = 32  # conditions of one where, which has at most 2,000 words
IN_MAX: Final = 1_000  # values of one IN
_WHERE_CHARACTERS_MAX: Final = 12_000  # of the caller's own, so that what is added fits
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_KINDS: Final = tuple(KIND_NAMES[kind] for kind in Kind if kind is not Kind.STATE)
_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {"=": eq, "<=>": eq, "<": lt, "<=": le, ">": gt, ">=": ge}
_NEGATED: Final[dict[str, Operator]] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnComparison:
    """A comparison of a column with a literal, as Spark means it. `value` is a tuple for `IN`."""

    column: str
    operator: Operator
    value: Any = None
    is_negated: bool = False

    def truth(self, item: Any) -> bool | None:
        """Return what the condition is of an item that is not null; None is NULL."""
        found = self._plain(item)
        return found if found is None or not self.is_negated else not found

    def _plain(self, item: Any) -> bool | None:
        if self.operator in {"IS NULL", "IS NOT NULL"}:
            return self.operator == "IS NOT NULL"
        if self.operator == "IN":
            return True if item in self.value else None if None in self.value else False
        if self.value is None:
            return False if self.operator == "<=>" else None
        if self.operator == "STARTS WITH":
            return bool(item.startswith(self.value))
        return _COMPARED[self.operator](item, self.value)

    @property
    def values(self) -> tuple[Any, ...]:
        """The literals that are not null."""
        if self.operator in {"IS NULL", "IS NOT NULL"}:
            return ()
        given = self.value if self.operator == "IN" else (self.value,)
        return tuple(value for value in given if value is not None)

    @property
    def is_constant(self) -> bool:
        """It is the same of every item."""
        return not self.values or (self.operator == "IN" and self.is_negated and None in self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheFacts:
    """What must be known of a cache. `keys_have_segments`: a key tells its segment, as in caches with state."""

    cache: str
    segments: int
    key_type: type[str] | type[bytes] = str
    keys_have_segments: bool = True
    by_prefix: bool = False
    is_state: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pushed:
    """What is read: ids in `(after, upto]` of `segments`, of these what the terms match. Nothing where `segments` is empty."""

    after: int = 0
    upto: int = ID_MAX
    segments: frozenset[int] = frozenset()
    terms: tuple[tuple[str, Any], ...] = field(default=())

    @property
    def is_nothing(self) -> bool:
        """No row can match."""
        return not self.segments or self.after >= self.upto

    def options(self, given: SourceOptions, *, segments: int) -> SourceOptions:
        """Return options that ask for this as well."""
        found = given if len(self.segments) == segments else replace(given, segments=tuple(sorted(self.segments)))
        if not self.terms:
            return found
        parameters: Any
        if isinstance(given.parameters, Mapping):
            names = [f"pushed_{number}" for number in range(len(self.terms))]
            texts = [text.replace("?", f":{name}") for name, (text, _) in zip(names, self.terms, strict=True)]
            parameters = {**given.parameters, **{name: value for name, (_, value) in zip(names, self.terms, strict=True)}}
        else:
            texts = [text for text, _ in self.terms]
            parameters = [*(given.parameters or ()), *(value for _, value in self.terms)]
        own = [] if given.where is None else [f"({given.where}\n)"]
        return replace(found, where=" AND ".join([*own, *texts]), parameters=parameters)


def push(conditions: Sequence[ColumnComparison | None], known: CacheFacts, given: SourceOptions) -> tuple[Pushed, list[int]]:
    """Return what is read where all of some conditions hold, and the places of those that stay with Spark; None always does."""
    found = Pushed(segments=frozenset(given.segments or range(known.segments)))
    left: list[int] = []
    takes_terms = _takes_terms(given)
    for place, condition in enumerate(conditions):
        pushed = None if condition is None else _push(condition, known, found)
        if pushed is None or (pushed.terms != found.terms and (not takes_terms or len(pushed.terms) > PUSHED_MAX)):
            left.append(place)
        else:
            found = pushed
    return found, left


def _takes_terms(given: SourceOptions) -> bool:
    """Return whether conditions can stand beside the caller's own."""
    parameters = given.parameters
    if isinstance(parameters, Mapping):
        return given.where is not None and not any(name.startswith("pushed_") for name in parameters)
    if parameters is not None and (given.where is None or not isinstance(parameters, list)):
        return False  # it is refused as it is
    return given.where is None or (len(given.where) < _WHERE_CHARACTERS_MAX and _stands_alone(given.where))


def _stands_alone(where: str) -> bool:
    """Return whether a text is a condition by itself: `a) OR (b` is none, and would be one in parentheses."""
    from eventlog.predicate.dialect import parse  # noqa: PLC0415 -- a parser of SQL takes a third of a second to load

    try:
        parse(where)
    except BadPredicate:
        return False  # it is refused as it is
    return True


def _push(condition: ColumnComparison, known: CacheFacts, found: Pushed) -> Pushed | None:
    """Return what is read where a condition holds, too; None: that is for Spark to say."""
    types: dict[str, type] = {"segment": int, "cache": str, "key": known.key_type}
    if not known.is_state:
        types |= {"kind": str, "id": int, "time": datetime}
    wanted = types.get(condition.column)
    if wanted is None or any(type(value) is not wanted for value in condition.values) or len(condition.values) > IN_MAX:
        return None
    if condition.is_constant:
        return found if condition.truth(_some(wanted)) else replace(found, segments=frozenset())
    if condition.column == "segment":
        return replace(found, segments=frozenset(one for one in found.segments if condition.truth(one)))
    if condition.column == "cache":
        return found if condition.truth(known.cache) else replace(found, segments=frozenset())
    if condition.column == "key":
        return _keys(condition, known, found)
    return {"kind": _kinds, "time": _times, "id": _ids}[condition.column](condition, found)


def _some(kind: type) -> Any:
    return _EPOCH if kind is datetime else kind()


def _kinds(condition: ColumnComparison, found: Pushed) -> Pushed:
    kinds = [kind for kind in _KINDS if condition.truth(kind)]
    if len(kinds) == len(_KINDS):
        return found
    return replace(found, terms=(*found.terms, ("kind IN ?", kinds))) if kinds else replace(found, segments=frozenset())


def _keys(condition: ColumnComparison, known: CacheFacts, found: Pushed) -> Pushed:
    if condition.operator == "IN":
        text, value = "key IN ?", list(condition.values)
    elif condition.operator == "STARTS WITH":
        text, value = "STARTS_WITH(key, ?)", condition.value
    else:
        text, value = f"key {'=' if condition.operator == '<=>' else condition.operator} ?", condition.value
    pushed = replace(found, terms=(*found.terms, (f"NOT ({text})" if condition.is_negated else text, value)))
    if condition.is_negated or condition.operator not in {"=", "<=>", "IN"} or not known.keys_have_segments:
        return pushed
    return replace(pushed, segments=found.segments & _segments_of(condition.values, known))


def _segments_of(keys: Collection[str | bytes], known: CacheFacts) -> frozenset[int]:
    octets = [key.encode() if isinstance(key, str) else key for key in keys]
    return frozenset(segment_of(hash_key(route_bytes(key, by_prefix=known.by_prefix)), known.segments) for key in octets)


def _ids(condition: ColumnComparison, found: Pushed) -> Pushed:
    values = condition.values
    operator = _NEGATED.get(condition.operator, condition.operator) if condition.is_negated else condition.operator
    match operator:
        case ">" | ">=":
            return replace(found, after=max(found.after, values[0] - (operator == ">=")))
        case "<" | "<=":
            return replace(found, upto=min(found.upto, values[0] - (operator == "<")))
        case "=" | "<=>" if not condition.is_negated:
            return replace(found, after=max(found.after, values[0] - 1), upto=min(found.upto, values[0]))
    within = [value for value in values if 0 <= value <= ID_MAX]
    if condition.is_negated:
        return replace(found, terms=(*found.terms, ("NOT (id IN ?)", within))) if within else found
    if not within:
        return replace(found, segments=frozenset())
    low, high = max(found.after, min(within) - 1), min(found.upto, max(within))
    return replace(found, after=low, upto=high, terms=(*found.terms, ("id IN ?", within)))


def _times(condition: ColumnComparison, found: Pushed) -> Pushed | None:
    """Judge times, which are those of ids, in milliseconds, while Spark's literals have microseconds."""
    if any(value.tzinfo is None for value in condition.values):
        return None
    micros = [(value - _EPOCH) // timedelta(microseconds=1) for value in condition.values]
    operator = _NEGATED.get(condition.operator, condition.operator) if condition.is_negated else condition.operator
    down, up = micros[0] // 1000, -(-micros[0] // 1000)
    match operator:
        case ">" | ">=":
            return replace(found, after=max(found.after, id_before(down + 1 if operator == ">" else up)))
        case "<" | "<=":
            return replace(found, upto=min(found.upto, id_before(up if operator == "<" else down + 1)))
    whole = [one // 1000 for one in micros if one % 1000 == 0]  # others are equal to no event's
    if condition.is_negated:
        return replace(found, terms=(*found.terms, ("NOT (time IN ?)", whole))) if whole else found
    if not whole:
        return replace(found, segments=frozenset())
    low, high = max(found.after, id_before(min(whole))), min(found.upto, id_before(max(whole) + 1))
    terms = found.terms if len(whole) == 1 else (*found.terms, ("time IN ?", whole))
    return replace(found, after=low, upto=high, terms=terms)
