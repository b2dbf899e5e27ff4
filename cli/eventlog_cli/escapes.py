r"""`\n` and its like in words of the command line: the same in `--output-format` and in `--key-separator`."""

import re

_NAMED = {"\\n": b"\n", "\\t": b"\t", "\\r": b"\r", "\\0": b"\0", "\\\\": b"\\"}
ESCAPE = r"\\x[0-9A-Fa-f]{2}|\\.?"
KNOWN = (*_NAMED, r"\xHH")
_PIECE = re.compile(rf"{ESCAPE}|[^\\]+", re.DOTALL)


def escaped(piece: str) -> bytes | None:
    """Return what a piece that begins with a backslash stands for, None for nothing."""
    return bytes.fromhex(piece[2:]) if len(piece) == len(r"\xHH") else _NAMED.get(piece)


def unescape(text: str) -> bytes:
    """Return text as bytes, with what its escapes stand for.

    Raises:
        ValueError: one stands for nothing.
    """
    parts = []
    for piece in _PIECE.findall(text):
        part = escaped(piece) if piece[0] == "\\" else piece.encode(errors="surrogateescape")
        if part is None:
            raise ValueError(f"{piece!r} means nothing: write one of {' '.join(KNOWN)}")
        parts.append(part)
    return b"".join(parts)
