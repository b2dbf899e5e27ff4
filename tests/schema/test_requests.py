"""The rules of the registry, each with the code that its clients know; and any requests in any order against a plain model."""

import json
from typing import Any

import pytest
from hypothesis import assume
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from eventlog.limits import SCHEMA_BYTES_MAX, SCHEMA_REFERENCES_MAX, SUBJECT_BYTES_MAX
from eventlog.schema import requests
from eventlog.schema.registry import LEVELS, MODES, Registry, Version
from eventlog.schema.requests import (
    Refusal,
    RegistryBounds,
    compatibility,
    delete_subject,
    delete_version,
    given_of,
    level_of,
    look_up,
    mode_of,
    register,
    remove_level,
    remove_mode,
    schema_by_guid,
    schema_by_id,
    set_level,
    set_mode,
    subjects,
    users_of,
    version,
    versions,
)
from tests.schema.registries import Kept, body, offered, record


def refused(code: int, call: Any, *args: Any, **options: Any) -> str:
    with pytest.raises(Refusal) as caught:
        call(*args, **options)
    assert caught.value.code == code, caught.value.message
    return caught.value.message


@pytest.fixture
def kept() -> Kept:
    return Kept()


A, AB, B = record("a"), record("a", optional=("b",)), record("a", "b")


# ---------------------------------------------------------------- registering


def test_ids_and_versions_count_from_one(kept: Kept):
    assert kept.do(register, "s", offered(A))["id"] == 1
    assert kept.do(register, "s", offered(AB))["version"] == 2
    assert kept.do(register, "t", offered(A)) == {
        "subject": "t", "version": 1, "id": 1, "schemaType": "AVRO", "schema": json.dumps(A), "guid": kept.registry.schemas[1].guid,
    }  # fmt: skip
    assert kept.registry.head.next_id == 3


def test_a_schema_that_is_there_is_not_written_again_however_it_is_spelled(kept: Kept):
    first = kept.do(register, "s", offered(A))
    kept.do(register, "s", offered(AB))
    head = kept.registry.head
    assert kept.do(register, "s", offered(json.dumps(A, indent=4))) == first
    assert kept.do(register, "s", offered({**A, "fields": [{"type": {"type": "int"}, "name": "a"}]}, schemaType="avro")) == first
    assert kept.registry.head == head


def test_a_schema_that_was_deleted_is_a_new_version_with_its_old_id(kept: Kept):
    kept.do(register, "s", offered(A))
    kept.do(delete_version, "s", "1")
    found = kept.do(register, "s", offered(A))
    assert (found["id"], found["version"]) == (1, 2)


@pytest.mark.parametrize(
    ("type_", "text"),
    [("AVRO", "nope"), ("AVRO", '{"type": "nope"}'), ("JSON", "[]"), ("JSON", '{"type": "nope"}'), ("XML", "<a/>"), ("AVRO", " ")],
)
def test_what_is_no_schema_is_refused(kept: Kept, type_: str, text: str):
    refused(42201, lambda: kept.do(register, "s", given_of(body(text, schemaType=type_))))
    assert kept.registry == Registry()


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"5", b"{}", b'{"schema": 5}', b'{"schema": {"type": "string"}}', b'{"schema": null}', b"\xff", b"[" * 9_000,
        b'{"schema": "\\ud800"}', body("string", references=5), body("string", references=[5]), body("string", id="x"),
        body("string", version=1.5), body(""), body("x" * (SCHEMA_BYTES_MAX + 1)),
    ],
)  # fmt: skip
def test_a_malformed_body_is_refused(data: bytes):
    refused(42201, given_of, data)


@pytest.mark.parametrize("subject", ["", "a\nb", "a\0b", ":.context:a", ":*:", "\x7f", "s" * (SUBJECT_BYTES_MAX + 1), "\udc80"])
def test_some_names_are_no_subjects(kept: Kept, subject: str):
    refused(42208, lambda: kept.do(register, subject, offered(A)))


