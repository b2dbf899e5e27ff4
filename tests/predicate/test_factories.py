"""Named filters: found by name and version, given parameters of the types that they declare, and nothing else."""

import re
import sys
from dataclasses import dataclass
from importlib.metadata import EntryPoint

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import BadFilterParameters, BadPredicate, EventLogError, FilterNotFound
from eventlog.predicate import factories
from eventlog.predicate.compile import compile_filter
from eventlog.predicate.factories import Factories, installed, load_factories
from eventlog.predicate.shipped import json_pointer_equals, sample
from eventlog.predicate.spec import FilterSpec
from tests.predicate.rows import BYTES, JSON, events

SHIPPED = Factories([sample, json_pointer_equals])
ROWS = events([{"key": f"key {number}", "value": {"a": [{"b/c": number}], "n": number}} for number in range(2000)])


def matched(name, arguments, *, where="", context=JSON, known=SHIPPED, version=0) -> list[int]:
    found = compile_filter(FilterSpec(where=where, name=name, arguments=arguments, version=version), context, known)
    return np.flatnonzero(found.mask(ROWS)).tolist()


def test_a_sample_has_its_fraction_of_the_keys_and_always_the_same():
    found = matched("sample", b'{"fraction": 0.1}')
    assert 120 < len(found) < 290
    assert found == matched("sample", b'{"fraction": "0.1"}')
    assert set(found) < set(matched("sample", b'{"fraction": 0.5}'))
    assert found != matched("sample", b'{"fraction": 0.1, "seed": 7}')
    assert matched("sample", b'{"fraction": 0}') == []
    assert len(matched("sample", b'{"fraction": 1}')) == 2000
    both = matched("sample", b'{"fraction": 0.1}', where="value.n < 100")
    assert both == [row for row in found if row < 100]


def test_a_pointer_finds_arrays_and_objects_too():
    assert matched("json-pointer-equals", b'{"pointer": "/a/0/b~1c", "equals": 5}') == [5]
    assert matched("json-pointer-equals", b'{"pointer": "/a", "equals": [{"b/c": 7}]}') == [7]
    assert matched("json-pointer-equals", b'{"pointer": "/a/9", "equals": null}') == []
    assert matched("json-pointer-equals", b'{"pointer": "", "equals": {"a": [{"b/c": 3}], "n": 3}}') == [3]
    assert matched("json-pointer-equals", b'{"pointer": "/n", "equals": true}') == []


@pytest.mark.parametrize(("expected", "found"), [
    (b"[1]", [0]), (b"[true]", [1]), (b'{"b": [{"c": 0}]}', [2]), (b'{"b": [{"c": false}]}', [3]), (b"[1.0]", [0]),
])  # fmt: skip
def test_a_pointer_tells_booleans_from_numbers_at_every_depth(expected, found):
    rows = events([{"key": "k", "value": {"a": one}} for one in ([1], [True], {"b": [{"c": 0}]}, {"b": [{"c": False}]})])
    spec = FilterSpec(name="json-pointer-equals", arguments=b'{"pointer": "/a", "equals": %s}' % expected)
    assert np.flatnonzero(compile_filter(spec, JSON, SHIPPED).mask(rows)).tolist() == found


@pytest.mark.parametrize(
    ("name", "arguments", "parameter", "words"),
    [
        ("sample", b"", "fraction", "missing required"),
        ("sample", b'{"fraction": "half"}', "fraction", "must be float"),
        ("sample", b'{"fraction": 2}', "fraction", "from 0 to 1"),
        ("sample", b'{"fraction": [1]}', "fraction", "must be float"),
        ("sample", b'{"fraction": 0.1, "seed": 1.5}', "seed", "must be int"),
        ("sample", b'{"fraction": 0.1, "seed": 99999999999999999999}', "seed", "64 bits"),
        ("sample", b'{"fraction": 0.1, "speed": 1}', "speed", "is not known; it takes fraction, seed"),
        ("sample", b"[1]", "", "object"),
        ("sample", b"{", "", "not JSON"),
        ("sample", b"[" * 9000, "", "not JSON"),
        ("json-pointer-equals", b'{"pointer": "a", "equals": 1}', "pointer", "begin with '/'"),
        ("json-pointer-equals", b'{"pointer": 5, "equals": 1}', "pointer", "must be str"),
        ("json-pointer-equals", b'{"pointer": "' + b"/a" * 99 + b'", "equals": 1}', "pointer", "more than"),
        ("json-pointer-equals", b'{"pointer": "/a"}', "equals", "missing required"),
    ],
)
def test_parameters_that_do_not_fit_are_refused_by_name(name, arguments, parameter, words):
    with pytest.raises(BadFilterParameters) as caught:
        matched(name, arguments)
    assert (caught.value.filter, caught.value.parameter) == (name, parameter)
    assert words in str(caught.value)


@given(st.one_of(st.binary(max_size=40), st.text(max_size=40).map(str.encode)))
def test_any_bytes_are_parameters_or_refused(arguments):
    for name in ("sample", "json-pointer-equals"):
        with pytest.raises(BadFilterParameters):
            matched(name, arguments)


def test_a_filter_for_json_is_refused_for_bytes():
    with pytest.raises(BadFilterParameters, match="of bytes"):
        matched("json-pointer-equals", b'{"pointer": "/a", "equals": 1}', context=BYTES)


