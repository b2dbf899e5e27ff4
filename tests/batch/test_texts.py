"""Byte strings in order, as they lie in a buffer."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eventlog.batch.texts import Texts

octets = st.one_of(
    st.binary(max_size=20), st.text("a\0b", max_size=20).map(str.encode), st.sampled_from([b"", b"a" * 8, b"a" * 16, b"a" * 9, b"\xff" * 8])
)


@given(st.lists(octets, max_size=20), octets, st.integers(0, 9), st.booleans())
def test_texts_sort_as_bytes_do(items, other, pad, reverse):
    data = bytes(pad) + b"".join(items)
    sizes = np.array([len(item) for item in items], np.int64)
    texts = Texts(data=data, starts=pad + np.cumsum(sizes) - sizes, sizes=sizes)
    if reverse:
        texts, items = texts.take(np.arange(len(items))[::-1]), items[::-1]
    for wanted in (other, *items[:2], *(item[:8] for item in items[:2]), *(item + b"\0" for item in items[:2])):
        assert texts.order(wanted).tolist() == [(item > wanted) - (item < wanted) for item in items]
