"""The arrays that columns are made of. All are one-dimensional; a function that is given one does not write to it."""

from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

NONE: Final[Ints] = np.zeros(0, np.int64)
"""No integers; read-only, so that it can be shared."""
NONE.flags.writeable = False