@pytest.mark.parametrize("subject", ["a", "orders-value", "a/b", "a b", "\u00fc", ":a", "%2F", "s" * SUBJECT_BYTES_MAX])
def test_others_are(kept: Kept, subject: str):
    kept.do(register, subject, offered(A))
    assert subjects(kept.registry) == [subject]


def test_protobuf_is_kept_as_it_is(kept: Kept):
    text = 'syntax = "proto3"; message A {}'
    assert kept.do(register, "s", offered(text, schemaType="PROTOBUF"))["schema"] == text
    assert kept.do(register, "s", offered(f"{text}\n", schemaType="PROTOBUF"))["version"] == 1
    assert kept.do(register, "s", offered("anything else", schemaType="PROTOBUF"))["version"] == 2


def test_a_registry_has_bounds(kept: Kept):
    kept.do(register, "s", offered(A))
    refused(42205, lambda: kept.do(register, "s", offered(AB), bounds=RegistryBounds(subject_versions=1)))
    kept.do(register, "t", offered(A))
    refused(42205, lambda: kept.do(register, "u", offered(A), bounds=RegistryBounds(versions=2)))
    full = RegistryBounds(texts_bytes=kept.registry.texts_bytes)
    kept.do(register, "u", offered(A), bounds=full)
    refused(42205, lambda: kept.do(register, "s", offered(AB), bounds=full))


# ---------------------------------------------------------------- compatibility


STEPS = {"adds a default": (A, AB), "adds without one": (A, B), "removes": (B, A), "removes a default": (AB, A)}
ALLOWED = {
    "BACKWARD": {"adds a default", "removes", "removes a default"},
    "FORWARD": {"adds a default", "adds without one", "removes a default"},
    "FULL": {"adds a default", "removes a default"},
    "NONE": set(STEPS),
}


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("level", ALLOWED)
def test_a_level_says_who_has_to_read_whom(kept: Kept, level: str, step: str):
    old, new = STEPS[step]
    kept.do(set_level, "s", level)
    kept.do(register, "s", offered(old))
    may = step in ALLOWED[level]
    for word in ("latest", "1", "-1", None):
        assert (compatibility(kept.registry, "s", word, offered(new)) == []) == may
    if may:
        assert kept.do(register, "s", offered(new))["version"] == 2
    else:
        assert '"s"' in refused(409, lambda: kept.do(register, "s", offered(new)))


@pytest.mark.parametrize("level", ["BACKWARD", "FORWARD", "FULL"])
def test_a_transitive_level_asks_all_versions_and_a_plain_one_the_last(kept: Kept, level: str):
    one, two, three = record("a"), record("a", optional=("b",)), record("a", "b")
    if level != "BACKWARD":
        one, three = three, one
    kept.do(register, "s", offered(one))
    kept.do(set_level, "", "NONE")
    kept.do(register, "s", offered(two))
    new = record("a", optional=("c",)) if level == "FULL" else three
    kept.do(set_level, "s", level)
    assert compatibility(kept.registry, "s", None, offered(new)) == []
    kept.do(set_level, "s", f"{level}_TRANSITIVE")
    assert "version 1" in compatibility(kept.registry, "s", None, offered(new))[0]
    refused(409, lambda: kept.do(register, "s", offered(new)))
    kept.do(delete_version, "s", "1")
    kept.do(register, "s", offered(new))


def test_another_type_is_incompatible_unless_nothing_is_asked(kept: Kept):
    kept.do(register, "s", offered('"string"'))
    other = offered({"type": "string"}, schemaType="JSON")
    assert "type" in refused(409, lambda: kept.do(register, "s", other))
    kept.do(set_level, "s", "NONE")
    kept.do(register, "s", other)


def test_json_schemas_are_compared_too(kept: Kept):
    closed = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}
    wider = {**closed, "properties": {"a": {}, "b": {}}}
    kept.do(register, "s", offered(closed, schemaType="JSON"))
    kept.do(register, "s", offered(wider, schemaType="JSON"))
    assert "cannot read what the old one wrote" in refused(
        409, lambda: kept.do(register, "s", offered(closed | {"title": "x"}, schemaType="JSON"))
    )


