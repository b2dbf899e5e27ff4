"""A value that is not taken, or not told on, for what it holds."""

from eventlog.errors.tree import Refused, Unavailable


class BadValue(Refused):
    code = "BAD_VALUE"
    http_status = 400
    sentence = "value of key {key!r}: {why}"
    key: str
    why: str


class UnfitValue(Refused):
    """`field` is where in the value, as in `value.a[3]`; of the value before a change, `before.a[3]`."""

    code = "UNFIT_VALUE"
    sentence = "event at offset {offset} of segment {segment}, key {key!r}: {field} is {why}; give a schema that takes it, or leave it out"
    segment: int
    offset: int
    key: str
    field: str
    why: str


class SchemaBehind(Unavailable):
    """Told again once the node has heard of the schema, which takes a second."""

    code = "SCHEMA_BEHIND"
    sentence = (
        "event at offset {offset} of segment {segment}, key {key!r}: the value goes on behind the Avro schema that this node knows; "
        "it knows a newer one within a second, else the value is of another schema"
    )
    segment: int
    offset: int
    key: str
