"""The parser's tree -> ours, checked against the cache: columns, fields, types, functions, and the values of placeholders.

`NODES` is the allow-list: a kind of node that has no row there, or brings an argument that its row does not name, is refused. What is
made of constants alone is worked out once, here, by the code that judges events.
"""

import base64
import binascii
import math
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from sqlglot import exp

from eventlog.limits import FILTER_PARAMETERS_BYTES_MAX, WHERE_DEPTH_MAX
from eventlog.predicate.checking import as_bytes_or_text, as_condition, constant, matched, needs, of_one_type
from eventlog.predicate.dialect import ParsedText, closest, refusal
from eventlog.predicate.frame import bare_frame
from eventlog.predicate.functions import FUNCTIONS, PIECE_CHARACTERS_MAX, Function, like
from eventlog.predicate.names import Names, place_of
from eventlog.predicate.tree import (
    MIRRORED,
    And,
    Arithmetic,
    Case,
    Cast,
    Compare,
    Comparison,
    Constant,
    FunctionCall,
    IsNull,
    IsTruth,
    Like,
    Negative,
    Not,
    OneOf,
    Or,
    Same,
    SyntaxNode,
    Type,
)
from eventlog.predicate.truths import truth_of
from eventlog.predicate.values import values_of

_COMPARISONS: dict[type[exp.Expression], Comparison] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=",
}  # fmt: skip
_SIDE_BY_SIDE = frozenset(
    {*_COMPARISONS, exp.Is, exp.Like, exp.ILike, exp.Escape, exp.In, exp.Between, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Not}
)
_ARITHMETIC: dict[type[exp.Expression], Any] = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%"}
_CASTS: dict[str, tuple[Type, bool]] = {
    **dict.fromkeys(("TINYINT", "SMALLINT", "INT", "BIGINT"), ("number", True)),
    **dict.fromkeys(("FLOAT", "DOUBLE", "DECIMAL"), ("number", False)),
    **dict.fromkeys(("TEXT", "VARCHAR", "CHAR"), ("text", False)),
    "BOOLEAN": ("boolean", False),
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ", "DATETIME", "DATE"), ("time", False)),
}
_NUMBER_DIGITS_MAX = 40
_DEPTH_MAX = 2 * WHERE_DEPTH_MAX
_ONE = bare_frame(np.zeros(1, np.uint8))


