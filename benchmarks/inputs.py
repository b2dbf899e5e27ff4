"""What is written: keys, values, and frames built from them. The same for every run: a fixed seed."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from eventlog.batch.build import Columns, WriteFrame, build_write

SEGMENTS = 256
KEYS_LIVE = 1_000_000
_SEED = 20_260_101


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Batches of one shape: an event of 100 B weighs some 123 B with its key and offsets."""

    batch: int
    value_bytes: int = 100
    alike: bool = False  # all keys are the same, so that all lie in one segment

    @property
    def label(self) -> str:
        size = f"{self.value_bytes // 1024} KiB" if self.value_bytes >= 1024 else f"{self.value_bytes} B"
        return f"{self.batch:,} x {size}, {'one segment' if self.alike else 'all segments'}"


def key_of(number: int) -> bytes:
    """Return a key of 14 bytes."""
    return b"k%013d" % number


def random_keys(count: int, *, seed: int, live: int = KEYS_LIVE) -> list[bytes]:
    """Return keys drawn at random from `live` different ones."""
    return [key_of(number) for number in np.random.default_rng(_SEED + seed).integers(0, live, count).tolist()]


def random_values(count: int, size: int, *, seed: int = 0) -> list[bytes]:
    """Return values of random bytes."""
    data = np.random.default_rng(_SEED + seed).integers(0, 256, count * size, np.uint8).tobytes()
    return [data[at : at + size] for at in range(0, count * size, size)]


def frame_of(keys: Sequence[bytes], values: Sequence[bytes]) -> WriteFrame:
    """Return puts as the body of a write."""
    return build_write(Columns(kinds=np.zeros(len(keys), np.uint8), keys=keys, values=values), segments=SEGMENTS)


def frames_of(load: Load, count: int, *, seed: int = 0) -> list[WriteFrame]:
    """Return different frames of one shape, to be written in turn."""
    values = random_values(load.batch, load.value_bytes, seed=seed)
    found = []
    for number in range(count):
        keys = [key_of(0)] * load.batch if load.alike else random_keys(load.batch, seed=seed + 1_000 * number)
        found.append(frame_of(keys, values))
    return found


def distinct_frames(load: Load) -> int:
    """Return how many frames to prepare: enough that none repeats within a group, few enough to be quick."""
    return max(2, min(64, 64_000_000 // (load.batch * (load.value_bytes + 23))))
