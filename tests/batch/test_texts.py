"""Byte strings in order, as they lie in a buffer."""

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from eventlog.batch.texts import ColumnCuts, IndexedTexts, TextIndex, Texts, make_index
from tests.examples import examples

octets = st.one_of(
    st.binary(max_size=20), st.text("a\0b", max_size=20).map(str.encode), st.sampled_from([b"", b"a" * 8, b"a" * 16, b"a" * 9, b"\xff" * 8])
)
PIECES = st.sampled_from([b"a", b"b", b"\0", b"\xff", b"order/", b"customer-00000"])
TEXT = st.lists(PIECES, max_size=4).map(b"".join)
FEW = settings(max_examples=examples(150), deadline=None)


@given(st.lists(octets, max_size=20), octets, st.integers(0, 9), st.booleans())
def test_texts_sort_as_bytes_do(items, other, pad, reverse):
    data = bytes(pad) + b"".join(items)
    sizes = np.array([len(item) for item in items], np.int64)
    texts = Texts(data=data, starts=pad + np.cumsum(sizes) - sizes, sizes=sizes)
    if reverse:
        texts, items = texts.take(np.arange(len(items))[::-1]), items[::-1]
    for wanted in (other, *items[:2], *(item[:8] for item in items[:2]), *(item + b"\0" for item in items[:2])):
        assert texts.order(wanted).tolist() == [(item > wanted) - (item < wanted) for item in items]


SMALL_PIECES = ColumnCuts(numbers_together=3, unsure_share=1)
"""An index in several pieces, and candidates looked at."""


def texts_of(items):
    sizes = np.array([len(item) for item in items], np.int64)
    return Texts(data=b"".join(items), starts=np.cumsum(sizes) - sizes, sizes=sizes)


def indexed(items, rows=None, cuts=SMALL_PIECES):
    """Return texts with an index, and the rows that are loaded."""
    texts, loaded = texts_of(items), []
    summary, columns = make_index(texts, cuts)

    def load(wanted):
        loaded.append(wanted)
        return texts if wanted is None else texts.take(wanted)

    return IndexedTexts(TextIndex(summary, lambda name, low, high: columns[name][low:high]), load, rows), loaded


@given(st.data(), st.sampled_from([b"", b"order/2026-", b"a\0"]))
@FEW
def test_an_index_finds_what_the_texts_hold(data, common):
    items = [common + item if data.draw(st.booleans()) or item else b"" for item in data.draw(st.lists(TEXT, min_size=1, max_size=12))]
    plain, (found, _) = texts_of(items), indexed(items)
    near = [*items, *[item[: len(item) // 2] for item in items], *[item[:-1] for item in items]]
    for text in (data.draw(st.sampled_from(near)), data.draw(TEXT), common + data.draw(TEXT)):
        assert found.equals(text).tolist() == plain.equals(text).tolist()
        assert found.starts_with(text).tolist() == plain.starts_with(text).tolist()
        assert found.order(text).tolist() == [(item > text) - (item < text) for item in items]
    asked = data.draw(st.lists(st.sampled_from(near), max_size=12))
    assert found.is_in(asked).tolist() == plain.is_in(asked).tolist()


@given(st.lists(TEXT, min_size=1, max_size=12), st.data())
@FEW
def test_some_of_the_texts_are_found_among_themselves(items, data):
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, len(items) - 1)))), np.int64)
    plain, (found, _) = texts_of(items).take(rows), indexed(items, rows)
    text = data.draw(st.sampled_from(items))
    assert len(found) == len(rows)
    assert found.equals(text).tolist() == plain.equals(text).tolist()
    assert found.starts_with(text[:3]).tolist() == plain.starts_with(text[:3]).tolist()
    assert found.order(text).tolist() == plain.order(text).tolist()
    assert found.to_list() == plain.to_list()
    assert found.take(rows < 2).to_list() == plain.take(rows < 2).to_list()


def test_short_texts_are_found_without_being_loaded():
    found, loaded = indexed([b"customer-%d" % (number % 7) for number in range(20)] + [b""])
    assert np.flatnonzero(found.equals(b"customer-3")).tolist() == [3, 10, 17]
    assert np.flatnonzero(found.equals(b"")).tolist() == [20]
    assert found.starts_with(b"customer-").sum() == 20
    assert not found.starts_with(b"customers").any()
    assert not loaded


def test_of_long_texts_those_are_loaded_that_begin_alike():
    found, loaded = indexed([b"%d/behind eight bytes" % (number % 5) for number in range(20)])
    assert np.flatnonzero(found.equals(b"3/behind eight bytes")).tolist() == [3, 8, 13, 18]
    assert [rows.tolist() for rows in loaded] == [[3, 8, 13, 18]]


def test_where_most_texts_begin_alike_all_are_loaded():
    found, loaded = indexed([b"x", *[b"customer-%d" % number for number in range(20)]], cuts=replace(SMALL_PIECES, unsure_share=8))
    assert np.flatnonzero(found.starts_with(b"customer-1")).tolist() == [2, *range(11, 21)]
    assert loaded == [None]
