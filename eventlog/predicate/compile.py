"""A filter's description -> what judges events: checked, put in order of cost, and evaluated on columns."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints, Mask
from eventlog.batch.columns import EventColumns
from eventlog.errors import BadPredicate, EventLogError, foreign
from eventlog.events import Kind
from eventlog.ids import ID_MAX
from eventlog.limits import SELECT_FIELDS_MAX
from eventlog.predicate.avro import AvroProjection, AvroValues
from eventlog.predicate.bounds import bounds_of
from eventlog.predicate.dialect import parse, refusal
from eventlog.predicate.factories import Factories, Filter, installed
from eventlog.predicate.frame import BytesFields, DecodePlan, Fields, Frame
from eventlog.predicate.json_fields import JsonFields, JsonProjection, Nothing, Projection, as_column
from eventlog.predicate.names import Names
from eventlog.predicate.reading import Parameters, PredicateReader
from eventlog.predicate.search import candidates, needles_of, numbers_of
from eventlog.predicate.spec import ANYTHING, Bounds, FilterContext, FilterSpec, Image
from eventlog.predicate.tree import And, Column, Constant, Path, Root, Step, SyntaxNode, walk
from eventlog.predicate.truths import VALUE, cost_of, truth_of
from eventlog.predicate.values import Truths, Values, values_of
from eventlog.schema.avro import AvroSchema

Steps = tuple[Step, ...]
Wanted = frozenset[bytes] | re.Pattern[bytes]
JOINED, UPDATED, LEFT = 1, 2, 3
_ROOTS: tuple[Root, ...] = ("value", "before")
_EVERYTHING = Constant(at=1, type="boolean", value=True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Conjunct:
    """One of the conditions that all must be TRUE."""

    judge: Truths
    cost: int
    paths: frozenset[Steps] | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Compiled:
    """A checked filter; see `CompiledFilter` for what it promises. `bounds` are those of the predicate."""

    spec: FilterSpec
    bounds: Bounds
    fields: frozenset[str]
    columns: frozenset[str]  # names of those that the predicate asks for, as `id`
    conjuncts: tuple[_Conjunct, ...]
    needles: tuple[tuple[Root, Wanted], ...]
    plan: DecodePlan
    named: Filter | None
    projections: dict[Root, Projection | None]
    keeps_before: bool

    @property
    def kinds(self) -> int:
        """Return the bits of the kinds that can match."""
        return self.bounds.kinds

    @property
    def is_costly(self) -> bool:
        """Return whether values are decoded, or a named filter does what it wants."""
        beside = self.plan.promoted.keys()
        return self.named is not None or any(
            conjunct.cost >= VALUE and (conjunct.paths is None or not conjunct.paths <= beside) for conjunct in self.conjuncts
        )

    def may_match(self, *, kinds: npt.NDArray[np.uint8], segments: Ints, bases: Ints, lasts: Ints) -> Mask:
        """Return which stored values can hold an event that matches, by what their headers say: bits of kinds, first and last id."""
        bounds = self.bounds
        found = kinds & bounds.kinds != 0
        if bounds.id_low > 0 or bounds.id_high < ID_MAX:
            found &= (lasts >= bounds.id_low) & (bases <= bounds.id_high)
        if bounds.segments is not None:
            found &= np.isin(segments, list(bounds.segments))
        return np.asarray(found)

    def mask(self, events: EventColumns, *, image: Image = "value") -> Mask:
        """Return which events match; with `image="before"`, of which the entry matched before the change."""
        if self.spec.continuous or image == "before":
            frame = Frame(events, self.plan, is_old=image == "before")
            has = frame.has("value")
            return has if not self.conjuncts or not has.any() else self._judged(frame, has)
        found = self._judged(Frame(events, self.plan, is_old=False), None)
        if self.named is None or not found.any():
            return found
        rows = np.flatnonzero(found)
        with _naming(self.spec.name):
            matching = np.asarray(self.named.mask(events.take(rows)), bool)
            if matching.shape != rows.shape:  # numpy would take one bool for all of them
                raise ValueError(f"its mask has the shape {matching.shape}, not one bool for each of {len(rows)} events")
        found[rows] = matching
        return found

    def project(self, events: EventColumns, *, image: Image = "value") -> tuple[bytes, bytes] | None:
        """Return offsets (i32, one more than events) and bytes of what is answered for an image; None where it is answered as it is."""
        if image == "value" and self.named is not None and not self.spec.select and hasattr(self.named, "project"):
            with _naming(self.spec.name):
                return as_column([bytes(item) for _, item in zip(range(len(events)), self.named.project(events), strict=True)])
        projection = self.projections[image]
        texts = events.values if image == "value" else events.before
        return None if projection is None or texts is None else as_column(projection.apply(texts))

    def changes(self, events: EventColumns) -> npt.NDArray[np.uint8]:
        """Return of each event what it is to a continuous query: 0 nothing, JOINED, UPDATED, LEFT.

        Raises:
            BadPredicate: the cache kept no before-images when one of them was written.
        """
        _check_images(events, is_bytes=self.plan.is_bytes)
        new, old = self.mask(events), self.mask(events, image="before")
        found = np.where(new, np.where(old, UPDATED, JOINED), np.where(old, LEFT, 0))
        return found.astype(np.uint8)

    def _judged(self, frame: Frame, begin: Mask | None) -> Mask:
        """Ask one condition after the other, each only of the events that passed those before it."""
        found = np.zeros(len(frame), bool)
        rows = np.arange(len(frame))
        if begin is not None and not begin.all():
            rows = np.flatnonzero(begin)
            frame = frame.take(rows)
        ready, later = self._in_order(frame)
        for step in (*ready, *later):
            if not len(rows):
                return found
            true, _ = step(frame)
            passed = np.flatnonzero(true)
            if len(passed) < len(rows):
                frame, rows = frame.take(passed), rows[passed]
        found[rows] = True
        return found

    def _in_order(self, frame: Frame) -> tuple[list[Truths], list[Truths]]:
        """Return what is judged by columns, and what by decoding values: that begins with a look at their bytes."""
        ready = [one for one in self.conjuncts if one.cost < VALUE or frame.has_promoted(one.paths)]
        later = [one.judge for one in self.conjuncts if one not in ready]
        return [one.judge for one in ready], [*(_holding(root, needles) for root, needles in self.needles), *later] if later else []


def _check_images(events: EventColumns, *, is_bytes: bool) -> None:
    """Raise BadPredicate where an event that changed an entry does not say what it was."""
    lacking = (events.kinds != Kind.CREATED) & (events.kinds != Kind.STATE)
    if events.before is not None:
        lacking &= (events.before.sizes == 0) & (not is_bytes)  # bytes of no length are an image, too
    if lacking.any():
        why = "a continuous query needs before-images, which this cache did not keep at id"
        raise refusal(1, f"{why} {events.ids[lacking].item(0)}: begin it anew")


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Have whatever an operator's code raises say whose it is.

    Raises:
        EventLogError: in place of another exception.
    """
    try:
        yield
    except EventLogError:
        raise
    except BaseException as error:  # the edge to an operator's code: readers and tasks expect our errors only
        raise EventLogError(why=f"filter {name}: {foreign(error)}") from error