def test_nothing_is_compatible_with_what_is_not_there(kept: Kept):
    assert compatibility(kept.registry, "s", "latest", offered(A)) == []
    assert compatibility(kept.registry, "s", None, offered(A)) == []
    refused(40402, compatibility, kept.registry, "s", "1", offered(A))
    kept.do(register, "s", offered(A))
    refused(40402, compatibility, kept.registry, "s", "2", offered(A))
    refused(42202, compatibility, kept.registry, "s", "first", offered(A))
    refused(42201, compatibility, kept.registry, "s", "1", offered("nope"))


# ---------------------------------------------------------------- questions


@pytest.mark.parametrize("word", ["0", "-2", "x", "", "1.0", str(1 << 31), "\u0661", "9" * 5_000])
def test_a_version_is_a_number_or_latest(kept: Kept, word: str):
    kept.do(register, "s", offered(A))
    refused(42202, version, kept.registry, "s", word)


def test_versions_are_found_by_number_and_by_word(kept: Kept):
    kept.do(register, "s", offered(A))
    kept.do(register, "s", offered(AB))
    assert version(kept.registry, "s", "1")["schema"] == json.dumps(A)
    assert version(kept.registry, "s", "latest") == version(kept.registry, "s", "-1") == version(kept.registry, "s", "2")
    refused(40402, version, kept.registry, "s", "3")
    refused(40401, version, kept.registry, "t", "1")
    refused(40401, versions, kept.registry, "t")
    kept.do(delete_version, "s", "2")
    assert version(kept.registry, "s", "latest")["version"] == 1
    refused(40402, version, kept.registry, "s", "2")
    assert version(kept.registry, "s", "2", deleted=True)["deleted"] is True
    assert versions(kept.registry, "s") == [1]
    assert versions(kept.registry, "s", deleted=True) == [1, 2]
    assert versions(kept.registry, "s", deleted_only=True) == [2]


def test_subjects_are_listed_by_prefix_and_state(kept: Kept):
    for name in ("b", "ab", "a"):
        kept.do(register, name, offered(A))
    kept.do(delete_subject, "ab")
    assert subjects(kept.registry) == ["a", "b"]
    assert subjects(kept.registry, prefix="a", deleted=True) == ["a", "ab"]
    assert subjects(kept.registry, deleted_only=True) == ["ab"]


def test_a_schema_is_looked_up_by_what_it_says(kept: Kept):
    kept.do(register, "s", offered(A))
    assert look_up(kept.registry, "s", offered(json.dumps(A, indent=1)))["version"] == 1
    refused(40403, look_up, kept.registry, "s", offered(AB))
    refused(40401, look_up, kept.registry, "t", offered(A))
    refused(42201, look_up, kept.registry, "s", offered("nope"))
    kept.do(delete_subject, "s")
    refused(40401, look_up, kept.registry, "s", offered(A))
    assert look_up(kept.registry, "s", offered(A), deleted=True)["deleted"] is True


def test_a_schema_is_found_by_id_as_long_as_a_version_has_it(kept: Kept):
    kept.do(register, "s", offered(A))
    kept.do(register, "t", offered(A))
    assert schema_by_id(kept.registry, 1, subject="s")["subject"] == "s"
    assert schema_by_id(kept.registry, 1, subject="other", with_max=True)["maxId"] == 1
    assert schema_by_guid(kept.registry, kept.registry.schemas[1].guid)["id"] == 1
    assert users_of(kept.registry, 1) == [("s", 1), ("t", 1)]
    kept.do(delete_subject, "s")
    assert users_of(kept.registry, 1) == [("t", 1)]
    assert users_of(kept.registry, 1, deleted=True) == [("s", 1), ("t", 1)]
    kept.do(delete_subject, "t")
    assert schema_by_id(kept.registry, 1)["schema"] == json.dumps(A)
    for name in ("s", "t"):
        kept.do(delete_subject, name, permanent=True)
    refused(40403, schema_by_id, kept.registry, 1)
    refused(40403, users_of, kept.registry, 1)
    refused(40403, schema_by_guid, kept.registry, "nothing")


