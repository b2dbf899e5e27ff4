"""Answers that many streams get, taken apart and told once: a follower gets what all get that ask the same of a cache."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeAlias
from weakref import WeakKeyDictionary

from xxhash import xxh3_128_digest

from eventlog.client.reading.batches import EventBatch
from eventlog.limits import KIB
from eventlog.wire.eventlog_pb2 import PollAnswer

ANSWERS_MAX: Final = 64
ANSWER_BYTES_MAX: Final = 64 * KIB  # larger ones are history, which hardly two read at once
Key = tuple[tuple[int, bytes], int, bytes]
Text: TypeAlias = bytes | memoryview


class SharedAnswers:
    """The latest small answers of all streams of a node: as batches, and as each way of telling makes of these."""

    def __init__(self) -> None:
        self._batches: OrderedDict[Key, list[EventBatch]] = OrderedDict()
        self._texts: WeakKeyDictionary[EventBatch, dict[str, Text]] = WeakKeyDictionary()
        self._peak = 0

    def batches(
        self, question: tuple[int, bytes], answer: PollAnswer, body: memoryview, make: Callable[[], list[EventBatch]]
    ) -> list[EventBatch]:
        """Return what `make` makes of an answer to a question (a cache's id, and what is asked), or has made of the same one."""
        if not len(body) or len(body) > ANSWER_BYTES_MAX:
            return make()
        key = (question, answer.last_id, xxh3_128_digest(body))
        found = self._batches.get(key)
        if found is None:
            found = self._batches[key] = make()
            if len(self._batches) > ANSWERS_MAX:
                self._batches.popitem(last=False)
            self._peak = max(self._peak, len(self._batches))
        return found

    def text(self, batch: EventBatch, way: str, make: Callable[[], Text]) -> Text:
        """Return what a way of telling makes of a batch, or has made of it."""
        texts = self._texts.get(batch)
        if texts is None:
            texts = self._texts[batch] = {}
        if way not in texts:
            texts[way] = make()
        return texts[way]

    def figures(self) -> dict[str, tuple[int, int, int]]:
        """Return used, limit and peak of what is kept."""
        return {"http_shared_answers": (len(self._batches), ANSWERS_MAX, self._peak)}