class PredicateReader:
    """Reads one predicate."""

    def __init__(self, names: Names, parameters: "Parameters") -> None:
        self._names = names
        self._parameters = parameters

    def condition(self, parsed: ParsedText) -> SyntaxNode:
        """Return the predicate as a node that is a condition.

        Raises:
            BadPredicate: with the place, and what may have been meant.
        """
        _check_depth(parsed.tree)
        found = as_condition(self.node(parsed.tree))
        self._parameters.check_all_used()
        return found

    def expression(self, parsed: ParsedText) -> SyntaxNode:
        """Return an expression, of whatever type, as a node. Raises BadPredicate."""
        _check_depth(parsed.tree)
        found = self.node(parsed.tree)
        self._parameters.check_all_used()
        return found

    def node(self, tree: exp.Expression) -> SyntaxNode:
        """Return a node for one of the parser's; its arguments are read in the order of the text, so that `?` are counted right."""
        row = NODES.get(type(tree))
        if row is None:
            raise refusal(place_of(tree), f"{_name_of(tree)} is not part of a predicate")
        read, allowed = row
        for name, argument in tree.args.items():
            if argument and name not in allowed:
                raise refusal(place_of(tree), f"{_name_of(tree)} takes no {name.replace('_', ' ')} here")
        return read(self, tree)

    # ------------------------------------------------------------ leaves

    def literal(self, tree: exp.Expression) -> SyntaxNode:
        at = place_of(tree)
        if tree.args.get("is_string"):
            return constant(str(tree.this), at)
        text = str(tree.this)
        if len(text) > _NUMBER_DIGITS_MAX:
            raise refusal(at, f"a number has at most {_NUMBER_DIGITS_MAX} digits")
        try:
            number: float | int = int(text) if text.isdecimal() else float(text)
        except ValueError as error:
            raise refusal(at, f"{text} is no number") from error
        if not math.isfinite(number):
            raise refusal(at, f"{text} is too large")
        return constant(number, at)

    def octets(self, tree: exp.Expression) -> SyntaxNode:
        try:
            return constant(bytes.fromhex(str(tree.this)), place_of(tree))
        except ValueError as error:
            raise refusal(place_of(tree), "X'...' takes pairs of hexadecimal digits") from error

    def boolean(self, tree: exp.Expression) -> SyntaxNode:
        return constant(bool(tree.this), place_of(tree))

    def null(self, tree: exp.Expression) -> SyntaxNode:
        return constant(None, place_of(tree))

    def placeholder(self, tree: exp.Expression) -> SyntaxNode:
        at = self._parameters.next_place()
        given = self._parameters.take(str(tree.this) if tree.this else None)
        if isinstance(given, list):
            raise refusal(at, "a parameter that is a list goes with IN only")
        return constant(given, at)

    def name(self, tree: exp.Expression) -> SyntaxNode:
        return self._names.resolve(tree, self._index)

    def _index(self, tree: exp.Expression) -> str | int:
        found = self.node(tree)
        if not isinstance(found, Constant) or type(found.value) not in {str, int}:
            raise refusal(place_of(tree), "what stands in [ ] is a whole number or a text")
        if type(found.value) is int and found.value < 0:
            raise refusal(place_of(tree), "items of an array count from 0")
        return found.value  # type: ignore[no-any-return]  # just checked

    def parenthesis(self, tree: exp.Expression) -> SyntaxNode:
        return self.node(tree.this)

    # ------------------------------------------------------------ conditions

    def connective(self, tree: exp.Expression) -> SyntaxNode:
        """Flatten chains: they may be as long as the text."""
        kind = type(tree)
        items: list[SyntaxNode] = []
        waiting = [tree]
        while waiting:
            found = waiting.pop()
            inner = found.unnest()
            if type(inner) is kind:
                waiting += (inner.args["expression"], inner.this)
            else:
                items.append(as_condition(self.node(found)))
        made = And if kind is exp.And else Or
        return made(at=items[0].at, type="boolean", items=tuple(items))

    def negation(self, tree: exp.Expression) -> SyntaxNode:
        item = as_condition(self.node(tree.this))
        return Not(at=item.at, type="boolean", item=item)

    def _operand(self, tree: exp.Expression) -> SyntaxNode:
        """Read one side of a comparison: no other comparison without parentheses, since databases differ in which of them goes first."""
        if type(tree) in _SIDE_BY_SIDE:
            raise refusal(place_of(tree), "conditions stand side by side; put parentheses around one")
        return self.node(tree)

    def comparison(self, tree: exp.Expression) -> SyntaxNode:
        left, right = self._operand(tree.this), self._operand(tree.args["expression"])
        return _compare(_COMPARISONS[type(tree)], left, right)

    def between(self, tree: exp.Expression) -> SyntaxNode:
        item, low, high = (self._operand(tree.args[name]) for name in ("this", "low", "high"))
        return And(at=item.at, type="boolean", items=(_compare(">=", item, low), _compare("<=", item, high)))

    def membership(self, tree: exp.Expression) -> SyntaxNode:
        item = self._operand(tree.this)
        listed = [tree.args["field"]] if tree.args.get("field") else tree.args.get("expressions") or []
        options = [option for one in listed for option in self._options(one)]
        if not options:
            raise refusal(item.at, "IN has nothing to choose from")
        if not all(isinstance(option, Constant) for option in options):
            return Or(at=item.at, type="boolean", items=tuple(_compare("=", item, option) for option in options))
        known = [option for option in options if option.type != "null"]
        pairs = [matched(item, option) for option in known]
        item = pairs[0][0] if pairs else item
        values = tuple(option.value for _, option in pairs if isinstance(option, Constant))
        return OneOf(at=item.at, type="boolean", item=item, options=values, has_null=len(known) < len(options))

    def _options(self, tree: exp.Expression) -> list[SyntaxNode]:
        inner = tree.unnest()
        if not isinstance(inner, exp.Placeholder):
            return [self.node(tree)]
        at = self._parameters.next_place()
        given = self._parameters.take(str(inner.this) if inner.this else None)
        return [constant(item, at) for item in (given if isinstance(given, list) else [given])]

    def like(self, tree: exp.Expression) -> SyntaxNode:
        inner = tree.this if isinstance(tree, exp.Escape) else tree
        if type(inner) not in {exp.Like, exp.ILike} or set(filter(inner.args.get, inner.args)) - {"this", "expression", "negate"}:
            raise refusal(place_of(tree), "ESCAPE belongs to LIKE")
        item, pattern = as_bytes_or_text(needs("text", self._operand(inner.this), "LIKE")), self._operand(inner.args["expression"])
        escape = self._escape(tree.args["expression"]) if isinstance(tree, exp.Escape) else ""
        if pattern.type == "null":
            return constant(None, item.at)
        if not isinstance(pattern, Constant) or type(pattern.value) is not str:
            raise refusal(pattern.at, "the pattern of LIKE is a text that is written out, or a parameter")
        if escape and pattern.value.replace(escape * 2, "").endswith(escape):
            raise refusal(pattern.at, "the pattern ends with its escape character")
        if like(pattern.value, escape=escape, ignore_case=False).is_costly:
            raise refusal(pattern.at, f"between two % stand at most {PIECE_CHARACTERS_MAX} characters where one of them is _")
        ignore_case = isinstance(inner, exp.ILike)
        found = folded(Like(at=item.at, type="boolean", item=item, pattern=pattern.value, escape=escape, ignore_case=ignore_case))
        return Not(at=item.at, type="boolean", item=found) if inner.args.get("negate") else found

    def _escape(self, tree: exp.Expression) -> str:
        found = self.node(tree)
        if not isinstance(found, Constant) or type(found.value) is not str or len(found.value) != 1:
            raise refusal(found.at, "ESCAPE takes one character")
        return found.value

    def is_what(self, tree: exp.Expression) -> SyntaxNode:
        item, what = self.node(tree.this), tree.args["expression"]
        if isinstance(what, exp.Null):
            return folded(IsNull(at=item.at, type="boolean", item=item))
        if not isinstance(what, exp.Boolean):
            raise refusal(place_of(what) if place_of(what) > 1 else item.at, "IS takes NULL, TRUE, FALSE, UNKNOWN or DISTINCT FROM")
        return IsTruth(at=item.at, type="boolean", item=as_condition(item), truth=bool(what.this))

    def same(self, tree: exp.Expression) -> SyntaxNode:
        left, right = matched(self._operand(tree.this), self._operand(tree.args["expression"]))
        found = Same(at=left.at, type="boolean", left=left, right=right)
        return found if isinstance(tree, exp.NullSafeEQ) else Not(at=found.at, type="boolean", item=found)

    # ------------------------------------------------------------ values

    def arithmetic(self, tree: exp.Expression) -> SyntaxNode:
        operator = _ARITHMETIC[type(tree)]
        left, right = (needs("number", self.node(side), operator) for side in (tree.this, tree.args["expression"]))
        return folded(Arithmetic(at=left.at, type="number", left=left, right=right, operator=operator))

    def negative(self, tree: exp.Expression) -> SyntaxNode:
        item = needs("number", self.node(tree.this), "-")
        return folded(Negative(at=item.at, type="number", item=item))

    def concatenation(self, tree: exp.Expression) -> SyntaxNode:
        items: list[SyntaxNode] = []
        waiting = [tree]
        while waiting:
            found = waiting.pop()
            if isinstance(found, exp.DPipe):
                waiting += (found.args["expression"], found.this)
            else:
                items.append(self.node(found))
        return self._call(FUNCTIONS["CONCAT"], items, items[0].at)

    def function(self, tree: exp.Expression) -> SyntaxNode:
        name = str(tree.this)
        row = FUNCTIONS.get(name.upper())
        if row is None:
            raise refusal(place_of(tree), f"there is no function {name[:60]}", closest(name.upper(), list(FUNCTIONS)))
        return self._call(row, [self.node(argument) for argument in tree.args["expressions"]], place_of(tree))

    def substring(self, tree: exp.Expression) -> SyntaxNode:
        given = [tree.this, tree.args.get("start"), tree.args.get("length")]
        return self._call(FUNCTIONS["SUBSTRING"], [self.node(argument) for argument in given if argument is not None], place_of(tree))

    def _call(self, row: Function, items: list[SyntaxNode], at: int) -> SyntaxNode:
        if len(items) < row.arguments_min or (row.arguments_max is not None and len(items) > row.arguments_max):
            raise refusal(at, f"{row.name} is given {len(items)} arguments; it is {row.shown}")
        checked = tuple(needs(row.argument(index), item, row.name) for index, item in enumerate(items))
        result: Type = of_one_type(checked) if row.result == "any" else row.result
        return folded(FunctionCall(at=at, type=result, items=checked, function=row))

    def case(self, tree: exp.Expression) -> SyntaxNode:
        subject = self.node(tree.this) if tree.args.get("this") else None
        items: list[SyntaxNode] = []
        for branch in tree.args["ifs"]:
            when = self.node(branch.this)
            items.append(as_condition(when) if subject is None else _compare("=", subject, when))
            items.append(self.node(branch.args["true"]))
        at = items[0].at
        items.append(self.node(tree.args["default"]) if tree.args.get("default") is not None else constant(None, at))
        return folded(Case(at=at, type=of_one_type((*items[1::2], items[-1])), items=tuple(items)))

    def cast(self, tree: exp.Expression) -> SyntaxNode:
        item, to = self.node(tree.this), tree.args["to"]
        name = getattr(to.this, "name", str(to.this))
        if name not in _CASTS or to.args.get("expressions"):
            shown = "BIGINT, DOUBLE, TEXT, BOOLEAN or TIMESTAMP"
            raise refusal(
                item.at, f"CAST makes {shown}, not {str(to)[:60]}", closest(name, ["BIGINT", "DOUBLE", "TEXT", "BOOLEAN", "TIMESTAMP"])
            )
        kind, whole = _CASTS[name]
        made = folded(Cast(at=item.at, type=kind, item=as_bytes_or_text(item), whole=whole))
        if isinstance(made, Constant) and made.value is None and isinstance(item, Constant) and item.value is not None:
            raise refusal(item.at, f"{str(item.value)[:60]!r} is no {name}")
        return made


