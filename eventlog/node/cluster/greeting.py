"""How two members prove to each other that they know the cluster key: what a greeting consists of, and its proofs. Pure.

    dialer                                        answerer
    PeerHello(identity, nonce)              ->
                                            <-    PeerHelloAnswer(identity, nonce, proofs)
    PeerProof(proofs)                       ->
                                            <-    Done

A proof is HMAC-SHA256 over a label and everything that both have said. The label differs by direction, so what one side has proved is
no proof of the other's. While a cluster key is being replaced two are valid; a side that knows both proves both, and one has to fit.
"""

import hmac
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from eventlog.errors import BadMessage, UnsupportedVersion

PEER_VERSION: Final = 2
"""Of what members say to each other. 1 had no proofs."""
NONCE_BYTES: Final = 32
KEYS_VALID_MAX: Final = 2

Side = Literal["dialer", "answerer"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerIdentity:
    """A member as it greets: `incarnation` names its data directory."""

    cluster: str
    number: int
    incarnation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Greeting:
    """What both sides have said. `channel` names the encrypted channel below (RFC 9266), the same at both ends; empty without TLS."""

    dialer: PeerIdentity
    answerer: PeerIdentity
    dialer_nonce: bytes
    answerer_nonce: bytes
    channel: bytes = b""

    def proofs(self, side: Side, keys: Sequence[bytes]) -> list[bytes]:
        """Return what `side` says to prove that it knows `keys`, one proof each."""
        return [hmac.digest(key, self._said(side), "sha256") for key in keys]

    def proved(self, side: Side, proofs: Sequence[bytes], keys: Sequence[bytes]) -> bytes | None:
        """Return which of `keys` `side` has proved to know, None for none of them."""
        for key, expected in zip(keys, self.proofs(side, keys), strict=True):
            if any(hmac.compare_digest(expected, proof) for proof in proofs[:KEYS_VALID_MAX]):
                return key
        return None

    def _said(self, side: Side) -> bytes:
        texts = [f"eventlog {side} {PEER_VERSION}".encode()]
        for identity in (self.dialer, self.answerer):
            texts += [identity.cluster.encode(), str(identity.number).encode(), identity.incarnation.encode()]
        texts += [self.dialer_nonce, self.answerer_nonce, self.channel]
        return b"".join(len(text).to_bytes(4, "big") + text for text in texts)  # lengths: no two greetings read the same


def check_greeting(version: int, nonce: bytes) -> None:
    """Refuse a side of a greeting whose proof would mean nothing.

    Raises:
        UnsupportedVersion: it is of a version that members cannot mix.
        BadMessage: its nonce is none.
    """
    if version != PEER_VERSION:
        raise UnsupportedVersion(theirs=f"{version or 1} between members", ours=str(PEER_VERSION))
    if len(nonce) != NONCE_BYTES:
        raise BadMessage(why=f"the nonce of a greeting has {len(nonce)} bytes, not {NONCE_BYTES}")
