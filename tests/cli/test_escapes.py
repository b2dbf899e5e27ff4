"""Escapes in words of the command line."""

import pytest

from eventlog_cli.escapes import unescape


@pytest.mark.parametrize(
    ("text", "data"),
    [
        ("", b""),
        (":", b":"),
        (r"\t", b"\t"),
        (r"a\0b\r\n", b"a\0b\r\n"),
        (r"\\t", b"\\t"),
        (r"\x1f\xFF", b"\x1f\xff"),
        ("ü\udcff", b"\xc3\xbc\xff"),
    ],
)
def test_an_escape_stands_for_its_byte_and_all_else_for_itself(text: str, data: bytes) -> None:
    assert unescape(text) == data


@pytest.mark.parametrize("text", ["\\", r"a\q", r"\x1", r"\xg0", "\\\n"])
def test_an_escape_that_stands_for_nothing_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="means nothing: write one of"):
        unescape(text)
