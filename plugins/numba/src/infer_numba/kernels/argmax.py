"""Index of the largest element of each row, the first one on ties; NaN counts as the largest."""

from __future__ import annotations

from typing import Any

import numpy as np

from infer_numba.kernels.arithmetic import is_nan, mask_bits, mask_or, max_lanes, splat, vmax
from infer_numba.kernels.rows import ELEMENTS, Element
from infer_numba.kernels.vector import LANES, fetch_add, field_reader, inline, store_i64
from infer_numba.layout import FIELDS, TICKET, ArgmaxCall

LOWEST = np.float32(-np.inf)
BLOCK = 64
"""Vectors whose maximum is compared at once; only the best block is searched for the index."""

read_call = field_reader(ArgmaxCall)


def make_argmax(element: Element) -> Any:
    size, vload, load = element.size, element.vload, element.load

    @inline
    def summit(row: int, first: int, end: int) -> tuple[Any, bool]:
        """Return the maximum of vectors first ... end - 1 and whether one of them has a NaN.

        Two chains of comparisons, which the processor overlaps.
        """
        even, odd = splat(LOWEST), splat(LOWEST)
        strange = is_nan(even)
        index = first
        while index + 2 <= end:
            a, b = vload(row + size * index * LANES), vload(row + size * (index + 1) * LANES)
            strange = mask_or(strange, mask_or(is_nan(a), is_nan(b)))
            even, odd = vmax(a, even), vmax(b, odd)
            index += 2
        if index < end:
            a = vload(row + size * index * LANES)
            strange = mask_or(strange, is_nan(a))
            even = vmax(a, even)
        return max_lanes(vmax(even, odd)), mask_bits(strange) != 0

    @inline
    def find(row: int, first: int, count: int, wanted: Any) -> int:
        """Return the first index from *first* on whose element is *wanted*."""
        index = first
        while index < count and load(row + size * index) != wanted:
            index += 1
        return index

    @inline
    def find_nan(row: int, first: int) -> int:
        """Return the first index from *first* on of a NaN, which is there."""
        index = first
        value = load(row + size * index)
        while value == value:
            index += 1
            value = load(row + size * index)
        return index

    @inline
    def largest(row: int, count: int) -> int:
        vectors = count // LANES
        best: Any = LOWEST
        best_first = 0
        for first in range(0, vectors, BLOCK):
            value, strange = summit(row, first, min(first + BLOCK, vectors))
            if strange:
                return find_nan(row, first * LANES)
            if value > best:
                best, best_first = value, first * LANES
        for index in range(vectors * LANES, count):
            value = load(row + size * index)
            if value != value:
                return index
            if value > best:
                best, best_first = value, index
        return find(row, best_first, count, best)

    def argmax(args: int) -> None:
        call = read_call(args + FIELDS)
        row = fetch_add(args + TICKET, 1)
        while row < call.rows:
            store_i64(call.out + 8 * row, largest(call.logits + row * call.pitch, call.size))
            row = fetch_add(args + TICKET, 1)

    return argmax


def kernels() -> dict[str, Any]:
    return {f"greedy_sample_{dtype}": make_argmax(element) for dtype, element in ELEMENTS.items()}