def compile_filter(spec: FilterSpec, context: FilterContext, factories: Factories | None = None) -> Compiled:
    """Return a filter that is right for a cache.

    Raises:
        BadPredicate: `where`, its parameters or `select`; with the place and what may have been meant.
        FilterNotFound: the named filter is not installed on this node.
        BadFilterParameters: it does not take these.
    """
    names = Names(context, is_continuous=spec.continuous)
    if spec.continuous and not context.before:
        raise refusal(1, "a continuous query needs before-images, which this cache does not keep: give it the option before (--before)")
    if spec.continuous and spec.name:
        raise refusal(1, "a continuous query takes a predicate, no named filter")
    condition = _condition(spec, names)
    named: Filter | None = None
    if spec.name:
        named, version = (factories or installed()).build(spec.name, spec.version, spec.arguments, context=context)
        spec = replace(spec, version=version)
    paths = _paths(condition)
    conjuncts = _conjuncts(condition)
    selected = _selected(spec.select, Names(context))
    return Compiled(
        spec=spec,
        bounds=ANYTHING if spec.continuous else bounds_of(condition),
        fields=frozenset("value" + "".join(f".{step}" for step in path) for path in paths["value"]),
        columns=frozenset(node.name for node in walk(condition) if isinstance(node, Column)),
        conjuncts=tuple(_Conjunct(judge=truth_of(one), cost=cost_of(one), paths=_paths_of_values(one)) for one in conjuncts),
        needles=_needles(conjuncts, context),
        plan=_plan(paths, context),
        named=named,
        projections={root: _projection(selected, root, context) for root in _ROOTS},
        keeps_before=selected is None or bool(selected["before"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Expressions:
    """Checked expressions, whose values are asked for and not whether they hold."""

    values: tuple[Values, ...]
    plan: DecodePlan

    def lists(self, events: EventColumns) -> list[list[Any]]:
        """Return a list of values for each expression, an item an event; None is NULL."""
        frame = Frame(events, self.plan, is_old=False)
        return [values(frame) for values in self.values]


def compile_expressions(texts: Iterable[str], context: FilterContext) -> Expressions:
    """Return expressions that are right for a cache, in the words of predicates; `v.name` is short for `value.name`.

    Raises:
        BadPredicate: naming the expression, with the place and what may have been meant.
    """
    names = Names(context, has_short=True)
    nodes: list[SyntaxNode] = []
    for text in texts:
        try:
            parsed = parse(text)
            nodes.append(PredicateReader(names, Parameters(b"", parsed.placeholders)).expression(parsed))
        except BadPredicate as error:
            raise refusal(error.column, f"expression {text[:60]!r}: {error.why}", error.suggestion) from error
    paths: dict[Root, set[Steps]] = {root: {path for node in nodes for path in _paths(node)[root]} for root in _ROOTS}
    return Expressions(values=tuple(values_of(node, truth_of) for node in nodes), plan=_plan(paths, context))


def _condition(spec: FilterSpec, names: Names) -> SyntaxNode:
    if not spec.where.strip():
        if spec.parameters not in {b"", b"[]", b"{}", b"null"}:
            raise refusal(1, "parameters were given without a predicate")
        return _EVERYTHING
    parsed = parse(spec.where)
    return PredicateReader(names, Parameters(spec.parameters, parsed.placeholders)).condition(parsed)


def _conjuncts(condition: SyntaxNode) -> list[SyntaxNode]:
    """Return the conditions that all must be TRUE, the cheapest first."""
    found: list[SyntaxNode] = []
    waiting = [condition]
    while waiting:
        one = waiting.pop()
        if isinstance(one, And):
            waiting += reversed(one.items)
        elif not (isinstance(one, Constant) and one.value is True):
            found.append(one)
    return sorted(found, key=cost_of)


def _needles(conjuncts: list[SyntaxNode], context: FilterContext) -> tuple[tuple[Root, Wanted], ...]:
    if context.format != "json":
        return ()
    found: list[tuple[Root, Wanted] | None] = [needles_of(one) or numbers_of(one) for one in conjuncts]
    return tuple(one for one in found if one is not None)


def _holding(root: Root, needles: Wanted) -> Truths:
    """Return what keeps the values that can hold one of some texts or numbers."""

    def held(frame: Frame) -> tuple[Mask, Mask]:
        texts = frame.texts(root)
        true = np.zeros(len(frame), bool) if texts is None else candidates(texts, needles)
        return true, ~true

    return held


def _paths(condition: SyntaxNode) -> dict[Root, set[Steps]]:
    found: dict[Root, set[Steps]] = {"value": set(), "before": set()}
    for node in walk(condition):
        if isinstance(node, Path):
            found[node.root].add(node.steps)
    return found


def _paths_of_values(condition: SyntaxNode) -> frozenset[Steps] | None:
    """Return the fields of the value that a condition reads; None where it reads before-images too."""
    paths = _paths(condition)
    return None if paths["before"] else frozenset(paths["value"])


def _plan(paths: dict[Root, set[Steps]], context: FilterContext) -> DecodePlan:
    promoted: dict[Steps, str] = {tuple(name.removeprefix("value.").split(".")): name for name in context.promoted}
    made: dict[Root, Fields] = {root: _fields(paths[root], context) for root in _ROOTS if paths[root]}
    return DecodePlan(made, promoted=promoted if context.format == "json" else {}, is_bytes=context.format == "bytes")


def _fields(paths: Iterable[Steps], context: FilterContext) -> Fields:
    if context.format == "bytes":
        return BytesFields()
    schema = _avro_schema(context)
    return JsonFields(paths) if schema is None else AvroValues(schema, paths)


def _avro_schema(context: FilterContext) -> AvroSchema | None:
    return AvroSchema(context.avro_schema) if context.format == "avro" and context.avro_schema else None


def _selected(select: tuple[str, ...], names: Names) -> dict[Root, list[Steps]] | None:
    """Return the fields of each image to answer, None for all of both. Columns are always answered; naming them is no mistake."""
    if not select:
        return None
    if len(select) > SELECT_FIELDS_MAX:
        raise refusal(1, f"at most {SELECT_FIELDS_MAX} fields are selected, these are {len(select)}")
    found: dict[Root, list[Steps]] = {"value": [], "before": []}
    for text in select:
        try:
            parsed = parse(text)
            node = PredicateReader(names, Parameters(b"", parsed.placeholders)).node(parsed.tree)
        except BadPredicate as error:
            raise refusal(error.column, f"select {text[:60]!r}: {error.why}", error.suggestion) from error
        if isinstance(node, Path):
            found[node.root].append(node.steps)
        elif not isinstance(node, Column):
            raise refusal(1, f"select {text[:60]!r} is no field; write value.name")
    return found


def _projection(selected: dict[Root, list[Steps]] | None, root: Root, context: FilterContext) -> Projection | None:
    if selected is None:
        return None
    paths = selected[root]
    if not paths:
        return Nothing(b"" if context.format == "bytes" else b"null")
    schema = _avro_schema(context)
    if schema is not None:
        return AvroProjection(AvroValues(schema, paths, with_logical=True), paths)
    return None if () in paths else JsonProjection(paths)
