"""Where kernels find their arguments: shared by the code that calls and the code that is called.

A kernel takes the address of a block of 64-bit words. The first two words belong to it: counters,
zero at the call, from which threads draw work and their own numbers.
"""

from __future__ import annotations

TICKET = 0
THREAD = 8

KEYS = 64
"""Keys that attention processes at once."""

CHUNK = 512
"""Keys after which attention starts a new partial result, at fixed positions of a request."""

# Byte offsets in attention's argument block.
ATTN_PLAN = 16
ATTN_QUERY = 24
ATTN_QUERY_TOKEN = 32
ATTN_QUERY_HEAD = 40
ATTN_CACHE = 48
ATTN_CACHE_PLANE = 56
ATTN_CACHE_BLOCK = 64
ATTN_OUT = 72
ATTN_OUT_TOKEN = 80
ATTN_OUT_HEAD = 88

# Byte offsets in attention's plan.
PLAN_ITEMS = 0
PLAN_COUNT = 8
PLAN_TABLE = 16
PLAN_TABLE_PITCH = 24
PLAN_KV_HEADS = 32
PLAN_GROUP = 40
PLAN_HEAD_SIZE = 48
PLAN_PAGE = 56
PLAN_WINDOW = 64
PLAN_SCALE = 72
PLAN_CAP = 80
PLAN_QUERY_BF16 = 88
PLAN_CACHE_BF16 = 96
PLAN_SCRATCH = 104
PLAN_SCRATCH_PITCH = 112
PLAN_PARTS = 120
PLAN_PART_BYTES = 128
PLAN_COUNTERS = 136
PLAN_ROWS = 144

# An item of attention's plan: a tile of query tokens of one request for some KV heads, over all
# chunks of keys that it sees or, when its request is split, over one of them.
ITEM_TOKEN = 0
ITEM_TOKENS = 8
ITEM_POSITION = 16
ITEM_REQUEST = 24
ITEM_HEAD_FIRST = 32
ITEM_HEAD_END = 40
ITEM_CHUNK_FIRST = 48
ITEM_CHUNK_END = 56
ITEM_PARTS = 64
ITEM_PART_FIRST = 72
ITEM_PART = 80
ITEM_BYTES = 88


def scratch_offsets(head_size: int, rows: int, lanes: int) -> tuple[int, ...]:
    """Return byte offsets of a thread's areas for tiles of at most *rows* rows, then their size.

    The areas: addresses of the keys, addresses of the values, packed keys, packed values, scores,
    weights, rescale factors, query rows, running output, its maxima, its sums, total output, its
    maxima, its sums, staged keys, staged values, a row of zeros. Every area is rounded up to a
    cache line; words are counted as float32, which bounds pairs too.
    """
    vector = 4 * lanes
    line = 64
    row = (4 * head_size + 2 * vector - 1) // (2 * vector) * (2 * vector)
    line_rows = (4 * rows + line - 1) // line * line
    keys = 0
    values = keys + 8 * KEYS
    packed_keys = values + 24 * KEYS
    packed_values = packed_keys + row * KEYS
    scores = packed_values + row * KEYS
    weights = scores + 4 * KEYS * 8
    factors = weights + 4 * KEYS * 8
    query = factors + line
    output = query + row * rows
    maxima = output + row * rows
    sums = maxima + line_rows
    total = sums + vector * rows
    total_maxima = total + row * rows
    total_sums = total_maxima + line_rows
    staged_keys = total_sums + vector * rows
    staged_values = staged_keys + row * KEYS
    zeros = staged_values + row * KEYS
    end = (zeros + row + line - 1) // line * line
    return (
        keys,
        values,
        packed_keys,
        packed_values,
        scores,
        weights,
        factors,
        query,
        output,
        maxima,
        sums,
        total,
        total_maxima,
        total_sums,
        staged_keys,
        staged_values,
        zeros,
        end,
    )
