"""Which values can hold a text or a number at all, by looking for its bytes: for telling most apart without decoding one of them.

Sound for JSON: a string without an escape is its own bytes between quotes, a whole number without a fraction or an exponent has one
spelling; a value with a backslash anywhere, or with another kind of number at the field, always stays a candidate.
"""

import re
from collections.abc import Iterable
from functools import partial
from itertools import islice

import msgspec
import numpy as np

from eventlog.arrays import Ints, Mask
from eventlog.batch.texts import Texts
from eventlog.predicate.functions import like
from eventlog.predicate.tree import And, Compare, Constant, FunctionCall, Like, OneOf, Or, Path, Root, SyntaxNode

_NEEDLES_MAX = 16
_SPARSE = 4  # so many times more bytes between the values than in them: each is looked at by itself
_HITS_MAX = 4  # a row, on average: then looking takes longer than decoding
_MATCH_TIMES = 8  # a match of an expression costs as much as so many finds
_BACKSLASH = b"\\"
_NEEDLE_BYTES_MIN = 3  # shorter ones are everywhere
_SPACE = rb"[ \t\r\n]*"
_OTHER_NUMBER = rb"-?[0-9]+[.eE]"


def needles_of(node: SyntaxNode) -> tuple[Root, frozenset[bytes]] | None:
    """Return of which image, and one of which texts, each JSON value for which a condition is TRUE holds; None where nothing is known."""
    if isinstance(node, (And, Or)):
        found = [needles_of(item) for item in node.items]
        if isinstance(node, And):
            return next((one for one in found if one is not None), None)
        known = [one for one in found if one is not None]
        roots = {root for root, _ in known}
        if len(known) < len(found) or len(roots) != 1:
            return None
        together = frozenset[bytes]().union(*(needles for _, needles in known))
        return (known[0][0], together) if len(together) <= _NEEDLES_MAX else None
    path, texts = _texts_of(node)
    if path is None or not texts or len(texts) > _NEEDLES_MAX:
        return None
    needles = [_encoded(text, opened=opened, closed=closed) for text, opened, closed in texts]
    if any(len(needle) < _NEEDLE_BYTES_MIN for needle in needles):
        return None
    return path.root, frozenset(needle for needle in needles if _BACKSLASH not in needle)


def numbers_of(node: SyntaxNode) -> tuple[Root, re.Pattern[bytes]] | None:
    """Return of which image, and what, each JSON value has in it for which a condition is TRUE, where that asks for certain numbers."""
    if isinstance(node, Compare) and node.operator == "=" and isinstance(node.right, Constant):
        item, wanted = node.left, (node.right.value,)
    elif isinstance(node, OneOf):
        item, wanted = node.item, node.options
    else:
        return None
    if not isinstance(item, Path) or not item.steps or not isinstance(item.steps[-1], str) or len(wanted) > _NEEDLES_MAX:
        return None
    name = _encoded(item.steps[-1], opened=True, closed=True)
    if not name or _BACKSLASH in name or not {type(one) for one in wanted} <= {int, float}:
        return None
    whole = b"".join(b"%d(?![0-9])|" % int(one) for one in wanted if one == int(one)) + (b"-0|" if 0 in wanted else b"")
    return item.root, re.compile(re.escape(name) + _SPACE + b":" + _SPACE + b"(?:" + whole + _OTHER_NUMBER + b")")


