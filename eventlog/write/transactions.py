"""What is known of a transaction: which batch was decided last, of which attempts it consists, and under which numbers it is written.

A batch is decided once, in one record. Its blocks are then written as those of a producer, whose sequences tell a repetition from a new
block, in each segment and over failovers; so the record says from which sequence on. A batch that is done is answered from the record.
"""

import zlib
from enum import Enum
from typing import Final

import msgspec
import numpy as np

from eventlog.arrays import Ints
from eventlog.errors import CorruptData, InvalidArgument, OutcomeUnknown
from eventlog.ids import ID_MAX
from eventlog.limits import PRODUCER_IDLE_MS_MAX, TRANSACTION_ATTEMPTS_BYTES_MAX
from eventlog.state.producers import TRANSACTIONS_FROM

BATCH_MAX: Final = ID_MAX
_RENEW_MS: Final = PRODUCER_IDLE_MS_MAX // 2  # a producer is forgotten after as long again: nothing is begun under one that may be
_GO_ON_MS: Final = PRODUCER_IDLE_MS_MAX - 3_600_000
_CARRY_OUT_MS: Final = 60_000
_SEQUENCE_MAX: Final = 1 << 31
_NAME_BYTES_MAX: Final = 200


class Transaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction of one cache: its last batch.

    `attempts` is the batch as it was decided, packed; `firsts` the sequence that comes next in each segment, packed; `decided_ms` when
    that was, and `producer_ms` when its producer began, in milliseconds since 1970: where it has written nothing since, it is forgotten
    by that time. 0: not known.
    """

    batch: int
    is_done: bool
    producer: int
    decided_ms: int
    attempts: bytes
    firsts: bytes
    producer_ms: int = 0


class NextStep(Enum):
    """What to do about a batch."""

    REPEATED = 0  # nothing: it is done
    GO_ON = 1  # publish what was decided, which may be a batch before it
    BEGIN = 2  # decide


def checked_name(name: str) -> str:
    """Return the name of a transaction. Raises InvalidArgument."""
    if not (name.isprintable() and 0 < len(name.encode()) <= _NAME_BYTES_MAX):
        raise InvalidArgument(why=f"the transaction is {name!r}: give 1 to {_NAME_BYTES_MAX} printable bytes")
    return name


def step_of(found: Transaction | None, batch: int) -> NextStep:
    """Return what to do about a batch of a transaction of which `found` is known."""
    if found is None or (found.is_done and batch > found.batch):
        return NextStep.BEGIN
    if found.is_done or batch < found.batch:
        return NextStep.REPEATED
    return NextStep.GO_ON


def decided(found: Transaction | None, *, batch: int, attempts: bytes, segments: int, now_ms: int, chance: int) -> Transaction:
    """Return a batch as it is decided; `chance` is a number below 2^63 that nobody has guessed.

    Raises:
        InvalidArgument: the batch has more attempts and segments than a record holds.
    """
    packed = zlib.compress(attempts, 1)
    if len(packed) > TRANSACTION_ATTEMPTS_BYTES_MAX:
        raise InvalidArgument(why=f"the batch has too many attempts, {len(packed)} bytes of {TRANSACTION_ATTEMPTS_BYTES_MAX}: use fewer")
    firsts = np.zeros(segments, np.int64) if found is None else firsts_of(found)
    is_young = found is not None and now_ms - found.producer_ms < _RENEW_MS and int(firsts.max()) < _SEQUENCE_MAX
    producer, producer_ms = TRANSACTIONS_FROM + chance, now_ms
    if is_young and found is not None:
        producer, producer_ms = found.producer, found.producer_ms
    return Transaction(
        batch=batch,
        is_done=False,
        producer=producer,
        decided_ms=now_ms,
        attempts=packed,
        firsts=_packed(firsts if is_young else np.zeros(segments, np.int64)),
        producer_ms=producer_ms,
    )


def done(found: Transaction, blocks: Ints) -> Transaction:
    """Return a batch that is in every segment; `blocks` is how many it has in each."""
    return msgspec.structs.replace(found, is_done=True, attempts=b"", firsts=_packed(firsts_of(found) + blocks))


def kept_until(now_ms: int, keep_ms: int) -> int:
    """Return up to when a batch may be decided of what is laid ready now; the rest of its time is for writing it."""
    return now_ms + keep_ms - min(keep_ms // 4, _CARRY_OUT_MS)


def check_age(found: Transaction, *, now_ms: int) -> None:
    """Refuse to go on with a batch of which it may be forgotten what is written.

    Raises:
        OutcomeUnknown: it was decided too long ago.
    """
    if now_ms - (found.producer_ms or found.decided_ms) > _GO_ON_MS:
        hours = (now_ms - found.decided_ms) // 3_600_000
        why = f"batch {found.batch} was begun {hours} hours ago and not ended: what of it is written is not known any more"
        raise OutcomeUnknown(outcome="unknown", why=why)


def attempts_of(found: Transaction) -> bytes:
    """Return the attempts of a batch as they came."""
    return zlib.decompress(found.attempts)


def firsts_of(found: Transaction) -> Ints:
    """Return the sequence of the next block in each segment."""
    return np.frombuffer(zlib.decompress(found.firsts), "<u4").astype(np.int64)


def _packed(firsts: Ints) -> bytes:
    return zlib.compress(firsts.astype("<u4").tobytes(), 1)


def encode(found: Transaction) -> bytes:
    """Return a transaction as it is stored."""
    return msgspec.msgpack.encode(found)


def decode(data: bytes, *, where: str) -> Transaction:
    """Return what `encode` gave.

    Raises:
        CorruptData: it did not.
    """
    try:
        return msgspec.msgpack.decode(data, type=Transaction)
    except (msgspec.DecodeError, ValueError) as error:
        raise CorruptData(where=where, why=str(error)) from error
