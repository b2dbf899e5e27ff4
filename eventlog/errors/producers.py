"""Errors of writes that are numbered, so that each is written once: those of producers and of transactions."""

from eventlog.errors.tree import Refused

__all__ = ["ProducerUnknown", "SequenceGap", "StageExpired", "StageLost"]


class SequenceGap(Refused):
    code = "SEQUENCE_GAP"
    sentence = "producer {producer}, segment {segment}: sequence {found} does not follow {last}; resend from the oldest unanswered block"
    producer: int
    segment: int
    found: int
    last: int


class ProducerUnknown(Refused):
    code = "PRODUCER_UNKNOWN"
    sentence = "producer {producer} is not known in segment {segment} (forgotten after 24 hours, or its cache was trimmed away); begin anew"
    producer: int
    segment: int


class StageLost(Refused):
    code = "STAGE_LOST"
    sentence = (
        "segment {segment} has not all that attempt {attempt} laid ready; of its batch, some may be written: publish it by another name"
    )
    segment: int
    attempt: str


class StageExpired(Refused):
    code = "STAGE_EXPIRED"
    sentence = "what attempt {attempt} laid ready is about to be removed; make the batch anew, and have it kept for longer"
    attempt: str