def _compare(operator: Comparison, left: SyntaxNode, right: SyntaxNode) -> SyntaxNode:
    left, right = matched(left, right)
    if isinstance(left, Constant):
        left, right, operator = right, left, MIRRORED[operator]
    return folded(Compare(at=left.at, type="boolean", left=left, right=right, operator=operator))


def _check_depth(tree: exp.Expression) -> None:
    """Refuse what is deeper than its reading may recurse; chains of AND, OR and || are read without."""
    waiting = [(tree, 0)]
    while waiting:
        found, depth = waiting.pop()
        if depth > _DEPTH_MAX:
            raise refusal(place_of(found), f"it is nested deeper than {_DEPTH_MAX} levels")
        for child in found.iter_expressions():
            flat = type(child) is type(found) and isinstance(child, (exp.And, exp.Or, exp.DPipe, exp.Column, exp.Dot))
            waiting.append((child, depth + (0 if flat or isinstance(child, exp.Identifier) else 1)))


def _name_of(tree: exp.Expression) -> str:
    return type(tree).__name__.upper()


Read = Callable[[PredicateReader, exp.Expression], SyntaxNode]
NODES: dict[type[exp.Expression], tuple[Read, frozenset[str]]] = {
    kind: (read, frozenset(allowed.split()))
    for kinds, read, allowed in (
        ((exp.Literal,), PredicateReader.literal, "this is_string"),
        ((exp.HexString,), PredicateReader.octets, "this"),
        ((exp.Boolean,), PredicateReader.boolean, "this"),
        ((exp.Null,), PredicateReader.null, ""),
        ((exp.Placeholder,), PredicateReader.placeholder, "this"),
        ((exp.Column,), PredicateReader.name, "this table db catalog"),
        ((exp.Dot,), PredicateReader.name, "this expression"),
        ((exp.Bracket,), PredicateReader.name, "this expressions"),
        ((exp.Paren,), PredicateReader.parenthesis, "this"),
        ((exp.And, exp.Or), PredicateReader.connective, "this expression"),
        ((exp.Not,), PredicateReader.negation, "this"),
        (tuple(_COMPARISONS), PredicateReader.comparison, "this expression"),
        ((exp.Between,), PredicateReader.between, "this low high"),
        ((exp.In,), PredicateReader.membership, "this expressions field"),
        ((exp.Like, exp.ILike), PredicateReader.like, "this expression negate"),
        ((exp.Escape,), PredicateReader.like, "this expression"),
        ((exp.Is,), PredicateReader.is_what, "this expression"),
        ((exp.NullSafeEQ, exp.NullSafeNEQ), PredicateReader.same, "this expression"),
        (tuple(_ARITHMETIC), PredicateReader.arithmetic, "this expression typed safe"),
        ((exp.Neg,), PredicateReader.negative, "this"),
        ((exp.DPipe,), PredicateReader.concatenation, "this expression safe"),
        ((exp.Anonymous,), PredicateReader.function, "this expressions"),
        ((exp.Substring,), PredicateReader.substring, "this start length"),
        ((exp.Case,), PredicateReader.case, "this ifs default"),
        ((exp.Cast,), PredicateReader.cast, "this to"),
    )
    for kind in kinds
}