# ---------------------------------------------------------------- deleting


def test_a_subject_is_deleted_and_then_removed(kept: Kept):
    kept.do(register, "s", offered(A))
    kept.do(register, "s", offered(AB))
    kept.do(set_level, "s", "NONE")
    kept.do(set_mode, "s", "READWRITE")
    refused(40405, lambda: kept.do(delete_subject, "s", permanent=True))
    assert kept.do(delete_subject, "s") == [1, 2]
    refused(40408, level_of, kept.registry, "s")
    refused(40409, mode_of, kept.registry, "s")
    refused(40404, lambda: kept.do(delete_subject, "s"))
    assert kept.do(register, "s", offered(A))["version"] == 3
    assert kept.do(delete_subject, "s") == [3]
    assert kept.do(delete_subject, "s", permanent=True) == [1, 2, 3]
    refused(40401, lambda: kept.do(delete_subject, "s"))
    found = kept.do(register, "s", offered(A))
    assert (found["version"], found["id"]) == (1, 3)


def test_a_version_is_deleted_and_then_removed(kept: Kept):
    kept.do(register, "s", offered(A))
    kept.do(register, "s", offered(AB))
    refused(40407, lambda: kept.do(delete_version, "s", "2", permanent=True))
    assert kept.do(delete_version, "s", "latest") == 2
    refused(40406, lambda: kept.do(delete_version, "s", "2"))
    assert kept.do(delete_version, "s", "2", permanent=True) == 2
    refused(40402, lambda: kept.do(delete_version, "s", "2"))
    refused(40401, lambda: kept.do(delete_version, "t", "1"))
    refused(42202, lambda: kept.do(delete_version, "s", "x"))
    assert kept.do(register, "s", offered(AB))["version"] == 3, "a number is not given out again"


NEEDED = [{"name": "R", "subject": "needed", "version": 1}]
NEEDING = {"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": "R"}]}


def test_what_a_schema_needs_is_not_deleted(kept: Kept):
    kept.do(register, "needed", offered(A))
    kept.do(register, "needed", offered(AB))
    found = kept.do(register, "needing", offered(NEEDING, references=NEEDED))
    assert found["references"] == NEEDED
    assert requests.referring(kept.registry, "needed", "1") == [found["id"]]
    for call in ((delete_subject, "needed"), (delete_version, "needed", "1")):
        refused(42206, lambda call=call: kept.do(*call))
    kept.do(delete_version, "needed", "2")
    kept.do(delete_subject, "needing")
    kept.do(delete_subject, "needed")
    refused(42206, lambda: kept.do(delete_subject, "needed", permanent=True))
    kept.do(delete_subject, "needing", permanent=True)
    kept.do(delete_subject, "needed", permanent=True)


def test_what_a_subject_needs_of_itself_goes_with_it(kept: Kept):
    kept.do(set_level, "", "NONE")
    kept.do(register, "s", offered(A))
    kept.do(register, "s", offered(NEEDING, references=[{"name": "R", "subject": "s", "version": 1}]))
    refused(42206, lambda: kept.do(delete_version, "s", "1"))
    assert kept.do(delete_subject, "s") == [1, 2]
    assert kept.do(delete_subject, "s", permanent=True) == [1, 2]


def test_the_latest_version_may_be_referred_to_by_minus_one(kept: Kept):
    kept.do(register, "needed", offered(A))
    kept.do(register, "needed", offered(AB))
    found = kept.do(register, "needing", offered(NEEDING, references=[{**NEEDED[0], "version": -1}]))
    assert found["references"][0]["version"] == 2


