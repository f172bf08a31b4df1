"""RMS norm (Zhang and Sennrich, 2019), alone and after adding to the residual."""

from __future__ import annotations

from typing import Any

import numpy as np

from infer_numba.kernels.arithmetic import fma, splat, sum_lanes
from infer_numba.kernels.rows import ELEMENTS, Element
from infer_numba.kernels.vector import LANES, fetch_add, field_reader, inline, real, sqrt, to_f32
from infer_numba.layout import FIELDS, TICKET, NormCall

ZERO = np.float32(0.0)
ONE = np.float32(1.0)
ROWS = 16
"""Rows that a thread takes at once."""

read_call = field_reader(NormCall)


def make_norm(element: Element, summed: Element, add: bool) -> Any:
    """Make the kernel for weights and results of *element*, sums (or, without *add*, x) *summed*.

    What is added to the sums is of the results' dtype.
    """
    out_size, out_vload, out_vstore = element.size, element.vload, element.vstore
    out_load, out_store = element.load, element.store
    size, vload, vstore = summed.size, summed.vload, summed.vstore
    load, store = summed.load, summed.store

    @inline
    def add_row(x: int, residual: int, count: int) -> None:
        """residual += x, rounded to the residual's dtype."""
        index = 0
        while index + LANES <= count:
            place = residual + size * index
            vstore(place, vload(place) + out_vload(x + out_size * index))
            index += LANES
        while index < count:
            place = residual + size * index
            store(place, load(place) + out_load(x + out_size * index))
            index += 1

    @inline
    def sum_of_squares(x: int, count: int) -> Any:
        """Sum in four chains of vectors, then by halves."""
        first, second = splat(ZERO), splat(ZERO)
        third, fourth = splat(ZERO), splat(ZERO)
        index = 0
        while index + 4 * LANES <= count:
            a, b = vload(x + size * index), vload(x + size * (index + LANES))
            c, d = vload(x + size * (index + 2 * LANES)), vload(x + size * (index + 3 * LANES))
            first, second = fma(a, a, first), fma(b, b, second)
            third, fourth = fma(c, c, third), fma(d, d, fourth)
            index += 4 * LANES
        while index + LANES <= count:
            a = vload(x + size * index)
            first = fma(a, a, first)
            index += LANES
        total = sum_lanes((first + second) + (third + fourth))
        while index < count:
            single = load(x + size * index)
            total += single * single
            index += 1
        return total

    @inline
    def scale_row(x: int, weight: int, out: int, count: int, factor: float) -> None:
        index = 0
        while index + LANES <= count:
            scaled = vload(x + size * index) * splat(factor)
            out_vstore(out + out_size * index, scaled * out_vload(weight + out_size * index))
            index += LANES
        while index < count:
            single = load(x + size * index) * factor
            out_store(out + out_size * index, single * out_load(weight + out_size * index))
            index += 1

    def norm(args: int) -> None:
        call = read_call(args + FIELDS)
        eps = real(call.eps)
        start = fetch_add(args + TICKET, ROWS)
        while start < call.rows:
            for row in range(start, min(start + ROWS, call.rows)):
                x = call.x + row * call.x_pitch
                if add:
                    residual = call.residual + row * call.residual_pitch
                    add_row(x, residual, call.size)
                    x = residual
                mean = sum_of_squares(x, call.size) / to_f32(call.size)
                factor = ONE / sqrt(mean + eps)
                scale_row(x, call.weight, call.out + row * call.out_pitch, call.size, factor)
            start = fetch_add(args + TICKET, ROWS)

    return norm


def kernels() -> dict[str, Any]:
    found = {}
    for dtype, element in ELEMENTS.items():
        for summed in dict.fromkeys((dtype, "float32")):
            names = f"{summed}_{dtype}"
            found[f"rms_norm_{names}"] = make_norm(element, ELEMENTS[summed], add=False)
            found[f"add_rms_norm_{names}"] = make_norm(element, ELEMENTS[summed], add=True)
    return found
