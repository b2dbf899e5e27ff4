"""docs/kafka.md says of records what they are, and docs/operations.md of mirrors what to type."""

import json
import re

from aiokafka.record.default_records import DefaultRecordBatch

from eventlog.kafka.letters import Room, parted
from eventlog.kafka.records import KIND_LETTERS
from eventlog.kafka.shape import Shape
from eventlog.mirror.shards import STANDING
from eventlog_cli.mirror import command
from tests.docs.pages import TOP, blocks_of, section_of
from tests.kafka.test_golden import GOLDEN
from tests.predicate.rows import events

PAGE = (TOP / "docs" / "kafka.md").read_text()


def json_of(section: str) -> str:
    (block,) = [block for block in blocks_of(section_of(PAGE, section)) if block.language == "json"]
    return block.text.rstrip("\n")


def test_the_envelope_on_the_page_is_the_golden_one():
    assert json_of("Formats") == GOLDEN["told"]["debezium"][0][1]


def test_the_dead_letter_on_the_page_has_the_fields_of_one():
    shape = Shape(cache="orders", cluster="c", prefix="p", topic="t", version="1", is_json=True, has_text_keys=True)
    read = events([{"key": "k", "value": b"1"}])
    made = parted(read, shape, partitions=1, now_ms=1, room=Room(batch_bytes=100, topic_bytes=100))
    ((record,),) = [list(DefaultRecordBatch(bytes(batch.sealed()))) for batch in made.letters]
    told, page = json.loads(record.value), json.loads(json_of("Dead letters"))
    assert list(page) == list(told)
    assert page["reason"] == f"a record of {page['size']} bytes, and the topic takes 1048588"


def test_operations_has_what_to_type_in_each_state_and_every_command_is_one():
    section = section_of((TOP / "docs" / "operations.md").read_text(), "A mirror that stands still")
    rows = [line.split(" | ") for line in section.splitlines() if line.startswith("| `")]
    assert {state.strip("| `") for state, _, _ in rows} == {"waiting", *STANDING}
    words = [found.split() for _, _, cell in rows for found in re.findall(r"`eventlog (mirror [^`]+)`", cell)]
    assert {name for _, name, *_ in words} == {"status", "alter", "remove", "pause", "reset", "resume", "verify"}
    for _, name, *arguments in words:
        given = [*arguments, "9"] if arguments[-1] == "--to" else arguments  # the id that a sentence names
        assert command.commands[name].make_context(name, given).params["mirror"] == "orders"


def test_the_page_has_every_kind_with_its_letter():
    told = section_of(PAGE, "A record")
    assert all(f"`{letter.decode()}`" in told for letter in KIND_LETTERS.values())