@pytest.mark.parametrize(
    "references",
    [
        [{**NEEDED[0], "version": 2}], [{**NEEDED[0], "subject": "other"}], [{"name": "R"}], NEEDED * 2,
        [{**NEEDED[0], "version": -1, "subject": "x"}],
        [{**NEEDED[0], "name": f"n{number}"} for number in range(SCHEMA_REFERENCES_MAX + 1)], [],
    ],
)  # fmt: skip
def test_a_schema_with_wrong_references_is_refused(kept: Kept, references: list[dict[str, Any]]):
    kept.do(register, "needed", offered(A))
    refused(42201, lambda: kept.do(register, "needing", offered(NEEDING, references=references)))


def test_a_schema_needs_those_of_its_own_type(kept: Kept):
    kept.do(register, "needed", offered(A))
    given = offered({"$ref": "R"}, schemaType="JSON", references=NEEDED)
    assert "AVRO" in refused(42201, lambda: kept.do(register, "needing", given))
    kept.do(register, "json", offered({"type": "string"}, schemaType="JSON"))
    kept.do(register, "needing", offered({"$ref": "R"}, schemaType="JSON", references=[{**NEEDED[0], "subject": "json"}]))


def test_the_same_text_that_needs_another_version_is_another_schema(kept: Kept):
    kept.do(register, "needed", offered(A))
    kept.do(register, "needed", offered(AB))
    one = kept.do(register, "needing", offered(NEEDING, references=NEEDED))
    other = kept.do(register, "needing", offered(NEEDING, references=[{**NEEDED[0], "version": 2}]))
    assert (one["version"], other["version"]) == (1, 2)
    assert one["id"] != other["id"]


# ---------------------------------------------------------------- settings


def test_levels_are_set_for_a_subject_or_for_all(kept: Kept):
    assert level_of(kept.registry, "") == "BACKWARD"
    refused(40408, level_of, kept.registry, "s")
    assert level_of(kept.registry, "s", default_to_global=True) == "BACKWARD"
    assert kept.do(set_level, "", "full") == {"compatibility": "FULL"}
    assert level_of(kept.registry, "s", default_to_global=True) == "FULL"
    kept.do(set_level, "s", "NONE")
    assert level_of(kept.registry, "s") == "NONE"
    assert kept.do(remove_level, "s") == {"compatibilityLevel": "NONE"}
    refused(40401, lambda: kept.do(remove_level, "s"))
    assert kept.do(remove_level, "") == {"compatibilityLevel": "FULL"}
    assert level_of(kept.registry, "") == "BACKWARD"
    for wrong in ("SOME", "", None, 5, [], {}):
        refused(42203, lambda wrong=wrong: kept.do(set_level, "s", wrong))


def test_modes_are_set_for_a_subject_or_for_all(kept: Kept):
    assert mode_of(kept.registry, "") == "READWRITE"
    refused(40409, mode_of, kept.registry, "s")
    assert kept.do(set_mode, "", "readonly") == {"mode": "READONLY"}
    assert mode_of(kept.registry, "s", default_to_global=True) == "READONLY"
    assert kept.do(remove_mode, "") == {"mode": "READONLY"}
    refused(40401, lambda: kept.do(remove_mode, "s"))
    for wrong in ("SOME", None, 5, []):
        refused(42204, lambda wrong=wrong: kept.do(set_mode, "s", wrong))


def test_nothing_changes_where_nothing_may(kept: Kept):
    kept.do(register, "s", offered(A))
    kept.do(set_mode, "s", "READONLY")
    for call in (
        (register, "s", offered(AB)), (delete_subject, "s"), (delete_version, "s", "1"), (set_level, "s", "NONE"),
    ):  # fmt: skip
        refused(42205, lambda call=call: kept.do(*call))
    assert kept.do(register, "s", offered(A))["id"] == 1, "what is there is there"
    kept.do(register, "t", offered(AB))
    kept.do(set_mode, "", "READONLY")
    refused(42205, lambda: kept.do(register, "t", offered(A)))
    refused(42205, lambda: kept.do(set_level, "", "NONE"))
    kept.do(set_mode, "s", "READWRITE")
    kept.do(register, "s", offered(AB))


