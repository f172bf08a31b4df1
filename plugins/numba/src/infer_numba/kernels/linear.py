"""Linear layers, y = x @ W.T + b, over weights packed in panels of PANEL output features.

A panel is [steps, PANEL] words, contiguous: a pass over it is one stream from memory. Threads
draw parts, each a panel times some rows. While a part is computed, lines of the panel that is
needed next are asked for, a few per step, so that waiting for memory overlaps with arithmetic.
"""

from __future__ import annotations

from typing import Any

from infer_numba.kernels.rows import ELEMENTS
from infer_numba.kernels.tiles import (
    FLOATS,
    HAS_PAIRS,
    PAIRS,
    TILE_VECTORS,
    WIDENED,
    Words,
    make_rows_product,
    widen_pairs,
)
from infer_numba.kernels.vector import (
    BYTES,
    LANES,
    fetch_add,
    field_reader,
    inline,
    load_f32,
    outline,
    vload_f32,
)
from infer_numba.layout import FIELDS, THREAD, TICKET, TILE_ROWS, LinearCall

PANEL = TILE_VECTORS * LANES
TILE_PITCH = TILE_VECTORS * BYTES
LOOK_AHEAD = 16
"""Steps by which a single pass over a panel runs ahead of itself."""

read_call = field_reader(LinearCall)


def make_linear(words: Words, dtype: str) -> Any:
    """Make the kernel for outputs of *dtype*."""
    element = ELEMENTS[dtype]
    size, vstore, store = element.size, element.vstore, element.store
    widened = words is WIDENED
    few = 2 * TILE_ROWS if widened else TILE_ROWS
    stream = make_rows_product(words, prefetches=TILE_VECTORS)
    block = make_rows_product(FLOATS if widened else words, prefetches=1)

    @inline
    def store_tile(tile: int, bias: int, out: int, out_pitch: int, rows: int, count: int) -> None:
        """Add the bias and store *count* columns of the tile's rows in the output's dtype."""
        for row in range(rows):
            source, target = tile + row * TILE_PITCH, out + row * out_pitch
            index = 0
            while index + LANES <= count:
                value = vload_f32(source + 4 * index)
                if bias != 0:
                    value = value + vload_f32(bias + 4 * index)
                vstore(target + size * index, value)
                index += LANES
            while index < count:
                single = load_f32(source + 4 * index)
                if bias != 0:
                    single += load_f32(bias + 4 * index)
                store(target + size * index, single)
                index += 1

    @inline
    def widen_panel(source: int, target: int, steps: int) -> None:
        """Write a panel of pairs as float32, which many rows then read without more work."""
        for step in range(steps):
            for vector in range(TILE_VECTORS):
                low = target + 2 * step * TILE_PITCH + vector * BYTES
                place = source + step * TILE_PITCH + vector * BYTES
                widen_pairs(place, low, low + TILE_PITCH)

    @outline
    def compute_part(call: LinearCall, panel: int, first: int, end: int, tile: int) -> None:
        """Compute rows first ... end - 1 of one panel."""
        panel_bytes = call.steps * TILE_PITCH
        weights = call.weights + panel * panel_bytes
        column = panel * PANEL
        count = min(PANEL, call.columns - column)
        bias = 0
        if call.bias != 0:
            bias = call.bias + 4 * column
        following = weights
        if panel + call.ahead < call.panels:
            following += call.ahead * panel_bytes
        many = call.rows > few
        steps = call.steps
        if many and widened:
            panel_floats = tile + TILE_ROWS * TILE_PITCH
            widen_panel(weights, panel_floats, steps)
            weights, steps = panel_floats, 2 * steps
        for row in range(first, end, TILE_ROWS):
            rows = min(TILE_ROWS, end - row)
            x = call.x + row * call.x_pitch
            if many:
                share = (row - first) // TILE_ROWS % TILE_VECTORS
                block(x, call.x_pitch, weights, steps, tile, following + share * BYTES, rows)
            else:
                ahead = weights + LOOK_AHEAD * TILE_PITCH
                stream(x, call.x_pitch, weights, steps, tile, ahead, rows)
            out = call.out + row * call.out_pitch + size * column
            store_tile(tile, bias, out, call.out_pitch, rows, count)

    def linear(args: int) -> None:
        call = read_call(args + FIELDS)
        tile = call.scratch + fetch_add(args + THREAD, 1) * call.scratch_pitch
        parts = (call.rows + call.part_rows - 1) // call.part_rows
        ticket = fetch_add(args + TICKET, 1)
        while ticket < call.panels * parts:
            panel = ticket // parts
            first = (ticket - panel * parts) * call.part_rows
            compute_part(call, panel, first, min(first + call.part_rows, call.rows), tile)
            ticket = fetch_add(args + TICKET, 1)

    return linear


def kernels() -> dict[str, Any]:
    found = {
        "linear_float32_float32": make_linear(FLOATS, "float32"),
        "linear_float32_bfloat16": make_linear(WIDENED, "float32"),
    }
    if HAS_PAIRS:
        found["linear_bfloat16_bfloat16"] = make_linear(PAIRS, "bfloat16")
    return found
