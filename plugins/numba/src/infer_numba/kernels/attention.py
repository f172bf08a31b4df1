"""Paged attention for tiles of query tokens, one kernel for prefill and decode.

FlashAttention's online softmax (Dao et al., 2022) over blocks of KEYS keys, which are packed from
their pages once per tile; all query heads of a KV head share them. Keys start a new partial result
every CHUNK positions; partials are merged in order of position, so that threads may compute the
chunks of a long request apart. What a query gets depends on its own request and position only:
blocks and chunks are at fixed positions, and a key that it does not see adds exactly nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from infer_numba import layout as at
from infer_numba.kernels.functions import exp2, tanh
from infer_numba.kernels.tiles import (
    HAS_PAIRS,
    TILE_ROWS,
    join_pairs,
    make_product,
    make_transpose,
)
from infer_numba.kernels.vector import (
    BYTES,
    LANES,
    choose,
    copy_16,
    fetch_add,
    first_lane,
    fma,
    iadd,
    inline,
    iota,
    is_less,
    isplat,
    load_bf16,
    load_f32,
    load_f64_as_f32,
    load_i32,
    load_i64,
    mask_or,
    max_lanes,
    outline,
    prefetch,
    splat,
    store_bf16,
    store_f32,
    store_i64,
    sum_lanes,
    vload_bf16,
    vload_f32,
    vmax,
    vstore_bf16,
    vstore_f32,
)

KEYS = at.KEYS
CHUNK = at.CHUNK
SCORE_PITCH = 4 * KEYS
KEY_VECTORS = KEYS // LANES
NOTHING = np.float32(-1.0e30)
NEVER = np.float32(-np.inf)
ZERO = np.float32(0.0)
ONE = np.float32(1.0)

scratch_offsets = inline(at.scratch_offsets)
transpose_words = make_transpose(widen=False)
transpose_widened = make_transpose(widen=True)


@inline
def copy_row(target, source, count, size):
    """Copy *count* elements of *size* bytes (2 or 4)."""
    done = 0
    total = count * size
    while done + BYTES <= total:
        vstore_f32(target + done, vload_f32(source + done))
        done += BYTES
    while done < total:
        copy_16(target + done, source + done)
        done += 2


@inline
def widen_row(target, source, count, is_bf16):
    """Copy *count* elements as float32."""
    if is_bf16 == 0:
        copy_row(target, source, count, 4)
        return
    index = 0
    while index + LANES <= count:
        vstore_f32(target + 4 * index, vload_bf16(source + 2 * index))
        index += LANES
    while index < count:
        store_f32(target + 4 * index, load_bf16(source + 2 * index))
        index += 1


@outline
def find_keys(plan, request, first, count, base, plane, block_pitch, slot_bytes, keys, values, zeros):
    """Store the addresses of *count* keys and values from position *first* on.

    The rest of KEYS addresses point to zeros.
    """
    page = load_i64(plan + at.PLAN_PAGE)
    table = load_i64(plan + at.PLAN_TABLE) + 4 * request * load_i64(plan + at.PLAN_TABLE_PITCH)
    entry = first // page
    offset = first - entry * page
    address = base + load_i32(table + 4 * entry) * block_pitch + offset * slot_bytes
    for index in range(count):
        if offset == page:
            entry += 1
            offset = 0
            address = base + load_i32(table + 4 * entry) * block_pitch
        store_i64(keys + 8 * index, address)
        store_i64(values + 8 * index, address + plane)
        address += slot_bytes
        offset += 1
    for index in range(count, KEYS):
        store_i64(keys + 8 * index, zeros)
        store_i64(values + 8 * index, zeros)


@inline
def prefetch_rows(addresses, count, shift, row_bytes):
    """Ask for *row_bytes* at *shift* bytes past each of *count* addresses."""
    for index in range(count):
        address = load_i64(addresses + 8 * index) + shift
        for byte in range(0, row_bytes, 64):
            prefetch(address + byte)


@outline
def stage_keys(count, head_size, size, pitch, keys, values, staged_keys, staged_values):
    """Copy rows that end inside a vector, so that no load reads past a row."""
    for index in range(count):
        copy_row(staged_keys + index * pitch, load_i64(keys + 8 * index), head_size, size)
        copy_row(staged_values + index * pitch, load_i64(values + 8 * index), head_size, size)
        store_i64(keys + 8 * index, staged_keys + index * pitch)
        store_i64(values + 8 * index, staged_values + index * pitch)


@outline
def store_row(target, source, factor, count, is_bf16):
    """Store *count* float32 elements times *factor* in the output's dtype."""
    index = 0
    while index + LANES <= count:
        value = vload_f32(source + 4 * index) * splat(factor)
        if is_bf16 == 1:
            vstore_bf16(target + 2 * index, value)
        else:
            vstore_f32(target + 4 * index, value)
        index += LANES
    while index < count:
        single = load_f32(source + 4 * index) * factor
        if is_bf16 == 1:
            store_bf16(target + 2 * index, single)
        else:
            store_f32(target + 4 * index, single)
        index += 1