def test_an_import_brings_its_own_ids_and_versions(kept: Kept):
    refused(42205, lambda: kept.do(register, "s", offered(A, id=7)))
    kept.do(set_mode, "s", "IMPORT")
    refused(42205, lambda: kept.do(register, "s", offered(A)))
    found = kept.do(register, "s", offered(A, id=7, version=3))
    assert (found["id"], found["version"]) == (7, 3)
    assert kept.do(register, "s", offered(A, id=7, version=3)) == found
    refused(42205, lambda: kept.do(register, "s", offered(A, id=8)))
    refused(42205, lambda: kept.do(register, "s", offered(B, id=7)))
    refused(42205, lambda: kept.do(register, "s", offered(B, id=9, version=3)))
    refused(42205, lambda: kept.do(register, "s", offered(B, id=0)))
    refused(42202, lambda: kept.do(register, "s", offered(B, id=9, version=0)))
    kept.do(register, "s", offered(B, id=5, version=1))
    assert versions(kept.registry, "s") == [1, 3]
    kept.do(remove_mode, "s")
    found = kept.do(register, "s", offered(AB))
    assert (found["id"], found["version"]) == (8, 4)


def test_a_version_that_is_named_is_the_next_one(kept: Kept):
    refused(42205, lambda: kept.do(register, "s", offered(A, version=2)))
    assert kept.do(register, "s", offered(A, version=1))["version"] == 1
    assert kept.do(register, "s", offered(AB, version=-1))["version"] == 2


def test_nothing_is_imported_beside_what_is_there_unless_forced(kept: Kept):
    kept.do(register, "s", offered(A))
    refused(42205, lambda: kept.do(set_mode, "", "IMPORT"))
    refused(42205, lambda: kept.do(set_mode, "s", "IMPORT"))
    kept.do(set_mode, "t", "IMPORT")
    kept.do(set_mode, "", "IMPORT", force=True)


def test_what_is_set_already_is_not_written_again(kept: Kept):
    kept.do(set_level, "s", "NONE")
    kept.do(set_mode, "s", "IMPORT")
    head = kept.registry.head
    kept.do(set_level, "s", "NONE")
    kept.do(set_mode, "s", "IMPORT")
    assert kept.registry.head == head


# ---------------------------------------------------------------- any requests in any order


POOL = [record("a"), record("a", optional=("b",)), record("a", "b"), record("b", optional=("a",)), '"string"', '"int"', '"long"', '"bytes"']


def reads(reader: int, writer: int) -> bool:
    """Whether a schema of the pool reads what another wrote, worked out by hand: fields with and without a default, and promotions."""
    if reader > 3 or writer > 3:
        return reader == writer or (writer, reader) in {(5, 6), (4, 7), (7, 4)}
    has = [{"a"}, {"a", "b"}, {"a", "b"}, {"a", "b"}]
    needs = [{"a"}, {"a"}, {"a", "b"}, {"b"}]
    return needs[reader] <= has[writer]


