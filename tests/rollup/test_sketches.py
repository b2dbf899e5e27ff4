"""Sketches of keys: about as many as there are, the same however they are put together, and in the bytes that others read."""

import math
import re
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.errors import InvalidArgument
from eventlog.integrations.rollup.sketches import COUPONS_MAX, STANDARD_ERROR, KeySketch, coupons_of, distinct_keys

TOP = Path(__file__).parents[2]


def sketch(keys: Sequence[str]) -> KeySketch:
    return KeySketch(coupons_of(pa.array(keys, pa.string())))


@pytest.mark.parametrize(
    ("key", "coupon"),
    [
        ("k-0", 0x07BAE33E),
        ("0123456", 0x05392D7E),
        ("01234567", 0x040CCDA5),
        ("0123456789abcde", 0x0A6DF4A7),
        ("0123456789abcdef", 0x09289420),
        ("x" * 100, 0x058F9E3A),
    ],
)
def test_a_key_is_hashed_as_datasketches_hashes_it(key: str, coupon: int) -> None:
    assert coupons_of(pa.array([key])).tolist() == [coupon]
    assert coupons_of(pa.array([b"other", key.encode(), b""]).slice(1, 1)).tolist() == [coupon]


@pytest.mark.parametrize("count", [1, 7, 100, COUPONS_MAX])
def test_few_are_counted(count: int) -> None:
    assert sketch([f"k{number}" for number in range(count)] * 3).estimate() == count


@pytest.mark.parametrize("count", [COUPONS_MAX + 1, 1_000, 5_000, 20_000, 100_000])
def test_of_many_the_error_is_what_is_said(count: int) -> None:
    hashes = coupons_of(pa.array([f"order-{number}" for number in range(min(20 * count, 400_000))]))
    errors = [KeySketch(hashes[begin : begin + count]).estimate() / count - 1 for begin in range(0, len(hashes), count)]
    assert max(map(abs, errors)) < 3 * STANDARD_ERROR
    assert math.sqrt(sum(error * error for error in errors) / len(errors)) < 1.3 * STANDARD_ERROR


def test_words_that_somebody_wrote_are_counted() -> None:
    words = [word for page in sorted((TOP / "docs").glob("*.md")) for word in re.findall(r"\w+", page.read_text())]
    assert sketch(words).estimate() == pytest.approx(len(set(words)), rel=3 * STANDARD_ERROR)
    assert len(set(words)) > 3_000


@given(st.lists(st.integers(0, 900), max_size=6), st.integers(0, 900))
def test_however_they_are_put_together_the_bytes_are_the_same(cuts: list[int], extra: int) -> None:
    keys = [f"k{number}" for number in range(extra)]
    bounds = sorted({0, len(keys), *(min(cut, len(keys)) for cut in cuts)})
    parts = [keys[low:high] + keys[:5] for low, high in pairwise(bounds)]
    whole = KeySketch()
    for part in reversed(parts):
        whole.merge(KeySketch.of_bytes(sketch(part).to_bytes()))
    assert whole.to_bytes() == sketch(keys).to_bytes()
    assert distinct_keys([sketch(part).to_bytes() for part in parts]) == sketch(keys).estimate()


def test_what_is_no_sketch_is_refused() -> None:
    for keys in (["a"], [f"k{number}" for number in range(1_000)]):
        good = sketch(keys).to_bytes()
        for wrong in (
            b"",
            good[:-1],
            good + b"\0",
            good[:3] + b"\x0b" + good[4:],
            b"\0" * len(good),
            good[:-1] + b"\xff" * (len(good) > 4_000),
        ):
            with pytest.raises(InvalidArgument, match="no sketch"):
                distinct_keys([wrong])


def test_hashes_that_begin_with_zeros_are_values_that_registers_hold() -> None:
    values = np.arange(1, 64, dtype=np.uint32)
    found = KeySketch((values << np.uint32(26)) | values)
    found.add(coupons_of(pa.array([f"k{number}" for number in range(1_000)])))
    assert KeySketch.of_bytes(found.to_bytes()).estimate() == found.estimate() > 1_000
