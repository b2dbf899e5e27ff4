"""Clients' writes at one process: what waits becomes one group, one group a segment is in flight at a time."""

from collections.abc import Callable
from dataclasses import dataclass

from eventlog.arrays import Ints
from eventlog.errors import ClockAhead, MetadataUnavailable, NotEnoughReplicas, NotPrimary
from eventlog.ids import ID_STEP, last_of_run
from tests.sim.cores.effects import Effects
from tests.sim.cores.history import Value
from tests.sim.cores.packets import Submit, Submitted
from tests.sim.cores.state import State, ints


@dataclass(frozen=True, slots=True)
class _InFlight:
    value: Value
    requests: tuple[Submit, ...]


class Writes:
    """Groups of a process. `ask_lease` is called when the space of ids is used up."""

    def __init__(self, state: State, effects: Effects, *, ask_lease: Callable[[], None]) -> None:
        self._state = state
        self._effects = effects
        self._ask_lease = ask_lease
        self._waiting: dict[int, list[Submit]] = {}
        self._in_flight: dict[int, _InFlight] = {}
        self._is_closing = False

    def submit(self, request: Submit) -> None:
        """Take a write; it is answered once, or never."""
        self._waiting.setdefault(request.segment, []).append(request)
        if not self._is_closing:
            self._is_closing = True
            self._state.process.after(0, self._close)

    def _close(self) -> None:
        self._is_closing = False
        ready = [segment for segment in sorted(self._waiting) if segment not in self._in_flight]
        for segment in ready:
            if segment not in self._state.led:
                self._refuse(segment)
        ready = [segment for segment in ready if segment in self._state.led]
        while ready and not self._append(ready):
            ready = [segment for segment in ready if segment in self._waiting]

    def _refuse(self, segment: int) -> None:
        """Answer what waits for a segment: nothing of it was appended."""
        for request in self._waiting.pop(segment, ()):
            self._answer(request, Submitted(request=request.request))

    def _append(self, segments: list[int]) -> bool:
        """Stamp and register one group over these segments, in one step; False where one of them was refused."""
        state = self._state
        requests = {segment: tuple(self._waiting[segment]) for segment in segments}
        tokens = {segment: tuple(token for request in requests[segment] for token in request.tokens) for segment in segments}
        try:
            base = state.clock.next(sum(len(some) for some in tokens.values()))
        except (ClockAhead, MetadataUnavailable):
            state.world.reached["lease used up"] += 1
            self._ask_lease()
            for segment in segments:
                self._refuse(segment)
            return True
        values = []
        for segment in segments:
            last = last_of_run(base, len(tokens[segment]))
            values.append(Value(base, last, int(state.core.epochs[segment]), tokens[segment]))
            base = last + ID_STEP
        last_ids = ints(*(value.last for value in values))
        try:
            commands = state.core.append(ints(*segments), last_ids, now_ms=state.now_ms())
        except (NotPrimary, NotEnoughReplicas) as error:
            state.world.reached[error.code] += 1
            self._refuse(error.segment)
            return False
        for segment, value in zip(segments, values, strict=True):
            state.promises.begin(ints(segment), first_id=value.base, last_id=value.last)
            state.world.history.lead(state.number, segment, value.epoch)
            self._in_flight[segment] = _InFlight(value, requests[segment])
            del self._waiting[segment]
            state.world.tell("appended", segment=segment, host=state.host)
        group = [[value] for value in values]
        self._effects.append(ints(*segments), group, last_ids=last_ids)
        self._effects.run(commands, group=group)
        return True

    def committed(self, segments: Ints, watermarks: Ints) -> None:
        """Answer what is committed, one step with the watermark that readers see."""
        state = self._state
        for segment, watermark in zip(segments.tolist(), watermarks.tolist(), strict=True):
            if segment in state.led:
                state.promises.commit(ints(segment), watermark, upto=watermark)
            flying = self._in_flight.get(segment)
            if flying is None or flying.value.last > watermark:
                continue
            del self._in_flight[segment]
            state.world.history.lead(state.number, segment, flying.value.epoch)
            base = flying.value.base
            for request in flying.requests:
                self._answer(request, Submitted(request=request.request, base=base))
                base += len(request.tokens) * ID_STEP
        if self._waiting and not self._is_closing:
            self._is_closing = True
            state.process.after(0, self._close)

    def resigned(self, segments: Ints) -> None:
        """Answer what waits, and what is in flight: nobody here will know."""
        for segment in segments.tolist():
            self._refuse(segment)
            flying = self._in_flight.pop(segment, None)
            if flying is not None:
                self._state.world.reached["deposed with a tail"] += 1
                for request in flying.requests:
                    self._answer(request, Submitted(request=request.request, is_unknown=True))

    def _answer(self, request: Submit, answer: Submitted) -> None:
        self._state.world.send(self._state.host, request.client, answer)
