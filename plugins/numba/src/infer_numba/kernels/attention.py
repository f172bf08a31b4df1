"""Paged attention for tiles of query tokens, one kernel for prefill and decode.

FlashAttention's online softmax (Dao et al., 2022) over blocks of KEYS keys, packed from their
pages once per tile; all query heads of a KV head share them. Keys start a new partial result every
CHUNK positions; partial results are merged in order of position, so that threads may compute the
chunks of a long request apart. What a query gets depends on its own request and position only:
blocks and chunks lie at fixed positions, and a key that it does not see adds exactly nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba.extending import register_jitable

from infer_numba.kernels.arithmetic import (
    choose,
    first_lane,
    fma,
    iadd,
    iota,
    is_less,
    isplat,
    mask_or,
    max_lanes,
    splat,
    sum_lanes,
    vmax,
)
from infer_numba.kernels.functions import exp2, tanh
from infer_numba.kernels.paging import (
    cache_bytes,
    fetch_rows,
    find_keys,
    find_next,
    row_limits,
    stage_keys,
)
from infer_numba.kernels.rows import copy_row, store_row, widen_row
from infer_numba.kernels.tiles import (
    FLOATS,
    HAS_PAIRS,
    PAIRS,
    join_pairs,
    make_product,
    make_transpose,
)
from infer_numba.kernels.vector import (
    BYTES,
    LANES,
    fetch_add,
    field_reader,
    inline,
    load_f32,
    load_i64,
    outline,
    real,
    store_bf16,
    store_f32,
    store_i64,
    vload_bf16,
    vload_f32,
    vstore_bf16,
    vstore_f32,
)
from infer_numba.layout import (
    CHUNK,
    FIELDS,
    KEYS,
    THREAD,
    TICKET,
    TILE_ROWS,
    AttentionCall,
    Item,
    Plan,
    Scratch,
    row_bytes,
    scratch_areas,
)

SCORE_PITCH = 4 * KEYS
KEY_VECTORS = KEYS // LANES
ITEM_BYTES = 8 * len(Item._fields)
NOTHING = np.float32(-1.0e30)
NEVER = np.float32(-np.inf)
ZERO = np.float32(0.0)
ONE = np.float32(1.0)

register_jitable(scratch_areas)
read_call = field_reader(AttentionCall)
read_plan = field_reader(Plan)
read_item = field_reader(Item)
transpose_words = make_transpose(widen=False)
transpose_widened = make_transpose(widen=True)


@inline
def clear(rows: int, pitch: int, output: int, maxima: int, sums: int) -> None:
    for row in range(rows):
        store_f32(maxima + 4 * row, NOTHING)
        vstore_f32(sums + BYTES * row, splat(ZERO))
        for byte in range(0, pitch, BYTES):
            vstore_f32(output + row * pitch + byte, splat(ZERO))


@outline
def merge(rows: int, pitch: int, areas: Scratch, output: int, maxima: int, sums: int) -> None:
    """Add a later partial result to the total."""
    for row in range(rows):
        mine = load_f32(areas.total_maxima + 4 * row)
        other = load_f32(maxima + 4 * row)
        now = max(mine, other)
        keep = exp2(splat(mine - now))
        gain = exp2(splat(other - now))
        store_f32(areas.total_maxima + 4 * row, now)
        total = vload_f32(areas.total_sums + BYTES * row) * keep
        total = fma(vload_f32(sums + BYTES * row), gain, total)
        vstore_f32(areas.total_sums + BYTES * row, total)
        for byte in range(row * pitch, (row + 1) * pitch, BYTES):
            kept = vload_f32(areas.total + byte) * keep
            vstore_f32(areas.total + byte, fma(vload_f32(output + byte), gain, kept))


@outline
def finish(call: AttentionCall, plan: Plan, item: Item, total: int, sums: int) -> None:
    """Divide by the sums and store the rows in the output's dtype."""
    pitch = row_bytes(plan.head_size, LANES)
    row = 0
    for head in range(item.head_first, item.head_end):
        for index in range(item.tokens * plan.group):
            target = (
                call.out
                + (item.token + index // plan.group) * call.out_token
                + (head * plan.group + index % plan.group) * call.out_head
            )
            inverse = ONE / sum_lanes(vload_f32(sums + BYTES * row))
            store_row(target, total + row * pitch, inverse, plan.head_size, plan.query_bf16)
            row += 1


@inline
def save_part(rows: int, pitch: int, part: int, areas: Scratch) -> None:
    copy_row(part, areas.output, rows * pitch // 4, 4)
    copy_row(part + rows * pitch, areas.sums, rows * LANES, 4)
    copy_row(part + rows * (pitch + BYTES), areas.maxima, rows, 4)


def make_attention(pairs: bool) -> Any:
    """Make the kernel; with *pairs* for bfloat16 queries and cache, multiplied as pairs."""
    words = PAIRS if pairs else FLOATS
    product_scores = make_product(words, rescale=False)
    product_output = make_product(words, rescale=True)
    key_elements = 2 * LANES if pairs else LANES
    pair_steps = 2 if pairs else 1
    weight_pitch = SCORE_PITCH // pair_steps

    @outline
    def load_queries(call: AttentionCall, plan: Plan, item: Item, query: int) -> None:
        for head in range(item.head_first, item.head_end):
            for index in range(item.tokens * plan.group):
                source = (
                    call.query
                    + (item.token + index // plan.group) * call.query_token
                    + (head * plan.group + index % plan.group) * call.query_head
                )
                if pairs:
                    copy_row(query, source, plan.head_size, 2)
                    if plan.head_size % 2 == 1:
                        store_bf16(query + 2 * plan.head_size, ZERO)
                else:
                    widen_row(query, source, plan.head_size, plan.query_bf16)
                query += row_bytes(plan.head_size, LANES)

    @outline
    def pack_keys(plan: Plan, areas: Scratch, ahead: int, shift: int) -> None:
        """Pack keys as words [steps, KEYS]; ask for *ahead* keys of the next block."""
        size = cache_bytes(plan)
        share = (LANES * key_elements + plan.head_size - 1) // plan.head_size
        for first in range(0, KEYS, LANES):
            rows = areas.keys + 8 * first
            target = areas.packed_keys + 4 * first
            fetched, wanted = first, min(first + LANES, ahead)
            for element in range(0, plan.head_size, key_elements):
                fetch_rows(areas.next_keys, shift, size, fetched, min(fetched + share, wanted))
                fetched += share
                place = target + element // pair_steps * SCORE_PITCH
                if pairs:
                    transpose_words(rows, 2 * element, place, SCORE_PITCH)
                elif plan.cache_bf16 == 1:
                    transpose_widened(rows, 2 * element, place, SCORE_PITCH)
                else:
                    transpose_words(rows, 4 * element, place, SCORE_PITCH)

    @outline
    def pack_values(plan: Plan, count: int, areas: Scratch, ahead: int, shift: int) -> None:
        """Pack values as words [steps, head_size]; ask for *ahead* values of the next block."""
        pitch = row_bytes(plan.head_size, LANES)
        size = cache_bytes(plan)
        whole = (plan.head_size + LANES - 1) // LANES * LANES
        target = areas.packed_values
        for key in range(0, count, pair_steps):
            fetch_rows(areas.next_values, shift, size, key, min(key + pair_steps, ahead))
            first = load_i64(areas.values + 8 * key)
            if pairs:
                second = load_i64(areas.values + 8 * key + 8)
                for element in range(0, plan.head_size, LANES):
                    join_pairs(target + 4 * element, first + 2 * element, second + 2 * element)
            else:
                widen_row(target, first, whole, plan.cache_bf16)
            target += pitch

    @inline
    def weigh(
        row: int,
        key: int,
        first: int,
        last: int,
        scale: float,
        cap: float,
        scores: int,
        weights: int,
        maxima: int,
        sums: int,
        factor: int,
    ) -> None:
        """Turn a row of scores into weights; update its maximum and sum."""
        largest = splat(NEVER)
        hidden = key < first or key + KEYS - 1 > last
        for vector in range(KEY_VECTORS):
            score = vload_f32(scores + vector * BYTES) * splat(scale)
            if cap > ZERO:
                score = tanh(score) * splat(cap)
            if hidden:
                lane = iadd(iota(), isplat(key + vector * LANES))
                outside = mask_or(is_less(lane, isplat(first)), is_less(isplat(last), lane))
                score = choose(outside, splat(NEVER), score)
            vstore_f32(scores + vector * BYTES, score)
            largest = vmax(largest, score)
        before = load_f32(maxima + 4 * row)
        now = max(before, max_lanes(largest))
        store_f32(maxima + 4 * row, now)
        shrink = exp2(splat(before - now))
        store_f32(factor, first_lane(shrink))
        total = vload_f32(sums + BYTES * row) * shrink
        for vector in range(KEY_VECTORS):
            weight = exp2(vload_f32(scores + vector * BYTES) - splat(now))
            if pairs:
                vstore_bf16(weights + vector * BYTES // 2, weight)
                weight = vload_bf16(weights + vector * BYTES // 2)
            else:
                vstore_f32(weights + vector * BYTES, weight)
            total = total + weight
        vstore_f32(sums + BYTES * row, total)

    @outline
    def attend_block(
        plan: Plan, item: Item, key: int, count: int, head: int, areas: Scratch
    ) -> None:
        """Add KEYS keys from position *key* on to every row of *head* that sees one of them."""
        pitch = row_bytes(plan.head_size, LANES)
        rows = item.tokens * plan.group
        base = (head - item.head_first) * rows
        steps = (plan.head_size + pair_steps - 1) // pair_steps
        value_steps = (count + pair_steps - 1) // pair_steps
        columns = (plan.head_size + LANES - 1) // LANES
        scale = real(plan.scale)
        cap = real(plan.cap)
        for start in range(0, rows, TILE_ROWS):
            here = min(TILE_ROWS, rows - start)
            first, _ = row_limits(start, plan, item.position)
            _, last = row_limits(start + here - 1, plan, item.position)
            if last < key or first > key + KEYS - 1:
                continue
            product_scores(
                areas.query + (base + start) * pitch, pitch, areas.packed_keys, SCORE_PITCH,
                steps, areas.scores, SCORE_PITCH, 0, here, KEY_VECTORS,
            )  # fmt: skip
            for index in range(here):
                first, last = row_limits(start + index, plan, item.position)
                weigh(
                    base + start + index, key, first, last, scale, cap,
                    areas.scores + index * SCORE_PITCH, areas.weights + index * weight_pitch,
                    areas.maxima, areas.sums, areas.factors + 4 * index,
                )  # fmt: skip
            product_output(
                areas.weights, weight_pitch, areas.packed_values, pitch, value_steps,
                areas.output + (base + start) * pitch, pitch, areas.factors, here, columns,
            )  # fmt: skip

    @outline
    def attend_chunk(
        call: AttentionCall,
        plan: Plan,
        item: Item,
        chunk: int,
        rows: int,
        areas: Scratch,
        follower: Item,
    ) -> None:
        """Compute the partial result of one chunk of keys into the running output."""
        stop = item.position + item.tokens
        first, _ = row_limits(0, plan, item.position)
        clear(rows, row_bytes(plan.head_size, LANES), areas.output, areas.maxima, areas.sums)
        for key in range(chunk * CHUNK, min(stop, (chunk + 1) * CHUNK), KEYS):
            if key + KEYS <= first:
                continue
            count = min(KEYS, stop - key)
            ahead, next_heads = find_next(call, plan, item, key, stop, follower, areas)
            for head in range(item.head_first, item.head_end):
                find_keys(
                    call, plan, item.request, key, count, head, areas.keys, areas.values,
                    areas.zeros,
                )  # fmt: skip
                if plan.head_size % key_elements != 0:
                    stage_keys(plan, count, areas)
                index = head - item.head_first
                if index >= next_heads:
                    ahead = 0
                pack_keys(plan, areas, ahead, index * cache_bytes(plan))
                pack_values(plan, count, areas, ahead, index * cache_bytes(plan))
                attend_block(plan, item, key, count, head, areas)

    @outline
    def attend_part(
        call: AttentionCall, plan: Plan, item: Item, rows: int, areas: Scratch, follower: Item
    ) -> None:
        """Compute one chunk of a split request; whoever comes last merges the parts."""
        pitch = row_bytes(plan.head_size, LANES)
        attend_chunk(call, plan, item, item.chunk_first, rows, areas, follower)
        base = plan.parts + item.part_first * plan.part_bytes
        save_part(rows, pitch, base + item.part * plan.part_bytes, areas)
        counter = plan.counters + 8 * item.part_first
        if fetch_add(counter, 1) != item.parts - 1:
            return
        store_i64(counter, 0)
        clear(rows, pitch, areas.total, areas.total_maxima, areas.total_sums)
        for index in range(item.parts):
            part = base + index * plan.part_bytes
            sums = part + rows * pitch
            merge(rows, pitch, areas, part, sums + rows * BYTES, sums)
        finish(call, plan, item, areas.total, areas.total_sums)

    @outline
    def attend_item(
        call: AttentionCall, plan: Plan, item: Item, areas: Scratch, follower: Item
    ) -> None:
        pitch = row_bytes(plan.head_size, LANES)
        rows = item.tokens * plan.group * (item.head_end - item.head_first)
        load_queries(call, plan, item, areas.query)
        if item.parts > 1:
            attend_part(call, plan, item, rows, areas, follower)
        elif item.chunk_end - item.chunk_first == 1:
            attend_chunk(call, plan, item, item.chunk_first, rows, areas, follower)
            finish(call, plan, item, areas.output, areas.sums)
        else:
            clear(rows, pitch, areas.total, areas.total_maxima, areas.total_sums)
            for chunk in range(item.chunk_first, item.chunk_end):
                attend_chunk(call, plan, item, chunk, rows, areas, follower)
                merge(rows, pitch, areas, areas.output, areas.maxima, areas.sums)
            finish(call, plan, item, areas.total, areas.total_sums)

    def attention(args: int) -> None:
        call = read_call(args + FIELDS)
        plan = read_plan(call.plan)
        thread = fetch_add(args + THREAD, 1)
        areas = scratch_areas(
            plan.scratch + thread * plan.scratch_pitch, plan.head_size, plan.rows, LANES
        )
        ticket = fetch_add(args + TICKET, 1)
        while ticket < plan.num_items:
            item = read_item(plan.items + ticket * ITEM_BYTES)
            probable = min(ticket + plan.threads, plan.num_items - 1)
            follower = read_item(plan.items + probable * ITEM_BYTES)
            attend_item(call, plan, item, areas, follower)
            ticket = fetch_add(args + TICKET, 1)

    return attention


def kernels() -> dict[str, Any]:
    found = {"attention": make_attention(pairs=False)}
    if HAS_PAIRS:
        found["attention_pairs"] = make_attention(pairs=True)
    return found
