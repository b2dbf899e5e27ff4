"""Errors of writes that are numbered, so that each is written once: those of producers and of transactions."""

from eventlog.errors.tree import Refused

__all__ = ["ProducerUnknown", "SequenceGap", "StageLost"]


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
    sentence = "segment {segment} has not all that attempt {attempt} laid ready (it is removed when its time is over); make the batch anew"
    segment: int
    attempt: str