@dataclass(frozen=True)
class NoParameters:
    pass


class EveryNth:
    """A factory as an operator would install it, in two versions."""

    name = "every-nth"
    description = "for tests"
    parameters = NoParameters

    def __init__(self, version: int) -> None:
        self.version = version

    def build(self, parameters, context):
        return self

    def mask(self, columns):
        return columns.offsets % self.version == 0

    def project(self, columns):
        return [b"x" * self.version for _ in range(len(columns))]


def test_a_version_stays_what_it_was_and_the_newest_is_the_default():
    known = Factories([EveryNth(1), EveryNth(3), EveryNth(2)])
    assert len(matched("every-nth", b"", known=known)) == 667
    assert len(matched("every-nth", b"", known=known, version=2)) == 1000
    found = compile_filter(FilterSpec(name="every-nth"), JSON, known)
    assert (found.spec.version, found.is_costly) == (3, True)
    assert found.project(ROWS.take(np.arange(2)))[1] == b"xxxxxx"
    with pytest.raises(FilterNotFound) as caught:
        matched("every-nth", b"", known=known, version=4)
    assert (caught.value.version, caught.value.installed) == (4, "every-nth@1, every-nth@2, every-nth@3")
    assert str(caught.value) == "filter 'every-nth@4' is not installed; there is every-nth@1, every-nth@2, every-nth@3"
    with pytest.raises(FilterNotFound, match=r"^filter 'none' is not installed; there is every-nth@1, "):
        matched("none", b"", known=known)
    with pytest.raises(BadPredicate, match="no named filter"):
        compile_filter(FilterSpec(name="every-nth", continuous=True), JSON, known)


@dataclass(frozen=True)
class PatternParameters:
    pattern: str


class Failing:
    """A factory of an operator who did not think of everything: patterns may be none, and what is built fails."""

    name = "failing"
    version = 1
    description = "for tests"
    parameters = PatternParameters

    def build(self, parameters, context):
        re.compile(parameters.pattern)
        return self

    def mask(self, columns):
        return np.zeros(len(columns) + 1, bool)

    def project(self, columns):
        raise KeyError("x")


def test_parameters_of_which_no_filter_can_be_built_are_refused():
    with pytest.raises(BadFilterParameters, match=r"is refused: .*unterminated") as caught:
        matched("failing", b'{"pattern": "("}', known=Factories([Failing()]))
    assert (caught.value.filter, caught.value.parameter) == ("failing", "")


def test_a_named_filter_that_fails_says_its_name():
    found = compile_filter(FilterSpec(name="failing", arguments=b'{"pattern": "a"}'), JSON, Factories([Failing()]))
    with pytest.raises(EventLogError, match=r"^filter failing: ValueError: "):
        found.mask(ROWS)
    with pytest.raises(EventLogError, match=r"^filter failing: KeyError: 'x'$"):
        found.project(ROWS)


class Ending(Failing):
    def build(self, parameters, context):
        if parameters.pattern == "build":
            sys.exit(3)
        return self

    def mask(self, columns):
        sys.exit(4)


def test_a_named_filter_that_ends_its_process_is_refused_like_any_that_fails():
    known = Factories([Ending()])
    with pytest.raises(BadFilterParameters, match=r"is refused: SystemExit: 3"):
        compile_filter(FilterSpec(name="failing", arguments=b'{"pattern": "build"}'), JSON, known)
    with pytest.raises(EventLogError, match=r"^filter failing: SystemExit: 4$"):
        compile_filter(FilterSpec(name="failing", arguments=b'{"pattern": "mask"}'), JSON, known).mask(ROWS)


@pytest.mark.parametrize("answer", [True, [True], [[True]]])
def test_a_mask_has_one_bool_for_each_event(answer):
    factory = EveryNth(1)
    factory.mask = lambda _columns: answer
    with pytest.raises(EventLogError, match=r"^filter every-nth: ValueError: its mask has the shape \(.*not one bool for each of 2000"):
        matched("every-nth", b"", known=Factories([factory]))


def test_a_named_filter_that_leaves_values_out_is_not_believed():
    class Short(Failing):
        def project(self, columns):
            return [b"x"]

    found = compile_filter(FilterSpec(name="failing", arguments=b'{"pattern": "a"}'), JSON, Factories([Short()]))
    with pytest.raises(EventLogError, match=r"^filter failing: ValueError: "):
        found.project(ROWS)


def test_what_is_installed_is_described_and_what_is_broken_is_said():
    points = [
        EntryPoint(name="sample", value="eventlog.predicate.shipped:sample", group=factories.GROUP),
        EntryPoint(name="gone", value="eventlog.no_such_module:thing", group=factories.GROUP),
        EntryPoint(name="missing", value="eventlog.predicate.shipped:no_such_name", group=factories.GROUP),
        EntryPoint(name="odd", value="eventlog.predicate.shipped:Sample", group=factories.GROUP),
    ]
    found = {one.name: one for one in load_factories(points).describe()}
    assert found["sample"].parameters == {"fraction": "float", "seed": "int"}
    assert not found["sample"].broken
    assert all(found[name].broken for name in ("gone", "missing", "odd"))


def test_the_shipped_filters_are_installed():
    names = {one.name for one in installed().describe() if not one.broken}
    assert {"sample", "json-pointer-equals"} <= names
