"""Numbers of the layout of events that need no arrays to be read: the bits of columns, outcomes of items, sizes of heads.

What they are numbers of stands in `layout`. Apart, because a client that writes or reads a single event imports no numpy for it.
"""

# optional columns, in the order of their bit
EXPIRY = 1  # i64 milliseconds since 2020, 0: never
BEFORE = 2  # offsets and bytes; meaningful where the kind replaces or removes
HEADERS = 4  # offsets and bytes of events.encode_headers
SCHEMA_ID = 8  # u32
PROMOTED = 16  # fields of the values, set apart by the node that stamps: see `sections.encode_promoted`
COLUMNS_KNOWN = EXPIRY | BEFORE | HEADERS | SCHEMA_ID | PROMOTED

CONTENT = frozenset({"key", "value", "before", "headers"})  # what a reader may be answered without: the rest says where an event is

ABSENT = 255  # outcome of a submitted item: nothing there to remove
REFUSED = 254  # outcome of a submitted item: its block's condition did not hold

BLOCK_HEAD_BYTES = 16
TABLE_ROW_BYTES = 16


def columns_without(without: frozenset[str]) -> int:
    """Return the bits of optional columns that are not answered without some of `CONTENT`; schema ids are of values alone."""
    bits = BEFORE * ("before" in without) | HEADERS * ("headers" in without)
    return bits | SCHEMA_ID * (without >= {"value", "before"})


def pad8(size: int) -> int:
    """Return `size` rounded up to a multiple of 8."""
    return (size + 7) & ~7
