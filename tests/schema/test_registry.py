"""What a registry is folded from: records in any order, the keys of the last revisions, and schemas that need others."""

import random

import msgspec
import pytest

from eventlog.errors import CorruptData, InvalidArgument
from eventlog.limits import KIB, SCHEMA_BYTES_MAX, SCHEMA_REFERENCES_MAX
from eventlog.schema.registry import (
    RECENT_CHARACTERS_MAX,
    RECENT_MAX,
    Head,
    Reference,
    Registry,
    Schema,
    closure,
    encoded,
    identity_of,
    records_of,
)
from eventlog.schema.requests import delete_subject, register, set_level, set_mode
from tests.schema.registries import Kept, offered, record


def reference_to(number: int) -> Reference:
    return Reference(name=f"R{number}", subject=f"s{number}", version=1)


def full() -> Kept:
    kept = Kept()
    for number in range(5):
        kept.do(register, f"s{number}", offered(record("a", name=f"R{number}")))
        kept.do(register, f"s{number}", offered(record("a", optional=("b",), name=f"R{number}")))
    kept.do(register, "refers", offered(record("a"), references=[{"name": "R1", "subject": "s1", "version": 1}]))
    kept.do(set_level, "", "FULL")
    kept.do(set_level, "s1", "NONE")
    kept.do(set_mode, "s2", "READONLY")
    kept.do(delete_subject, "s3")
    kept.do(delete_subject, "s4")
    kept.do(delete_subject, "s4", permanent=True)
    return kept


def test_any_order_of_the_entries_is_the_same_registry():
    kept = full()
    for seed in range(5):
        entries = list(kept.entries.items())
        random.Random(seed).shuffle(entries)
        assert Registry().folded(dict(entries)) == kept.registry


def test_entries_in_pieces_are_the_same_registry_as_long_as_texts_come_with_their_schemas():
    kept = full()
    texts = {key: value for key, value in kept.entries.items() if key.startswith(("schema/", "text/"))}
    others = {key: value for key, value in kept.entries.items() if key not in texts}
    registry = Registry()
    for key, value in others.items():
        registry = registry.folded({key: value})
    assert registry.folded(texts) == kept.registry


def test_a_registry_is_not_changed_by_what_is_folded_into_it():
    kept = full()
    before = kept.registry
    said = repr(before)
    kept.do(register, "s0", offered(record("a", optional=("b", "c"), name="R0")))
    kept.do(delete_subject, "s0")
    assert repr(before) == said


def test_removing_everything_leaves_nothing():
    kept = full()
    for subject in list(kept.registry.subjects):
        kept.registry = kept.registry.folded(encoded({f"mode/{subject}": None}))
    for subject in ("refers", "s0", "s1", "s2"):
        kept.do(delete_subject, subject)
    for subject in ("refers", "s0", "s1", "s2", "s3"):
        kept.do(delete_subject, subject, permanent=True)
    left = kept.registry
    assert not any((left.schemas, left.ids, left.subjects, left.last, left.users, left.referring))
    assert (left.texts_bytes, left.versions_count) == (0, 0)
    assert left.head.next_id == 12, "no id is given out again"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("head", b"{"), ("head", b'{"revision": "x"}'), ("version/s\x001", b"{}"), ("version/s\0x", b'{"id": 1, "deleted": false}'),
        ("schema/1", b'{"type": "AVRO", "references": [], "parts": 1, "identity": ""}'), ("config/s", b'{"is": "SOME"}'), ("other/x", b"1"),
        ("schema/1", b'{"type": "OTHER", "references": [], "parts": 0, "identity": ""}'), ("subject/s", b"5"), ("mode/s", b"5"),
    ],
)  # fmt: skip
def test_a_damaged_record_is_said_with_its_key(key: str, value: bytes):
    with pytest.raises(CorruptData, match="schema registry"):
        Registry().folded({key: value, "text/0000000001/0000": None})


def test_the_head_remembers_the_keys_of_the_last_revisions():
    head = Head()
    for number in range(RECENT_MAX + 5):
        head = head.after({f"k{number}": 1}, token=f"t{number}", next_id=1)
    assert head.revision == RECENT_MAX + 5
    assert head.keys_since(head.revision) == set()
    assert head.keys_since(head.revision - 2) == {f"k{RECENT_MAX + 4}", f"k{RECENT_MAX + 3}"}
    assert head.keys_since(5) == {f"k{number}" for number in range(5, RECENT_MAX + 5)}
    assert head.keys_since(4) is None
    assert head.has(f"t{RECENT_MAX + 4}")
    assert not head.has("t0")
    assert msgspec.json.decode(msgspec.json.encode(head), type=Head) == head


def test_the_head_stays_small_whatever_is_written():
    many = Head().after(dict.fromkeys(("k" * RECENT_CHARACTERS_MAX, "one more"), 1), token="t", next_id=1)
    assert many.keys_since(0) is None
    assert many.after({"k": 1}, token="u", next_id=1).keys_since(1) == {"k"}


def test_the_records_of_the_largest_schema_fit_into_values():
    for text in ("\x01" * SCHEMA_BYTES_MAX, '"' * SCHEMA_BYTES_MAX, "\U0001f600" * (SCHEMA_BYTES_MAX // 4)):
        schema = Schema(id=1, type="PROTOBUF", text=text, references=(), identity=b"i" * 16)
        stored = encoded(records_of(schema))
        assert max(len(value or b"") for value in stored.values()) < 64 * KIB, "far below what values may have"
        assert Registry().folded(stored).schemas[1] == schema


def test_what_a_schema_needs_comes_before_it_and_once():
    kept = Kept()
    for name, needed in (("a", ""), ("b", "a"), ("c", "ab"), ("d", "abc")):
        references = [{"name": f"R{one}", "subject": one, "version": 1} for one in needed]
        tree = {"type": "record", "name": f"R{name}", "fields": [{"name": one, "type": f"R{one}"} for one in needed]}
        kept.do(register, name, offered(tree, references=references))
    references = kept.registry.schema_of("d", 1).references
    assert [schema.id for schema in closure(kept.registry, references)] == [1, 2, 3]


def test_a_schema_needs_so_many_others_and_no_more():
    kept = Kept()
    for number in range(SCHEMA_REFERENCES_MAX + 1):
        needed = [{"name": f"R{number - 1}", "subject": f"s{number - 1}", "version": 1}] if number else []
        tree = {"type": "record", "name": f"R{number}", "fields": [{"name": "a", "type": f"R{number - 1}"}] if number else []}
        kept.do(register, f"s{number}", offered(tree, references=needed))
    last = kept.registry.schema_of(f"s{SCHEMA_REFERENCES_MAX}", 1)
    assert len(list(closure(kept.registry, last.references))) == SCHEMA_REFERENCES_MAX
    with pytest.raises(InvalidArgument, match="at most"):
        list(closure(kept.registry, [*last.references, reference_to(SCHEMA_REFERENCES_MAX)]))


def test_the_identity_is_of_type_text_and_what_is_needed():
    assert identity_of("AVRO", "x", ()) != identity_of("JSON", "x", ())
    assert identity_of("AVRO", "x", ()) != identity_of("AVRO", "y", ())
    assert identity_of("AVRO", "x", (reference_to(1),)) != identity_of("AVRO", "x", ())
    assert identity_of("AVRO", "x", (reference_to(1), reference_to(2))) == identity_of("AVRO", "x", (reference_to(2), reference_to(1)))
