"""Which values can hold a text at all, by looking for its bytes: for telling most values apart without decoding one of them.

Sound for JSON: a string without an escape is its own bytes between quotes; a value with a backslash anywhere always stays a candidate.
"""

from collections.abc import Iterable

import msgspec
import numpy as np
import numpy.typing as npt

from eventlog.batch.texts import Texts
from eventlog.predicate.like import like
from eventlog.predicate.tree import And, Call, Compare, Constant, Like, Node, OneOf, Or, Path, Root

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_NEEDLES_MAX = 16
_SPARSE = 4  # so many times more bytes between the values than in them: each is looked at by itself
_HITS_MAX = 4  # a row, on average: then looking takes longer than decoding
_BACKSLASH = b"\\"
_NEEDLE_BYTES_MIN = 3  # shorter ones are everywhere


def needles_of(node: Node) -> tuple[Root, frozenset[bytes]] | None:
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


def _texts_of(node: Node) -> tuple[Path | None, list[tuple[str, bool, bool]]]:
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
    if isinstance(node, Call) and node.function.name in {"STARTS_WITH", "ENDS_WITH", "CONTAINS"}:
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


def candidates(texts: Texts, needles: Iterable[bytes]) -> Mask:
    """Return which JSON texts hold one of `needles`, or a backslash. More than those that do, never fewer."""
    found = np.zeros(len(texts), bool)
    rows = np.flatnonzero(texts.sizes > 0)
    if not len(rows):
        return found
    starts, sizes = texts.starts[rows], texts.sizes[rows]
    low, high = int(starts.min()), int((starts + sizes).max())
    wanted = list(needles)
    if int(sizes.sum()) * _SPARSE < high - low:
        items = texts.take(rows).to_list()
        found[rows] = [_BACKSLASH in item or any(needle in item for needle in wanted) for item in items]
        return found
    order = np.argsort(starts, kind="stable") if bool((starts[1:] < starts[:-1]).any()) else np.arange(len(rows))
    rows, starts, ends = rows[order], starts[order], (starts + sizes)[order]
    for needle in wanted:
        hits = _hits(texts.data, needle, low=low, high=high, limit=_HITS_MAX * len(rows) + 64)
        if hits is None:
            return np.asarray(texts.sizes > 0)
        _mark(found, rows, starts=starts, ends=ends, hits=hits, size=len(needle))
    if texts.data.find(_BACKSLASH, low, high) >= 0:
        hits = np.flatnonzero(np.frombuffer(texts.data, np.uint8)[low:high] == _BACKSLASH[0]) + low
        _mark(found, rows, starts=starts, ends=ends, hits=hits, size=1)
    return found


def _mark(found: Mask, rows: Ints, *, starts: Ints, ends: Ints, hits: Ints, size: int) -> None:
    at = np.searchsorted(starts, hits, "right") - 1
    within = (at >= 0) & (hits + size <= ends[at])
    found[rows[at[within]]] = True


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
