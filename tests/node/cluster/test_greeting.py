"""Proofs of the cluster key: what they are over, and that nothing else passes for one."""

import dataclasses
import hashlib
import hmac

import pytest

from eventlog.errors import BadMessage, UnsupportedVersion
from eventlog.node.cluster.greeting import NONCE_BYTES, PEER_VERSION, Greeting, PeerIdentity, check_greeting

ONE, TWO = (PeerIdentity(cluster="c", number=number, incarnation=f"i{number}") for number in (1, 2))
SAID = Greeting(dialer=ONE, answerer=TWO, dialer_nonce=b"a" * NONCE_BYTES, answerer_nonce=b"b" * NONCE_BYTES)
KEY, OTHER = b"k" * 32, b"o" * 32


def test_a_proof_is_an_hmac_over_label_identities_nonces_and_channel():
    texts = [b"eventlog dialer 2", b"c", b"1", b"i1", b"c", b"2", b"i2", b"a" * 32, b"b" * 32, b""]
    said = b"".join(len(text).to_bytes(4, "big") + text for text in texts)
    assert SAID.proofs("dialer", [KEY]) == [hmac.new(KEY, said, hashlib.sha256).digest()]


def test_a_side_proves_each_key_that_it_knows_and_one_has_to_fit():
    proofs = SAID.proofs("dialer", [OTHER, KEY])
    assert SAID.proved("dialer", proofs, [KEY]) == KEY
    assert SAID.proved("dialer", SAID.proofs("dialer", [KEY]), [OTHER, KEY]) == KEY
    assert SAID.proved("dialer", proofs, [KEY, OTHER]) == KEY  # of two, that of the checking side which comes first
    assert SAID.proved("dialer", proofs, [b"x" * 32]) is None
    assert SAID.proved("dialer", [b"", b"\0" * 32], [KEY]) is None
    assert SAID.proved("dialer", [], [KEY]) is None
    assert SAID.proved("dialer", SAID.proofs("dialer", [KEY]), []) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"dialer": dataclasses.replace(ONE, number=3)},
        {"dialer": dataclasses.replace(ONE, incarnation="i3")},
        {"dialer": dataclasses.replace(ONE, cluster="d")},
        {"answerer": dataclasses.replace(TWO, number=3)},
        {"answerer": dataclasses.replace(TWO, incarnation="i3")},
        {"dialer_nonce": b"c" * NONCE_BYTES},
        {"answerer_nonce": b"c" * NONCE_BYTES},
        {"channel": b"of another connection"},
        {"dialer": TWO, "answerer": ONE},
        {"dialer": dataclasses.replace(ONE, cluster="c1", incarnation="i"), "answerer": dataclasses.replace(TWO, cluster="1c")},
    ],
)
def test_a_proof_is_of_one_greeting_alone(changed):
    other = dataclasses.replace(SAID, **changed)
    for side in ("dialer", "answerer"):
        assert other.proved(side, SAID.proofs(side, [KEY]), [KEY]) is None


def test_what_one_side_says_is_no_proof_of_the_other():
    assert SAID.proved("dialer", SAID.proofs("answerer", [KEY]), [KEY]) is None
    assert SAID.proved("answerer", SAID.proofs("dialer", [KEY]), [KEY]) is None


def test_a_greeting_that_could_not_be_proved_is_refused():
    check_greeting(PEER_VERSION, bytes(NONCE_BYTES))
    for version in (0, 1, PEER_VERSION + 1):
        with pytest.raises(UnsupportedVersion):
            check_greeting(version, bytes(NONCE_BYTES))
    for nonce in (b"", bytes(NONCE_BYTES - 1), bytes(NONCE_BYTES + 1)):
        with pytest.raises(BadMessage):
            check_greeting(PEER_VERSION, nonce)
