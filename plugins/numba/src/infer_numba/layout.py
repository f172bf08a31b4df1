"""What kernels are called with: shared by the code that calls and the code that is compiled.

A kernel takes the address of a block of 64-bit words. The first two belong to it: counters, zero
at the call, from which threads draw work and their own numbers. The rest are the fields of one of
the tuples below, floats as the bits of a float64.
"""

from __future__ import annotations

from typing import NamedTuple

TICKET = 0
THREAD = 8
FIELDS = 16
"""Byte offsets of the two counters and of the fields."""

KEYS = 64
"""Keys that attention processes at once."""

CHUNK = 512
"""Keys after which attention starts a new partial result, at fixed positions of a request."""

LINE = 64
"""Bytes of a cache line."""

TILE_ROWS = 6
"""Rows of a matrix product that are kept in registers at once."""


def tile_vectors(lanes: int) -> int:
    """Vectors of columns that are kept in registers at once, for registers of *lanes* floats."""
    return 4 if lanes == 16 else 2


class NormCall(NamedTuple):
    """``rms_norm`` and ``add_rms_norm``; pitches are bytes from row to row."""

    x: int
    x_pitch: int
    residual: int
    residual_pitch: int
    weight: int
    out: int
    out_pitch: int
    rows: int
    size: int
    eps: float


class SiluCall(NamedTuple):
    """``silu_mul``; the upper halves of the input's rows start at *size* elements."""

    gate_up: int
    pitch: int
    out: int
    out_pitch: int
    rows: int
    size: int


class RopeCall(NamedTuple):
    """``rope_store_kv``; *_token* and *_head* are strides in bytes."""

    query: int
    query_token: int
    query_head: int
    key: int
    key_token: int
    key_head: int
    value: int
    value_token: int
    value_head: int
    cos_sin: int
    cos_sin_row: int
    positions: int
    cache: int
    plane: int
    block: int
    slots: int
    tokens: int
    heads: int
    kv_heads: int
    head_size: int
    half: int
    page: int


class ArgmaxCall(NamedTuple):
    """``greedy_sample``; out holds int64."""

    logits: int
    pitch: int
    out: int
    rows: int
    size: int


class LinearCall(NamedTuple):
    """``linear_X_W`` for x of dtype X and weights of dtype W; pitches are bytes from row to row.

    weights: *panels* panels of *steps* words a column. bias: float32 or 0. scratch: for each thread
    *scratch_pitch* bytes, for a tile of float32 and a panel that is widened. part_rows: rows that
    a thread computes at once. ahead: how many panels further a thread's next one is.
    """

    x: int
    x_pitch: int
    weights: int
    bias: int
    out: int
    out_pitch: int
    rows: int
    steps: int
    columns: int
    panels: int
    scratch: int
    scratch_pitch: int
    part_rows: int
    ahead: int


class AttentionCall(NamedTuple):
    """One layer's attention; strides in bytes. plan: address of a :class:`Plan`."""

    plan: int
    query: int
    query_token: int
    query_head: int
    cache: int
    plane: int
    block: int
    out: int
    out_token: int
    out_head: int


class Plan(NamedTuple):
    """What all layers of a step share.

    items: address of *num_items* items. table: int32 block table, *table_pitch* bytes a request.
    scale multiplies scores before the cap, *cap* after it; both make the exponent one of 2.
    scratch: a thread's areas, *scratch_pitch* bytes each, for tiles of up to *rows* rows.
    parts, counters: partial results of split requests, *part_bytes* each, and how many are done.
    threads: how many work on the items.
    """

    items: int
    num_items: int
    table: int
    table_pitch: int
    kv_heads: int
    group: int
    head_size: int
    page: int
    window: int
    scale: float
    cap: float
    query_bf16: int
    cache_bf16: int
    scratch: int
    scratch_pitch: int
    rows: int
    parts: int
    part_bytes: int
    counters: int
    threads: int


class Item(NamedTuple):
    """A tile of query tokens of one request, for KV heads head_first ... head_end - 1.

    It covers the chunks of keys chunk_first ... chunk_end - 1. With *parts* > 1 the request is
    split: the item is one chunk, number *part* of the partial results from *part_first* on.
    """

    token: int
    tokens: int
    position: int
    request: int
    head_first: int
    head_end: int
    chunk_first: int
    chunk_end: int
    parts: int
    part_first: int
    part: int


class Scratch(NamedTuple):
    """Where a thread keeps what it works on; *end* is the first byte past it.

    keys, values: addresses of the present block's rows; next_keys: of the following block's.
    """

    keys: int
    values: int
    next_keys: int
    next_values: int
    packed_keys: int
    packed_values: int
    scores: int
    weights: int
    factors: int
    query: int
    output: int
    maxima: int
    sums: int
    total: int
    total_maxima: int
    total_sums: int
    staged_keys: int
    staged_values: int
    zeros: int
    end: int


def row_bytes(head_size: int, lanes: int) -> int:
    """Bytes of a head's elements as float32, rounded up to two vectors."""
    return (4 * head_size + 8 * lanes - 1) // (8 * lanes) * (8 * lanes)


def part_bytes(head_size: int, rows: int, lanes: int) -> int:
    """Bytes of a partial result: output, sums and maxima of *rows* rows."""
    maxima = (4 * rows + LINE - 1) // LINE * LINE
    return rows * (row_bytes(head_size, lanes) + 4 * lanes) + maxima


def scratch_areas(base: int, head_size: int, rows: int, lanes: int) -> Scratch:
    """Lay out a thread's areas from address *base* on, each whole cache lines."""
    row = row_bytes(head_size, lanes)
    addresses = 8 * KEYS
    block = row * KEYS
    tile = 4 * KEYS * 8
    column = (4 * rows + LINE - 1) // LINE * LINE
    sums = (4 * lanes * rows + LINE - 1) // LINE * LINE
    next_keys = base + 2 * addresses
    packed_keys = next_keys + 2 * addresses
    packed_values = packed_keys + block
    scores = packed_values + block
    weights = scores + tile
    factors = weights + tile
    query = factors + LINE
    output = query + row * rows
    maxima = output + row * rows
    total = maxima + column + sums
    total_maxima = total + row * rows
    staged_keys = total_maxima + column + sums
    staged_values = staged_keys + block
    zeros = staged_values + block
    return Scratch(
        base,
        base + addresses,
        next_keys,
        next_keys + addresses,
        packed_keys,
        packed_values,
        scores,
        weights,
        factors,
        query,
        output,
        maxima,
        maxima + column,
        total,
        total_maxima,
        total_maxima + column,
        staged_keys,
        staged_values,
        zeros,
        (zeros + row + LINE - 1) // LINE * LINE,
    )
