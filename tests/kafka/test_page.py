"""docs/kafka.md says of records what they are."""

from eventlog.kafka.records import KIND_LETTERS
from tests.docs.pages import TOP, blocks_of, section_of
from tests.kafka.test_golden import GOLDEN

PAGE = (TOP / "docs" / "kafka.md").read_text()


def test_the_envelope_on_the_page_is_the_golden_one():
    (block,) = [block for block in blocks_of(PAGE) if block.language == "json"]
    assert block.text.rstrip("\n") == GOLDEN["told"]["debezium"][0][1]


def test_the_page_has_every_kind_with_its_letter():
    told = section_of(PAGE, "A record")
    assert all(f"`{letter.decode()}`" in told for letter in KIND_LETTERS.values())
