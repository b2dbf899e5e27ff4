"""What is wrong with a filter that a reader asked for."""

from eventlog.errors.tree import Misuse, Refused


class BadPredicate(Misuse):
    """`column` counts characters from 1, over all lines; `suggestion` is empty, or what may have been meant."""

    code = "BAD_PREDICATE"
    sentence = "predicate refused: {why}, at column {column}"
    column: int
    why: str
    suggestion: str

    def __str__(self) -> str:
        return f"{super().__str__()}; did you mean {self.suggestion}?" if self.suggestion else super().__str__()


class BadFilterParameters(Misuse):
    """`parameter` is empty where all of them together are wrong."""

    code = "BAD_FILTER_PARAMETERS"
    sentence = "filter {filter}: parameter {parameter!r} {why}"
    filter: str
    parameter: str
    why: str


class FilterNotFound(Refused):
    """`version` is 0 where the newest was asked for; `installed` says which filters this node has."""

    code = "FILTER_NOT_FOUND"
    http_status = 404
    sentence = "filter {wanted!r} is not installed; there is {installed}"
    filter: str
    version: int
    installed: str

    def __str__(self) -> str:
        return self.sentence.format(wanted=f"{self.filter}@{self.version}" if self.version else self.filter, installed=self.installed)
