"""Keys to segments, with golden vectors for clients in other languages."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventlog.hashing import hash_key, hash_keys, route_bytes, segment_of

GOLDEN = json.loads((Path(__file__).parent / "golden" / "segments.json").read_text())["keys"]


@pytest.mark.parametrize("row", GOLDEN, ids=lambda row: row["key"][:20])
def test_hash_and_segment_are_as_the_golden_vectors_say(row):
    hashed = hash_key(bytes.fromhex(row["key"]))
    assert f"{hashed:016x}" == row["xxh3_64"]
    assert segment_of(hashed, 256) == row["segment_of_256"]
    assert segment_of(hashed, 4096) == row["segment_of_4096"]


def test_the_hash_is_the_published_xxh3():
    assert hash_key(b"") == 0x2D06800538D394C2


@given(st.binary(), st.integers(0, 11))
def test_doubling_the_segments_splits_each_in_two(key, bits):
    hashed = hash_key(key)
    assert segment_of(hashed, 2 << bits) >> 1 == segment_of(hashed, 1 << bits)
    assert segment_of(hashed, 1) == 0


@given(st.lists(st.binary()))
def test_many_keys_hash_as_each_alone(keys):
    assert hash_keys(keys) == [hash_key(key) for key in keys]


@pytest.mark.parametrize(("key", "prefix"), [(b"group\0rest\0more", b"group"), (b"group", b"group"), (b"\0rest", b""), (b"", b"")])
def test_a_cache_routed_by_prefix_hashes_what_stands_before_the_first_zero(key, prefix):
    assert route_bytes(key, by_prefix=True) == prefix
    assert route_bytes(key, by_prefix=False) == key
