"""The tables of docs/protocol.md are what the code does: layouts, limits, flags, kinds, keys."""

import re

import numpy as np
import pytest

from eventlog import errors, ids, limits
from eventlog.batch import layout, marks
from eventlog.control.records import RETAIN_BYTES_DEFAULT, RETAIN_TIME_MS_DEFAULT
from eventlog.events import KIND_NAMES
from eventlog.replication import messages
from eventlog.segment import keys
from eventlog.wire import frames
from eventlog.wire.frames import Codec
from tests.docs.pages import TOP

pytestmark = pytest.mark.source

TEXT = (TOP / "docs" / "protocol.md").read_text()
LAYOUTS = dict(re.findall(r"((?:^\|.*\n)+)<!-- layout: (\w+) -->", TEXT, re.MULTILINE))
TYPES = {"u8": "u1", "u16": "<u2", "u32": "<u4", "u64": "<u8", "i64": "<i8"}


def rows_of(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.strip().split("\n")[2:]]


@pytest.mark.parametrize("name", ["BLOCK_HEAD", "VALUE_HEAD", "PRODUCER", "TABLE", "RUN"])
def test_a_layout_is_that_of_the_code(name: str):
    (table,) = [table for table, named in LAYOUTS.items() if named == name]
    dtype: np.dtype = getattr(layout, name)
    shown = [(int(offset), field, np.dtype(TYPES[kind])) for offset, field, kind in rows_of(table)]
    assert shown == [(dtype.fields[field][1], field, dtype.fields[field][0]) for field in dtype.names]


@pytest.mark.parametrize("name", ["APPEND", "VALUE", "ACK"])
def test_a_row_between_replicas_is_that_of_the_code(name: str):
    (table,) = [table for table, named in LAYOUTS.items() if named == name]
    dtype: np.dtype = getattr(messages, name)
    shown = [(int(offset), field, np.dtype(TYPES[kind])) for offset, field, kind in rows_of(table)]
    assert shown == [(dtype.fields[field][1], field, dtype.fields[field][0]) for field in dtype.names]


def test_flags_and_statuses_of_rows_are_those_of_the_code():
    for name in ("CUT", "HISTORY", "BEGIN", "CHUNK", "END", "HELD", "STALE", "MISMATCH", "UNKNOWN", "REFUSED", "TAKEN"):
        assert f"\n| {getattr(messages, name)} {name} |" in TEXT, name


def test_the_limits_are_those_of_the_code():
    (table,) = re.findall(r"((?:^\|.*\n)+)<!-- limits -->", TEXT, re.MULTILINE)
    shown = {name: int(value) for name, value in rows_of(table)}
    assert shown == {name: getattr(limits, name) for name in shown}
    assert len(shown) > 20


def test_every_error_code_named_is_one():
    codes = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.EventLogError)}
    named = set(re.findall(r"`([A-Z]+(?:_[A-Z]+)+)[`(]", TEXT))
    constants = {name for module in (limits, ids) for name in vars(module)}
    assert named - constants <= codes
    assert len(named & codes) > 15


def test_flags_codecs_and_kinds_are_those_of_the_code():
    assert (frames.CRC, frames.BODY_ONLY, frames.ENCODING_PROTOBUF) == (1 << 8, 1 << 9, 1 << 4)
    for codec in Codec:
        assert re.search(rf"\| 0-3 COMP \|.*\b{codec.value} {codec.name.lower()}\b", TEXT), codec.name
    for number, name in enumerate(KIND_NAMES):
        assert f"{number} {name}" in TEXT
    assert f"{marks.ABSENT} for a removal that found nothing" in TEXT
    assert f"{marks.REFUSED} for an item of a block whose condition did not hold" in TEXT
    assert f"= {ids.EPOCH_MS} after 1970" in TEXT


def test_the_keys_of_the_state_have_the_tags_of_the_table():
    assert (keys.TAG_ENTRY, keys.TAG_EXPIRY, keys.TAG_PRODUCER) == (1, 2, 3)
    for tag, rest in ((1, "key"), (2, "deadline u64, key"), (3, "producer u64")):
        assert f"| state | segment u16, cache u32, {tag} u8, {rest} |" in TEXT


def test_the_defaults_of_retention_are_those_that_are_told():
    assert (RETAIN_TIME_MS_DEFAULT, RETAIN_BYTES_DEFAULT) == (7 * 86_400_000, 10 << 30)
    assert "7 days or 10 GiB" in (TOP / "docs" / "decisions.md").read_text()


def test_what_several_nodes_are_asked_is_in_the_table_of_such_questions():
    table = TEXT.partition("What is asked of several nodes")[2].partition("\n\n**")[0]
    listed = set(re.findall(r"`(\w+)`", "".join(line.split("|")[1] for line in table.splitlines() if line.startswith("| `"))))
    sources = "".join(path.read_text() for path in sorted((TOP / "eventlog" / "node").rglob("*.py")))
    sent = set(re.findall(r"\.send\(number, Message\((\w+)=", sources))
    assert len(sent) > 5
    assert {"".join(word.capitalize() for word in kind.split("_")) for kind in sent} <= listed