def folded(node: SyntaxNode) -> SyntaxNode:
    """Return the constant that a node is, or the node."""
    if not all(isinstance(child, Constant) for child in node.children):
        return node
    (value,) = values_of(node, truth_of)(_ONE)
    return (
        Constant(at=node.at, type="null" if value is None else node.type, value=value) if node.type == "time" else constant(value, node.at)
    )


class Parameters:
    """Hands out values in the order of the text, and knows whether all were used."""

    def __init__(self, data: bytes, places: tuple[int, ...]) -> None:
        """Take JSON text, empty for none, and where the placeholders stand.

        Raises:
            BadPredicate: it is no array and no object, or not JSON.
        """
        if len(data) > FILTER_PARAMETERS_BYTES_MAX:
            raise refusal(1, f"parameters have at most {FILTER_PARAMETERS_BYTES_MAX} bytes, these {len(data)}")
        try:
            given: Any = msgspec.json.decode(data) if data else []
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise refusal(1, "its parameters are not JSON") from error
        if not isinstance(given, (list, dict)):
            raise refusal(1, "its parameters are neither a list nor an object of names and values")
        self._given: list[Any] | dict[str, Any] = given
        self._places = places
        self._used: set[str | int] = set()
        self._seen = 0

    def next_place(self) -> int:
        """Return where the next placeholder stands."""
        return self._places[self._seen] if self._seen < len(self._places) else 1

    def take(self, name: str | None) -> Any:
        """Return the value of the next placeholder, `?` or of a name: a scalar, bytes for `{"base64": ...}`, or a list of such.

        Raises:
            BadPredicate: there is none.
        """
        at = self.next_place()
        index = self._seen
        self._seen += 1
        if name is None:
            if isinstance(self._given, dict):
                raise refusal(at, "parameters were given by name; write :name instead of ?")
            if index >= len(self._given):
                raise refusal(at, f"parameter {index + 1} is missing, {len(self._given)} were given")
            self._used.add(index)
            return _value(self._given[index], at)
        if not isinstance(self._given, dict):
            raise refusal(
                at, f"parameter :{name} is missing" if not self._given else "parameters were given without names; write ? for each"
            )
        if name not in self._given:
            raise refusal(at, f"parameter :{name} is missing", closest(name, list(self._given)))
        self._used.add(name)
        return _value(self._given[name], at)

    def check_all_used(self) -> None:
        """Raise if a parameter has no placeholder: something was forgotten or misspelt."""
        unused = len(self._given) - len(self._used)
        if unused:
            names = sorted(set(self._given) - self._used, key=str) if isinstance(self._given, dict) else [f"number {len(self._used) + 1}"]
            raise refusal(1, f"parameter {str(names[0])[:60]} is not used by any placeholder")


def _value(given: Any, at: int) -> Any:
    if isinstance(given, list):
        return [_scalar(item, at) for item in given]
    return _scalar(given, at)


def _scalar(given: Any, at: int) -> Any:
    if isinstance(given, dict) and given.keys() == {"base64"} and isinstance(given["base64"], str):
        try:
            return base64.b64decode(given["base64"], validate=True)
        except (binascii.Error, ValueError) as error:
            raise refusal(at, "a parameter is not base64") from error
    if isinstance(given, (list, dict)):
        raise refusal(at, "a parameter is a scalar, or a list of scalars for IN")
    return given