class AgainstModel(RuleBasedStateMachine):
    """The model has, for each subject, its versions as lists of [pool index, state]; ids are given in the order of first use."""

    SUBJECTS = st.sampled_from(["s", "t"])
    INDEX = st.integers(0, len(POOL) - 1)

    def __init__(self) -> None:
        super().__init__()
        self.kept = Kept()
        self.subjects: dict[str, dict[int, list[Any]]] = {"s": {}, "t": {}}
        self.last = {"s": 0, "t": 0}
        self.ids: dict[int, int] = {}
        self.next_id = 1
        self.levels: dict[str, str] = {}
        self.modes: dict[str, str] = {}

    def live(self, subject: str) -> dict[int, int]:
        return {number: index for number, (index, is_deleted) in self.subjects[subject].items() if not is_deleted}

    def attempt(self, call: Any, *args: Any, **options: Any) -> Any:
        try:
            return self.kept.do(call, *args, **options)
        except Refusal as refusal:
            return refusal.code

    def fits(self, subject: str, index: int) -> bool:
        level = self.levels.get(subject) or self.levels.get("", "BACKWARD")
        live = list(self.live(subject).values())
        asked = live if level.endswith("TRANSITIVE") else live[-1:]
        backward, forward = level.startswith(("B", "FU")), level.startswith("F")
        return all((not backward or reads(index, old)) and (not forward or reads(old, index)) for old in asked)

    @rule(subject=SUBJECTS, index=INDEX)
    def registers(self, subject: str, index: int) -> None:
        answer = self.attempt(register, subject, offered(POOL[index]))
        same = [number for number, other in self.live(subject).items() if other == index]
        if same:
            assert (answer["id"], answer["version"]) == (self.ids[index], same[-1])
        elif self.mode(subject) != "READWRITE":
            assert answer == 42205
        elif not self.fits(subject, index):
            assert answer == 409
        else:
            self.last[subject] += 1
            if index not in self.ids:
                self.ids[index] = self.next_id
                self.next_id += 1
            assert (answer["id"], answer["version"]) == (self.ids[index], self.last[subject])
            self.subjects[subject][self.last[subject]] = [index, False]

    def mode(self, subject: str) -> str:
        return self.modes.get(subject) or self.modes.get("", "READWRITE")

    @rule(subject=SUBJECTS, number=st.integers(1, 4), permanent=st.booleans())
    def deletes_a_version(self, subject: str, number: int, permanent: bool) -> None:
        answer = self.attempt(delete_version, subject, str(number), permanent=permanent)
        there = self.subjects[subject]
        if self.mode(subject) == "READONLY":
            assert answer == 42205
        elif not there or number not in there:
            assert answer == (40402 if there else 40401)
        elif there[number][1] != permanent:
            assert answer == (40407 if permanent else 40406)
        else:
            assert answer == number
            self.gone(subject, [number], permanent)

    @rule(subject=SUBJECTS, permanent=st.booleans())
    def deletes_a_subject(self, subject: str, permanent: bool) -> None:
        answer = self.attempt(delete_subject, subject, permanent=permanent)
        there, live = self.subjects[subject], list(self.live(subject))
        if self.mode(subject) == "READONLY":
            assert answer == 42205
        elif not there:
            assert answer == 40401
        elif bool(live) == permanent:
            assert answer == (40405 if permanent else 40404)
        else:
            chosen = list(there) if permanent else live
            assert answer == chosen
            self.gone(subject, chosen, permanent)
            self.levels.pop(subject, None)
            self.modes.pop(subject, None)

    def gone(self, subject: str, numbers: list[int], permanent: bool) -> None:
        for number in numbers:
            if permanent:
                del self.subjects[subject][number]
            else:
                self.subjects[subject][number][1] = True
        if not self.subjects[subject]:
            self.last[subject] = 0
        used = {index for versions in self.subjects.values() for index, _ in versions.values()}
        self.ids = {index: schema_id for index, schema_id in self.ids.items() if index in used}

    @rule(subject=st.sampled_from(["s", "t", ""]), level=st.sampled_from(LEVELS))
    def sets_a_level(self, subject: str, level: str) -> None:
        answer = self.attempt(set_level, subject, level)
        if self.mode(subject) == "READONLY":
            assert answer == 42205
        else:
            self.levels[subject] = level

    @rule(subject=st.sampled_from(["s", "t", ""]), mode=st.sampled_from(MODES))
    def sets_a_mode(self, subject: str, mode: str) -> None:
        assume(mode != "IMPORT")
        self.attempt(set_mode, subject, mode)
        self.modes[subject] = mode

    @invariant()
    def is_as_the_model_says(self) -> None:
        registry = self.kept.registry
        expected = {
            name: {number: Version(id=self.ids[index], is_deleted=is_deleted) for number, (index, is_deleted) in versions.items()}
            for name, versions in self.subjects.items()
            if versions
        }
        assert registry.subjects == expected
        assert registry.schemas.keys() == set(self.ids.values())
        assert registry.head.next_id == self.next_id
        assert registry == Registry().folded(dict(self.kept.entries)), "folded at once"


TestAgainstModel = AgainstModel.TestCase
