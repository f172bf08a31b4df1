"""silu(gate) * up."""

from __future__ import annotations

from typing import Any

from infer_numba.kernels.arithmetic import first_lane, splat
from infer_numba.kernels.functions import silu
from infer_numba.kernels.rows import ELEMENTS, Element
from infer_numba.kernels.vector import LANES, fetch_add, field_reader
from infer_numba.layout import FIELDS, TICKET, SiluCall

ROWS = 4
"""Rows that a thread takes at once."""

read_call = field_reader(SiluCall)


def make_silu_mul(element: Element) -> Any:
    size, vload, vstore = element.size, element.vload, element.vstore
    load, store = element.load, element.store

    def silu_mul(args: int) -> None:
        call = read_call(args + FIELDS)
        start = fetch_add(args + TICKET, ROWS)
        while start < call.rows:
            for row in range(start, min(start + ROWS, call.rows)):
                gate = call.gate_up + row * call.pitch
                up = gate + size * call.size
                out = call.out + row * call.out_pitch
                index = 0
                while index + LANES <= call.size:
                    value = silu(vload(gate + size * index)) * vload(up + size * index)
                    vstore(out + size * index, value)
                    index += LANES
                while index < call.size:
                    single = first_lane(silu(splat(load(gate + size * index))))
                    store(out + size * index, single * load(up + size * index))
                    index += 1
            start = fetch_add(args + TICKET, ROWS)

    return silu_mul


def kernels() -> dict[str, Any]:
    return {f"silu_mul_{dtype}": make_silu_mul(element) for dtype, element in ELEMENTS.items()}
