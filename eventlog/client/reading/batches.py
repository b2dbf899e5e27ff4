"""Events as an application gets many at once: columns in the order of ids, or objects made from them without work per event."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints
from eventlog.batch.views import Strings
from eventlog.client.reading.columns import FrameForm, RowColumns, arrow_module, check_asked, items_of
from eventlog.client.reading.pieces import Piece
from eventlog.errors import InvalidArgument
from eventlog.events import Event, EventSource, Kind

if TYPE_CHECKING:
    import pyarrow as pa

    from eventlog.client.reading.frames import TableMaker

Order = Literal["id", "segment"]
EVENTS_AT_ONCE = 1_024  # made into objects: two thirds of the time that 8,000 at once take, whose bytes leave the processor's cache


class ArrowRows(RowColumns, Protocol):
    """Rows that are a table in Arrow: for `pyarrow`, `polars`, `duckdb` and whatever else takes the Arrow C interface."""

    def _form(self) -> FrameForm: ...

    def arrow(
        self,
        *,
        include: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        value_schema: "pa.Schema | pa.DataType | None" = None,
    ) -> "pa.RecordBatch":
        """Return the rows as a `pyarrow.RecordBatch`, of the same memory where nothing has to be moved or decoded.

        Its schema is that of every batch of the read, whatever the rows hold: id int64, time timestamp[us, UTC], segment int32,
        offset int64 (-1 for STATE), kind string, key string (binary where keys are bytes), value (string where values are JSON, binary
        where they are bytes, the type of the schema where they are Avro; null for REMOVED and EXPIRED), before likewise (null where
        there is none), headers map of string to binary (empty where there are none), and where a continuous query or a listener is
        read, change string.

        `include` says which of the optional columns `before` and `headers` are wanted, by default both; `columns` names all that are
        wanted, in their order. `value_schema` is the type that values of a JSON cache have, as a type or as the schema of their fields.

        Raises:
            InvalidArgument: there is no column of a name, or values cannot have the type.
            BadValue: a value does not fit `value_schema`: it has something else, a field more, or none where there has to be one.
        """
        return self._frame(include, columns, value_schema).batch(self)

    def _frame(self, include: Sequence[str] | None = None, columns: Sequence[str] | None = None, value_schema: Any = None) -> "TableMaker":
        from eventlog.client.reading import frames  # noqa: PLC0415 -- as in `arrow_module`

        return frames.frame_of(self._form(), frames.choice_of(include, columns, value_schema))

    def __reduce__(self) -> NoReturn:
        raise TypeError(f"{self!r} cannot be pickled: send its arrow()")

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.arrow().__arrow_c_array__(requested_schema)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._frame().stream([self.arrow()]).__arrow_c_stream__(requested_schema)


class EventBatch(ArrowRows):
    """Some events as columns, item i of each is event i. Arrays are read-only views where nothing had to be moved.

    `keys`, `values`, `before` and `headers` have `offsets` (int32, one more than events) and `data`; `before` and `headers` are None
    where no event has one. `before` is meaningful where the kind is not CREATED. `last_id` is where to go on: everything up to it,
    also what did not match, has been delivered with this batch and those before it. Of columns that were not asked for where some were,
    `keys`, `values`, `before` and `headers` raise InvalidArgument.
    """

    def __init__(self, piece: Piece, source: EventSource, *, last_id: int, order: Order = "id") -> None:
        self.source = source
        self.last_id = last_id
        self._piece = piece
        is_moved = order == "id" and not piece.is_ordered
        self._order: Ints | None = np.argsort(piece.ids, kind="stable") if is_moved else None
        self._is_grouped = order == "segment" and not piece.is_ordered

    def __len__(self) -> int:
        return len(self._piece)

    def __repr__(self) -> str:
        return f"<eventlog.EventBatch of cache {self.source.cache!r}: {len(self)} events, up to id {self.last_id}>"

    def _moved(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        return column if self._order is None else column[self._order]

    def _moved_strings(self, column: Strings) -> Strings:
        return column if self._order is None else arrow_module().take(column, self._order)

    @cached_property
    def ids(self) -> Ints:
        """Ids, int64."""
        return self._moved(self._piece.ids)

    @cached_property
    def kinds(self) -> npt.NDArray[np.uint8]:
        """Kinds as numbers of `Kind`, uint8."""
        return self._moved(self._piece.kinds)

    @cached_property
    def segments(self) -> npt.NDArray[np.uint16]:
        """Segments, uint16."""
        return self._moved(self._piece.spread(self._piece.segments.astype(np.uint16)))

    @cached_property
    def offsets(self) -> Ints:
        """Offsets within the segment, int64."""
        return self._moved(self._piece.climb(self._piece.first_offsets, 1))

    @cached_property
    def epochs(self) -> npt.NDArray[np.uint32]:
        """Epochs under which the events were written, uint32."""
        return self._moved(self._piece.spread(self._piece.epochs.astype(np.uint32)))

    @cached_property
    def keys(self) -> Strings:
        """Keys as bytes."""
        check_asked("key", self.source.columns)
        return self._moved_strings(self._piece.keys)

    @cached_property
    def values(self) -> Strings:
        """Values as bytes; empty for REMOVED and EXPIRED."""
        check_asked("value", self.source.columns)
        return self._moved_strings(self._piece.values)

    @cached_property
    def before(self) -> Strings | None:
        """Values that were replaced or removed, if the cache keeps them."""
        check_asked("before", self.source.columns)
        return None if self._piece.before is None else self._moved_strings(self._piece.before)

    @property
    def has_before(self) -> npt.NDArray[np.bool_]:
        """Which events have a before-image."""
        return np.zeros(len(self), np.bool_) if self.before is None else self._has_image(self.kinds, self.before)

    @cached_property
    def expiry(self) -> Ints:
        """When what each event wrote expires, milliseconds since 2020, 0 for never, int64."""
        return np.zeros(len(self), np.int64) if self._piece.expiry is None else self._moved(self._piece.expiry)

    def _has_image(self, kinds: npt.NDArray[np.uint8], before: Strings) -> npt.NDArray[np.bool_]:
        """Return which events have a before-image; none has one that was written while the cache kept none, and then it is no JSON."""
        found: npt.NDArray[np.bool_] = kinds != Kind.CREATED
        if self.source.json_values or self.source.values is not None:
            found &= before.offsets[1:] > before.offsets[:-1]
        return found

    @cached_property
    def headers(self) -> Strings | None:
        """Headers, encoded; `eventlog.events.decode_headers` reads one."""
        check_asked("headers", self.source.columns)
        return None if self._piece.headers is None else self._moved_strings(self._piece.headers)

    @cached_property
    def changes(self) -> npt.NDArray[np.uint8] | None:
        """What each event is to a continuous query, numbers of `Change`, uint8; None where none is read."""
        return None if self._piece.changes is None else self._moved(self._piece.changes)

    @property
    def position(self) -> str:
        """The token to go on with after this batch."""
        return self.source.position_at(self.last_id)

    def _form(self) -> FrameForm:
        source = self.source
        return FrameForm(source.text_keys, source.json_values, source.values, source.has_changes, columns=source.columns)

    def showing(self, columns: tuple[str, ...] | None) -> "EventBatch":
        """Return it with some of its columns, as if no others had been asked for."""
        source = msgspec.structs.replace(self.source, columns=columns)
        return EventBatch(self._piece, source, last_id=self.last_id, order="segment" if self._is_grouped else "id")

    def events(self) -> Iterator[Event]:
        """Yield the events as objects. All work per event is done in C, some hundred events at a time: they stay in the cache.

        Grouped by segment (`order="segment"`) they have no `position`: behind none of them everything up to its id has been delivered.
        """
        piece, order, asked = self._piece, self._order, self.source.columns
        if asked is not None:
            check_asked("key", asked)
            check_asked("value", asked)
        source = msgspec.structs.replace(self.source, position_at=_no_position) if self._is_grouped else self.source
        numbers = (self.ids, self.kinds, self.segments, self.offsets)
        keys, values = items_of(piece.keys, order), items_of(piece.values, order)
        images, heads = (
            column if asked is None or name in asked else None for name, column in (("before", piece.before), ("headers", piece.headers))
        )
        has_more = images is not None or heads is not None
        before = None if images is None else items_of(images, order, valid=self._has_image(piece.kinds, images))
        headers = None if heads is None else items_of(heads, order)
        changes = self.changes
        has_more = has_more or changes is not None

        def part(low: int) -> Iterator[Event]:
            high = low + EVENTS_AT_ONCE
            ids, kinds, segments, offsets = [column[low:high].tolist() for column in numbers]
            columns: list[Any] = [ids, kinds, keys(low, high), values(low, high), segments, offsets, repeat(source)]
            if has_more:
                columns.append(repeat(None) if before is None else before(low, high))
            if headers is not None:
                columns.append(headers(low, high))
            if changes is not None:
                columns += ([] if headers is not None else [repeat(None)]) + [changes[low:high].tolist()]
            return map(Event, *columns)

        return chain.from_iterable(map(part, range(0, len(piece), EVENTS_AT_ONCE)))

    def __iter__(self) -> Iterator[Event]:
        return self.events()


def _no_position(id_: int) -> str:
    raise InvalidArgument(why=f"event {id_} is one of a batch that is grouped by segment; go on behind all of it, at `batch.position`")
