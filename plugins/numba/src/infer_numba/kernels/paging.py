"""Finding keys and values in the cache's pages, and asking for them ahead of time."""

from __future__ import annotations

from numba.extending import register_jitable

from infer_numba.kernels.rows import copy_row
from infer_numba.kernels.vector import (
    LANES,
    inline,
    load_i32,
    load_i64,
    outline,
    prefetch,
    store_i64,
)
from infer_numba.layout import CHUNK, KEYS, LINE, AttentionCall, Item, Plan, Scratch, row_bytes

register_jitable(row_bytes)


@inline
def cache_bytes(plan: Plan) -> int:
    """Bytes of a head's elements in the cache."""
    return plan.head_size * (4 - 2 * plan.cache_bf16)


@outline
def find_keys(
    call: AttentionCall,
    plan: Plan,
    request: int,
    first: int,
    count: int,
    head: int,
    keys: int,
    values: int,
    zeros: int,
) -> None:
    """Store the addresses of *count* keys and values of *head* from position *first* on.

    The rest of KEYS addresses point to zeros.
    """
    table = plan.table + request * plan.table_pitch
    base = call.cache + head * cache_bytes(plan)
    slot_bytes = plan.kv_heads * cache_bytes(plan)
    entry = first // plan.page
    offset = first - entry * plan.page
    address = base + load_i32(table + 4 * entry) * call.block + offset * slot_bytes
    for index in range(count):
        if offset == plan.page:
            entry += 1
            offset = 0
            address = base + load_i32(table + 4 * entry) * call.block
        store_i64(keys + 8 * index, address)
        store_i64(values + 8 * index, address + call.plane)
        address += slot_bytes
        offset += 1
    for index in range(count, KEYS):
        store_i64(keys + 8 * index, zeros)
        store_i64(values + 8 * index, zeros)


@inline
def fetch_rows(addresses: int, shift: int, size: int, first: int, end: int) -> None:
    """Ask for rows first ... end - 1, *shift* bytes past the addresses.

    A core waits for a couple of dozen cache lines at most; asking for a few at a time between
    computations keeps them coming without ever waiting to ask.
    """
    for index in range(first, end):
        address = load_i64(addresses + 8 * index) + shift
        for byte in range(0, size, LINE):
            prefetch(address + byte)


@inline
def row_limits(row: int, plan: Plan, position: int) -> tuple[int, int]:
    """Return the first and last position that the query of *row* sees."""
    last = position + row // plan.group
    first = 0
    if plan.window > 0:
        first = max(0, last - plan.window + 1)
    return first, last


@outline
def find_next(
    call: AttentionCall, plan: Plan, item: Item, key: int, stop: int, follower: Item, areas: Scratch
) -> tuple[int, int]:
    """Store the addresses of the block that comes after the one at position *key*.

    That is the item's own, or the first block of the item that this thread probably draws next.
    Returns how many keys it has, and for how many KV heads from the addresses' on.
    """
    request = item.request
    head, heads = item.head_first, item.head_end - item.head_first
    upcoming = key + KEYS
    if upcoming >= min(stop, item.chunk_end * CHUNK):
        request, stop = follower.request, follower.position + follower.tokens
        head, heads = follower.head_first, follower.head_end - follower.head_first
        first, _ = row_limits(0, plan, follower.position)
        upcoming = max(first, follower.chunk_first * CHUNK) // KEYS * KEYS
    count = max(0, min(KEYS, stop - upcoming))
    if count > 0:
        find_keys(
            call, plan, request, upcoming, count, head, areas.next_keys, areas.next_values,
            areas.zeros,
        )  # fmt: skip
    return count, heads


@outline
def stage_keys(plan: Plan, count: int, areas: Scratch) -> None:
    """Copy rows that end inside a vector, so that no load reads past a row."""
    size = 4 - 2 * plan.cache_bf16
    pitch = row_bytes(plan.head_size, LANES)
    for index in range(count):
        key, value = areas.keys + 8 * index, areas.values + 8 * index
        copy_row(areas.staged_keys + index * pitch, load_i64(key), plan.head_size, size)
        copy_row(areas.staged_values + index * pitch, load_i64(value), plan.head_size, size)
        store_i64(key, areas.staged_keys + index * pitch)
        store_i64(value, areas.staged_values + index * pitch)
