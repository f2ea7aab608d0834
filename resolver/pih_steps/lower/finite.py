"""Are a checkpoint's values numbers? NaN and infinity in a weight make every answer nonsense, and stop nothing.

Of blocks it is their scales and minima that can be none: the rest are integers.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pih_runtime.errors import BuildError
from pih_steps.lower.formats import BLOCKS, head_bytes

# format → (bytes of a block that are floating point, how to read them, bits of the exponent: all set is no number)
_FLOATS = {
    "f32": (4, "<u4", 0x7F800000),
    "f16": (2, "<u2", 0x7C00),
    "bf16": (2, "<u2", 0x7F80),
    "q4_1": (4, "<u2", 0x7C00),
    "q8_0": (2, "<u2", 0x7C00),
    "int8": (0, "<u4", 0x7F800000),
}


def check_finite(raw: npt.NDArray[np.uint8], format_: str, tensor: str, where: str) -> None:
    """Raise BuildError unless all values of these rows, [rows, bytes of a row], are finite."""
    head = head_bytes(format_)
    floats, kind, exponent = _FLOATS[format_]
    blocks = raw[:, head:].reshape(len(raw), -1, BLOCKS[format_][1])[:, :, :floats]
    for part in (raw[:, :head], blocks):
        words = np.ascontiguousarray(part).view(kind)
        if ((words & exponent) == exponent).any():
            raise BuildError(
                f"tensor {tensor} has values that are no finite numbers",
                where=where,
                fix="take a sound checkpoint: every answer of this one would be nonsense",
            )
