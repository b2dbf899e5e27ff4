"""docs/kafka.md says of records what they are."""

import json

from aiokafka.record.default_records import DefaultRecordBatch

from eventlog.kafka.records import KIND_LETTERS
from eventlog.kafka.shape import Shape
from eventlog.mirror.letters import Room, parted
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


def test_the_page_has_every_kind_with_its_letter():
    told = section_of(PAGE, "A record")
    assert all(f"`{letter.decode()}`" in told for letter in KIND_LETTERS.values())