def _texts_of(node: SyntaxNode) -> tuple[Path | None, list[tuple[str, bool, bool]]]:
    """Return the field, and one of which texts is in it; and for each whether it begins and ends the field."""
    if isinstance(node, Compare) and node.operator == "=" and isinstance(node.left, Path) and isinstance(node.right, Constant):
        return node.left, [(node.right.value, True, True)] if type(node.right.value) is str else []
    if isinstance(node, OneOf) and isinstance(node.item, Path):
        return node.item, [(text, True, True) for text in node.options] if {type(text) for text in node.options} == {str} else []
    if isinstance(node, Like) and isinstance(node.item, Path):
        pattern = like(node.pattern, escape=node.escape, ignore_case=node.ignore_case)
        if pattern.is_exact or len(pattern.prefix) >= len(pattern.longest):
            return node.item, [(pattern.prefix, True, pattern.is_exact)]
        return node.item, [(pattern.longest, False, False)]
    if isinstance(node, FunctionCall) and node.function.name in {"STARTS_WITH", "ENDS_WITH", "CONTAINS"}:
        item, part = node.items
        if isinstance(item, Path) and isinstance(part, Constant) and type(part.value) is str:
            return item, [(part.value, node.function.name == "STARTS_WITH", node.function.name == "ENDS_WITH")]
    return None, []


def _encoded(text: str, *, opened: bool, closed: bool) -> bytes:
    try:
        encoded = msgspec.json.encode(text)
    except UnicodeEncodeError:
        return b""
    return encoded[0 if opened else 1 : len(encoded) if closed else -1]


def candidates(texts: Texts, needles: Iterable[bytes] | re.Pattern[bytes]) -> Mask:
    """Return which JSON texts hold one of `needles`, or a match, or a backslash. More than those that do, never fewer."""
    found = np.zeros(len(texts), bool)
    rows = np.flatnonzero(texts.sizes > 0)
    if not len(rows):
        return found
    starts, sizes = texts.starts[rows], texts.sizes[rows]
    low, high = int(starts.min()), int((starts + sizes).max())
    wanted = [needles] if isinstance(needles, re.Pattern) else list(needles)
    if int(sizes.sum()) * _SPARSE < high - low:
        items = texts.take(rows).to_list()
        found[rows] = [_BACKSLASH in item or any(_is_in(item, one) for one in wanted) for item in items]
        return found
    order = np.argsort(starts, kind="stable") if bool((starts[1:] < starts[:-1]).any()) else np.arange(len(rows))
    rows, starts, ends = rows[order], starts[order], (starts + sizes)[order]
    for one in wanted:
        limit = _HITS_MAX * len(rows) + 64
        find = partial(_hits, texts.data, one) if isinstance(one, bytes) else partial(_matches, texts.data, one)
        hits = find(low=low, high=high, limit=limit)
        if hits is None:
            return np.asarray(texts.sizes > 0)
        _mark(found, rows, starts=starts, ends=ends, hits=hits, size=len(one) if isinstance(one, bytes) else 1)
    if texts.data.find(_BACKSLASH, low, high) >= 0:
        hits = np.flatnonzero(np.frombuffer(texts.data, np.uint8)[low:high] == _BACKSLASH[0]) + low
        _mark(found, rows, starts=starts, ends=ends, hits=hits, size=1)
    return found


def _mark(found: Mask, rows: Ints, *, starts: Ints, ends: Ints, hits: Ints, size: int) -> None:
    at = np.searchsorted(starts, hits, "right") - 1
    within = (at >= 0) & (hits + size <= ends[at])
    found[rows[at[within]]] = True


def _is_in(item: bytes, wanted: bytes | re.Pattern[bytes]) -> bool:
    return wanted.search(item) is not None if isinstance(wanted, re.Pattern) else wanted in item


def _matches(data: bytes, pattern: re.Pattern[bytes], *, low: int, high: int, limit: int) -> Ints | None:
    """Return where `pattern` matches; two matches cannot overlap, since no quote stands between the name and the number's end."""
    found = [match.start() for match in islice(pattern.finditer(data, low, high), limit // _MATCH_TIMES)]
    return np.array(found, np.int64) if len(found) < limit // _MATCH_TIMES else None


def _hits(data: bytes, needle: bytes, *, low: int, high: int, limit: int) -> Ints | None:
    """Return where `needle` stands, overlapping ones too; None where there are more than `limit`."""
    found: list[int] = []
    at = data.find(needle, low, high)
    while at >= 0:
        found.append(at)
        if len(found) > limit:
            return None
        at = data.find(needle, at + 1, high)
    return np.array(found, np.int64)
