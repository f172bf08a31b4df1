"""Rotary embedding (Su et al., 2021) of query and key, and storing key and value in the cache."""

from __future__ import annotations

from typing import Any

from infer_numba.kernels.arithmetic import fma
from infer_numba.kernels.rows import ELEMENTS, Element
from infer_numba.kernels.vector import (
    LANES,
    fetch_add,
    field_reader,
    inline,
    load_f32,
    load_i64,
    vload_f32,
)
from infer_numba.layout import FIELDS, TICKET, RopeCall

TOKENS = 16
"""Tokens that a thread takes at once."""

read_call = field_reader(RopeCall)


def make_rope_store_kv(element: Element, cached: Element) -> Any:
    size, vload, vstore = element.size, element.vload, element.vstore
    load, store = element.load, element.store
    cached_size, cached_vstore, cached_store = cached.size, cached.vstore, cached.store

    @inline
    def rotate(head: int, cosines: int, half: int) -> None:
        """Rotate (head[i], head[half + i]) by angle i."""
        sines = cosines + 4 * half
        upper = head + size * half
        index = 0
        while index + LANES <= half:
            x, y = vload(head + size * index), vload(upper + size * index)
            cos, sin = vload_f32(cosines + 4 * index), vload_f32(sines + 4 * index)
            vstore(head + size * index, x * cos - y * sin)
            vstore(upper + size * index, fma(y, cos, x * sin))
            index += LANES
        while index < half:
            a, b = load(head + size * index), load(upper + size * index)
            c, s = load_f32(cosines + 4 * index), load_f32(sines + 4 * index)
            store(head + size * index, a * c - b * s)
            store(upper + size * index, b * c + a * s)
            index += 1

    @inline
    def keep(target: int, source: int, count: int) -> None:
        """Copy a row to the cache in its dtype."""
        index = 0
        while index + LANES <= count:
            cached_vstore(target + cached_size * index, vload(source + size * index))
            index += LANES
        while index < count:
            cached_store(target + cached_size * index, load(source + size * index))
            index += 1

    def rope_store_kv(args: int) -> None:
        call = read_call(args + FIELDS)
        head_bytes = cached_size * call.head_size
        start = fetch_add(args + TICKET, TOKENS)
        while start < call.tokens:
            for token in range(start, min(start + TOKENS, call.tokens)):
                position = load_i64(call.positions + 8 * token)
                cosines = call.cos_sin + position * call.cos_sin_row
                for head in range(call.heads):
                    place = call.query + token * call.query_token + head * call.query_head
                    rotate(place, cosines, call.half)
                slot = load_i64(call.slots + 8 * token)
                block = slot // call.page
                target = call.cache + block * call.block
                target += (slot - block * call.page) * call.kv_heads * head_bytes
                for head in range(call.kv_heads):
                    key = call.key + token * call.key_token + head * call.key_head
                    value = call.value + token * call.value_token + head * call.value_head
                    rotate(key, cosines, call.half)
                    keep(target + head * head_bytes, key, call.head_size)
                    keep(target + call.plane + head * head_bytes, value, call.head_size)
            start = fetch_add(args + TICKET, TOKENS)

    return rope_store_kv


def kernels() -> dict[str, Any]:
    return {
        f"rope_store_kv_{dtype}_{cached_dtype}": make_rope_store_kv(element, cached)
        for dtype, element in ELEMENTS.items()
        for cached_dtype, cached in ELEMENTS.items()
    }
