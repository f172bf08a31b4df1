"""Elementary functions of vectors, accurate to a few units in the last place of float32."""

from __future__ import annotations

import math

from numba import float32

from infer_numba.kernels.vector import (
    choose,
    fma,
    inline,
    is_below,
    pow2_int,
    round_to_int,
    splat,
    vmax,
    vmin,
)

LOG2_E = math.log2(math.e)

_SMALLEST = -126.0
_LARGEST = 127.0
_EXP2 = [float32(math.log(2.0) ** n / math.factorial(n)) for n in range(8)]
