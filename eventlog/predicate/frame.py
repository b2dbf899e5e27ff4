"""Events on the way through a predicate: their columns, and what was made of them so far, so that nothing is decoded twice."""

from collections.abc import Iterable
from typing import Any, Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from eventlog.arrays import Ints, Mask
from eventlog.batch.columns import EventColumns
from eventlog.batch.texts import Texts
from eventlog.events import Kind
from eventlog.predicate.tree import Root, Step

Steps = tuple[Step, ...]
_WITHOUT_VALUE = (Kind.REMOVED, Kind.EXPIRED)
_WITHOUT_BEFORE = (Kind.CREATED, Kind.STATE)


class Fields(Protocol):
    """Decodes fields of values in one format."""

    def decode(self, texts: Texts) -> list[Any]:
        """Return one object for each value; an empty one, and one that is none of this format, is None."""
        ...

    def values(self, objects: list[Any], path: Steps) -> list[Any]:
        """Return the field at `path` of each object, None where there is none."""
        ...


class BytesFields:
    """Values that are bytes: nothing is in them but themselves."""

    def decode(self, texts: Texts) -> list[Any]:
        return list(texts.to_list())

    def values(self, objects: list[Any], path: Steps) -> list[Any]:
        assert not path, "bytes have no fields"
        return objects


class DecodePlan:
    """What is decoded of the values that a predicate looks at. `promoted`: the name under which a path may stand beside the values."""

    __slots__ = ("fields", "is_bytes", "promoted")

    def __init__(self, fields: dict[Root, Fields], *, promoted: dict[Steps, str], is_bytes: bool) -> None:
        self.fields = fields
        self.promoted = promoted
        self.is_bytes = is_bytes


class Frame:
    """Some events and their lists. With `is_old`, `value` means the before-image: what the entry was before the change."""

    __slots__ = ("_known", "_plan", "_promoted", "events", "is_old")

    def __init__(self, events: EventColumns, plan: DecodePlan, *, is_old: bool) -> None:
        self.events = events
        self.is_old = is_old
        self._plan = plan
        self._known: dict[Any, list[Any]] = {}
        self._promoted: dict[str, Texts | None] = {}

    def __len__(self) -> int:
        return len(self.events)

    def take(self, rows: Ints) -> "Frame":
        """Return some of the events, with what was made of them."""
        taken = Frame(self.events.take(rows), self._plan, is_old=self.is_old)
        if self._known:
            chosen = rows.tolist()
            taken._known = {name: [known[row] for row in chosen] for name, known in self._known.items()}
        return taken

    def has(self, root: Root) -> Mask:
        """Return which events have an image."""
        lacking = _WITHOUT_BEFORE if self.is_before(root) else _WITHOUT_VALUE
        kinds = self.events.kinds
        return np.asarray((kinds != lacking[0]) & (kinds != lacking[1]))

    def is_before(self, root: Root) -> bool:
        """Return whether an image is read from the before-images."""
        return root == "before" or self.is_old

    def texts(self, root: Root) -> Texts | None:
        """Return an image's bytes; None where no event has one."""
        return self.events.before if self.is_before(root) else self.events.values

    def has_promoted(self, paths: frozenset[Steps] | None) -> bool:
        """Return whether all of these fields of the value stand beside the values."""
        return bool(paths) and all(self.promoted(path) is not None for path in paths or ())

    def promoted(self, path: Steps) -> Texts | None:
        """Return the JSON of a field of the value, empty where there is none; None where it does not stand beside the values."""
        name = None if self.is_old else self._plan.promoted.get(path)
        if name is None:
            return None
        if name not in self._promoted:
            self._promoted[name] = self.events.promoted(name)
        return self._promoted[name]

    def key_list(self) -> list[bytes]:
        return self._once("keys", self.events.keys.to_list)

    def headers(self) -> list[bytes]:
        """Return the encoded headers, empty for none."""
        found = self.events.headers
        return [b""] * len(self) if found is None else self._once("headers", found.to_list)

    def path(self, root: Root, path: Steps) -> list[Any]:
        """Return a field of an image of every event, None where there is none."""
        before = self.is_before(root)
        beside = None if before else self.promoted(path)
        if beside is not None:
            return self._once((before, path), lambda: decode_texts(beside.to_list()))
        return self._once((before, path), lambda: self._decoded(root, path))

    def _decoded(self, root: Root, path: Steps) -> list[Any]:
        fields = self._plan.fields[root]
        return fields.values(self._once(("objects", self.is_before(root)), lambda: self._objects(root, fields)), path)

    def _objects(self, root: Root, fields: Fields) -> list[Any]:
        texts = self.texts(root)
        if texts is None:
            return [None] * len(self)
        has = self.has(root)
        if self._plan.is_bytes:  # bytes of no length are a value
            return [item if own else None for item, own in zip(fields.decode(texts), has.tolist(), strict=True)]
        return fields.decode(Texts(data=texts.data, starts=texts.starts, sizes=np.where(has, texts.sizes, 0)))

    def _once(self, name: Any, make: Any) -> list[Any]:
        known = self._known.get(name)
        if known is None:
            known = self._known[name] = make()
        return known


_decode_list = msgspec.json.Decoder(list[Any]).decode


def decode_texts(texts: Iterable[bytes]) -> list[Any]:
    """Return what many short JSON texts say, at once; an empty one is None."""
    found: list[Any] = _decode_list(b"[" + b",".join([text or b"null" for text in texts]) + b"]")
    return found


class _Bare:
    """Events of which nothing is known but their kinds."""

    def __init__(self, kinds: npt.NDArray[np.uint8]) -> None:
        self.kinds = kinds

    def __len__(self) -> int:
        return len(self.kinds)

    def take(self, rows: npt.NDArray[np.int64]) -> "_Bare":
        return _Bare(self.kinds[rows])


def bare_frame(kinds: npt.NDArray[np.uint8]) -> Frame:
    """Return events of which nothing is known but their kinds, for conditions that ask for nothing else."""
    return Frame(_Bare(kinds), DecodePlan({}, promoted={}, is_bytes=False), is_old=False)  # type: ignore[arg-type]  # all that is asked for
