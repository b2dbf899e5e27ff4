"""What our own caller got wrong: fix the call."""

from eventlog.errors.tree import Misuse


class InvalidArgument(Misuse):
    code = "INVALID_ARGUMENT"
    sentence = "{why}"
    why: str


class BadName(Misuse):
    code = "BAD_NAME"
    sentence = "{name!r} is not a cache name: use 1 to 200 of a-z 0-9 . _ - beginning with a letter or digit, not '__'"
    name: str


class BadConfig(Misuse):
    code = "BAD_CONFIG"
    exit_code = 2
    sentence = "{option}: {why}"
    option: str
    why: str


class ClientClosed(Misuse):
    code = "CLOSED"
    sentence = "the {what} is closed; open a new one"
    what: str


class BadRow(Misuse):
    code = "BAD_ROW"
    sentence = "{source} line {line}: {why}"
    source: str
    line: int
    why: str