@inline
def row_limits(row, group, position, window):
    """Return the first and last position that the query of *row* sees."""
    last = position + row // group
    first = 0
    if window > 0:
        first = max(0, last - window + 1)
    return first, last


def make_attention(pairs: bool) -> Any:
    """Make the kernel; with *pairs* for bfloat16 queries and cache, multiplied as pairs."""
    product_scores = make_product(pairs, rescale=False)
    product_output = make_product(pairs, rescale=True)

    @outline
    def pack(count, head_size, is_bf16, row_bytes, keys, values, packed_keys, packed_values, a0, a1, shift, plane, pbytes):
        """Pack keys as words [steps, KEYS] and values as words [steps, row_bytes / 4]."""
        for first in range(0, KEYS, LANES):
            target = packed_keys + 4 * first
            part = a0 + (a1 - a0) * first // KEYS
            until = a0 + (a1 - a0) * (first + LANES) // KEYS
            prefetch_rows(values + 8 * KEYS + 8 * part, until - part, shift, pbytes)
            prefetch_rows(values + 8 * KEYS + 8 * part, until - part, shift + plane, pbytes)
            if pairs:
                for byte in range(0, 2 * head_size, BYTES):
                    transpose_words(
                        keys + 8 * first, byte, target + byte // 4 * SCORE_PITCH, SCORE_PITCH
                    )
            elif is_bf16 == 1:
                for element in range(0, head_size, LANES):
                    transpose_widened(
                        keys + 8 * first, 2 * element, target + element * SCORE_PITCH, SCORE_PITCH
                    )
            else:
                for element in range(0, head_size, LANES):
                    transpose_words(
                        keys + 8 * first, 4 * element, target + element * SCORE_PITCH, SCORE_PITCH
                    )
        if pairs:
            for key in range(0, count, 2):
                first = load_i64(values + 8 * key)
                second = load_i64(values + 8 * key + 8)
                for element in range(0, head_size, LANES):
                    join_pairs(
                        packed_values + key // 2 * row_bytes + 4 * element,
                        first + 2 * element,
                        second + 2 * element,
                    )
        else:
            for key in range(count):
                widen_row(
                    packed_values + key * row_bytes,
                    load_i64(values + 8 * key),
                    (head_size + LANES - 1) // LANES * LANES,
                    is_bf16,
                )

    @inline
    def weigh(row, key, first, last, scale, cap, scores, weights, maxima, sums, factors, index):
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
        factor = exp2(splat(before - now))
        total = vload_f32(sums + BYTES * row) * factor
        for vector in range(KEY_VECTORS):
            weight = exp2(vload_f32(scores + vector * BYTES) - splat(now))
            if pairs:
                vstore_bf16(weights + vector * BYTES // 2, weight)
                weight = vload_bf16(weights + vector * BYTES // 2)
            else:
                vstore_f32(weights + vector * BYTES, weight)
            total = total + weight
        vstore_f32(sums + BYTES * row, total)
        store_f32(factors + 4 * index, first_lane(factor))

    @outline
    def attend_block(
        plan, rows, position, key, count, row_bytes, packed_keys, packed_values, scores, weights,
        factors, query, output, maxima, sums,
    ):  # fmt: skip
        """Add KEYS keys from position *key* on to every row that sees one of them."""
        group = load_i64(plan + at.PLAN_GROUP)
        head_size = load_i64(plan + at.PLAN_HEAD_SIZE)
        window = load_i64(plan + at.PLAN_WINDOW)
        scale = load_f64_as_f32(plan + at.PLAN_SCALE)
        cap = load_f64_as_f32(plan + at.PLAN_CAP)
        steps = head_size
        value_steps = count
        weight_pitch = SCORE_PITCH
        if pairs:
            steps = (head_size + 1) // 2
            value_steps = (count + 1) // 2
            weight_pitch = SCORE_PITCH // 2
        for start in range(0, rows, TILE_ROWS):
            here = min(TILE_ROWS, rows - start)
            first, _ = row_limits(start, group, position, window)
            _, last = row_limits(start + here - 1, group, position, window)
            if last < key or first > key + KEYS - 1:
                continue
            product_scores(
                query + start * row_bytes, row_bytes, packed_keys, SCORE_PITCH, steps,
                scores, SCORE_PITCH, 0, here, KEY_VECTORS,
            )  # fmt: skip
            for index in range(here):
                row = start + index
                first, last = row_limits(row, group, position, window)
                weigh(
                    row, key, first, last, scale, cap, scores + index * SCORE_PITCH,
                    weights + index * weight_pitch, maxima, sums, factors, index,
                )  # fmt: skip
            product_output(
                weights, weight_pitch, packed_values, row_bytes, value_steps,
                output + start * row_bytes, row_bytes, factors, here,
                (head_size + LANES - 1) // LANES,
            )  # fmt: skip

    @inline
    def clear(rows, row_bytes, output, maxima, sums):
        for row in range(rows):
            store_f32(maxima + 4 * row, NOTHING)
            vstore_f32(sums + BYTES * row, splat(ZERO))
            for byte in range(0, row_bytes, BYTES):
                vstore_f32(output + row * row_bytes + byte, splat(ZERO))

    @outline
    def merge(rows, row_bytes, total, total_maxima, total_sums, output, maxima, sums):
        """Add a later partial result to the total."""
        for row in range(rows):
            mine = load_f32(total_maxima + 4 * row)
            other = load_f32(maxima + 4 * row)
            now = max(mine, other)
            keep = exp2(splat(mine - now))
            gain = exp2(splat(other - now))
            store_f32(total_maxima + 4 * row, now)
            vstore_f32(
                total_sums + BYTES * row,
                fma(
                    vload_f32(sums + BYTES * row),
                    gain,
                    vload_f32(total_sums + BYTES * row) * keep,
                ),
            )
            for byte in range(row * row_bytes, (row + 1) * row_bytes, BYTES):
                kept = vload_f32(total + byte) * keep
                vstore_f32(total + byte, fma(vload_f32(output + byte), gain, kept))

    @outline
    def finish(args, plan, item, row_bytes, total, total_sums):
        """Divide by the sums and store rows in the output's dtype."""
        group = load_i64(plan + at.PLAN_GROUP)
        head_size = load_i64(plan + at.PLAN_HEAD_SIZE)
        is_bf16 = load_i64(plan + at.PLAN_QUERY_BF16)
        rows = load_i64(item + at.ITEM_TOKENS) * group
        row = 0
        for head in range(load_i64(item + at.ITEM_HEAD_FIRST), load_i64(item + at.ITEM_HEAD_END)):
            for index in range(rows):
                target = (
                    load_i64(args + at.ATTN_OUT)
                    + (load_i64(item + at.ITEM_TOKEN) + index // group)
                    * load_i64(args + at.ATTN_OUT_TOKEN)
                    + (head * group + index % group) * load_i64(args + at.ATTN_OUT_HEAD)
                )
                inverse = ONE / sum_lanes(vload_f32(total_sums + BYTES * row))
                store_row(target, total + row * row_bytes, inverse, head_size, is_bf16)
                row += 1

    @outline
    def load_queries(args, plan, item, row_bytes, query):
        group = load_i64(plan + at.PLAN_GROUP)
        head_size = load_i64(plan + at.PLAN_HEAD_SIZE)
        is_bf16 = load_i64(plan + at.PLAN_QUERY_BF16)
        rows = load_i64(item + at.ITEM_TOKENS) * group
        target = query
        for head in range(load_i64(item + at.ITEM_HEAD_FIRST), load_i64(item + at.ITEM_HEAD_END)):
            for index in range(rows):
                source = (
                    load_i64(args + at.ATTN_QUERY)
                    + (load_i64(item + at.ITEM_TOKEN) + index // group)
                    * load_i64(args + at.ATTN_QUERY_TOKEN)
                    + (head * group + index % group) * load_i64(args + at.ATTN_QUERY_HEAD)
                )
                if pairs:
                    copy_row(target, source, head_size, 2)
                    if head_size % 2 == 1:
                        store_bf16(target + 2 * head_size, ZERO)
                else:
                    widen_row(target, source, head_size, is_bf16)
                target += row_bytes

    @outline
    def attend_chunk(args, plan, item, chunk, row_bytes, scratch, areas):
        """Compute the partial result of one chunk of keys into the running output."""
        (keys, values, packed_keys, packed_values, scores, weights, factors, query, output, maxima,
         sums, _, _, _, staged_keys, staged_values, zeros, _) = areas  # fmt: skip
        head_size = load_i64(plan + at.PLAN_HEAD_SIZE)
        is_bf16 = load_i64(plan + at.PLAN_CACHE_BF16)
        window = load_i64(plan + at.PLAN_WINDOW)
        request = load_i64(item + at.ITEM_REQUEST)
        head_first = load_i64(item + at.ITEM_HEAD_FIRST)
        head_end = load_i64(item + at.ITEM_HEAD_END)
        position = load_i64(item + at.ITEM_POSITION)
        tokens = load_i64(item + at.ITEM_TOKENS)
        rows = tokens * load_i64(plan + at.PLAN_GROUP)
        cache = load_i64(args + at.ATTN_CACHE)
        plane = load_i64(args + at.ATTN_CACHE_PLANE)
        block = load_i64(args + at.ATTN_CACHE_BLOCK)
        head_bytes = head_size * (4 - 2 * is_bf16)
        slot_bytes = load_i64(plan + at.PLAN_KV_HEADS) * head_bytes
        stop = position + tokens
        first = 0
        if window > 0:
            first = max(0, position - window + 1)
        staged = head_size % LANES != 0
        if pairs:
            staged = head_size % (2 * LANES) != 0
        clear(
            rows * (head_end - head_first), row_bytes, scratch + output, scratch + maxima,
            scratch + sums,
        )  # fmt: skip
        for key in range(chunk * CHUNK, min(stop, (chunk + 1) * CHUNK), KEYS):
            if key + KEYS <= first:
                continue
            count = min(KEYS, stop - key)
            ahead = min(KEYS, max(0, stop - key - KEYS))
            if ahead > 0:
                find_keys(
                    plan, request, key + KEYS, ahead, cache, plane, block, slot_bytes,
                    scratch + values + 8 * KEYS, scratch + values + 16 * KEYS, scratch + zeros,
                )  # fmt: skip
            for head in range(head_first, head_end):
                find_keys(
                    plan, request, key, count, cache + head * head_bytes, plane, block, slot_bytes,
                    scratch + keys, scratch + values, scratch + zeros,
                )  # fmt: skip
                if staged:
                    stage_keys(
                        count, head_size, 4 - 2 * is_bf16, row_bytes, scratch + keys,
                        scratch + values, scratch + staged_keys, scratch + staged_values,
                    )  # fmt: skip
                pack(
                    count, head_size, is_bf16, row_bytes, scratch + keys, scratch + values,
                    scratch + packed_keys, scratch + packed_values, ahead * (head - head_first) // (head_end - head_first), ahead * (head - head_first + 1) // (head_end - head_first), head_first * head_bytes, plane, head_bytes * (head_end - head_first)
                )  # fmt: skip
                row = (head - head_first) * rows
                attend_block(
                    plan, rows, position, key, count, row_bytes, scratch + packed_keys,
                    scratch + packed_values, scratch + scores, scratch + weights,
                    scratch + factors, scratch + query + row * row_bytes,
                    scratch + output + row * row_bytes, scratch + maxima + 4 * row,
                    scratch + sums + BYTES * row,
                )  # fmt: skip

    @inline
    def save_part(rows, row_bytes, part, output, maxima, sums):
        copy_row(part, output, rows * row_bytes // 4, 4)
        copy_row(part + rows * row_bytes, sums, rows * LANES, 4)
        copy_row(part + rows * (row_bytes + BYTES), maxima, rows, 4)

    @outline
    def attend_part(args, plan, item, rows, row_bytes, scratch, areas):
        """Compute one chunk of a split request; whoever comes last merges the parts."""
        output, maxima, sums = areas[8], areas[9], areas[10]
        total, total_maxima, total_sums = areas[11], areas[12], areas[13]
        chunk = load_i64(item + at.ITEM_CHUNK_FIRST)
        attend_chunk(args, plan, item, chunk, row_bytes, scratch, areas)
        pitch = load_i64(plan + at.PLAN_PART_BYTES)
        parts = load_i64(item + at.ITEM_PARTS)
        first = load_i64(item + at.ITEM_PART_FIRST)
        base = load_i64(plan + at.PLAN_PARTS) + first * pitch
        save_part(
            rows, row_bytes, base + load_i64(item + at.ITEM_PART) * pitch, scratch + output,
            scratch + maxima, scratch + sums,
        )  # fmt: skip
        counter = load_i64(plan + at.PLAN_COUNTERS) + 8 * first
        if fetch_add(counter, 1) != parts - 1:
            return
        store_i64(counter, 0)
        clear(rows, row_bytes, scratch + total, scratch + total_maxima, scratch + total_sums)
        for index in range(parts):
            part = base + index * pitch
            merge(
                rows, row_bytes, scratch + total, scratch + total_maxima, scratch + total_sums,
                part, part + rows * (row_bytes + BYTES), part + rows * row_bytes,
            )  # fmt: skip
        finish(args, plan, item, row_bytes, scratch + total, scratch + total_sums)

    @outline
    def attend_item(args, plan, item, scratch):
        head_size = load_i64(plan + at.PLAN_HEAD_SIZE)
        areas = scratch_offsets(head_size, load_i64(plan + at.PLAN_ROWS), LANES)
        output, maxima, sums = areas[8], areas[9], areas[10]
        total, total_maxima, total_sums = areas[11], areas[12], areas[13]
        row_bytes = (4 * head_size + 2 * BYTES - 1) // (2 * BYTES) * (2 * BYTES)
        heads = load_i64(item + at.ITEM_HEAD_END) - load_i64(item + at.ITEM_HEAD_FIRST)
        rows = load_i64(item + at.ITEM_TOKENS) * load_i64(plan + at.PLAN_GROUP) * heads
        first = load_i64(item + at.ITEM_CHUNK_FIRST)
        end = load_i64(item + at.ITEM_CHUNK_END)
        load_queries(args, plan, item, row_bytes, scratch + areas[7])
        if load_i64(item + at.ITEM_PARTS) > 1:
            attend_part(args, plan, item, rows, row_bytes, scratch, areas)
        elif end - first == 1:
            attend_chunk(args, plan, item, first, row_bytes, scratch, areas)
            finish(args, plan, item, row_bytes, scratch + output, scratch + sums)
        else:
            clear(rows, row_bytes, scratch + total, scratch + total_maxima, scratch + total_sums)
            for chunk in range(first, end):
                attend_chunk(args, plan, item, chunk, row_bytes, scratch, areas)
                merge(
                    rows, row_bytes, scratch + total, scratch + total_maxima,
                    scratch + total_sums, scratch + output, scratch + maxima, scratch + sums,
                )  # fmt: skip
            finish(args, plan, item, row_bytes, scratch + total, scratch + total_sums)

    def attention(args):
        plan = load_i64(args + at.ATTN_PLAN)
        thread = fetch_add(args + at.THREAD, 1)
        scratch = load_i64(plan + at.PLAN_SCRATCH) + thread * load_i64(
            plan + at.PLAN_SCRATCH_PITCH
        )
        items = load_i64(plan + at.PLAN_ITEMS)
        count = load_i64(plan + at.PLAN_COUNT)
        ticket = fetch_add(args + at.TICKET, 1)
        while ticket < count:
            attend_item(args, plan, items + ticket * at.ITEM_BYTES, scratch)
            ticket = fetch_add(args + at.TICKET, 1)

    return attention


def kernels() -> dict[str, Any]:
    found = {"attention": make_attention(pairs=False)}
    if HAS_PAIRS:
        found["attention_pairs"] = make_attention(pairs=True)
    return found
