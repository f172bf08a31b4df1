"""Moving rows of elements between dtypes; rows may end anywhere inside a vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infer_numba.kernels import vector as v
from infer_numba.kernels.arithmetic import splat
from infer_numba.kernels.vector import (
    BYTES,
    LANES,
    copy_16,
    inline,
    load_bf16,
    load_f32,
    outline,
    store_bf16,
    store_f32,
    vload_bf16,
    vload_f32,
    vstore_bf16,
    vstore_f32,
)


@dataclass(frozen=True)
class Element:
    """A dtype's size in bytes and how vectors and single elements of it are moved as float32."""

    size: int
    vload: Callable[..., Any]
    vstore: Callable[..., Any]
    load: Callable[..., Any]
    store: Callable[..., Any]


ELEMENTS = {
    "float32": Element(4, v.vload_f32, v.vstore_f32, v.load_f32, v.store_f32),
    "bfloat16": Element(2, v.vload_bf16, v.vstore_bf16, v.load_bf16, v.store_bf16),
}


@inline
def copy_row(target: int, source: int, count: int, size: int) -> None:
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
def widen_row(target: int, source: int, count: int, is_bf16: int) -> None:
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
def store_row(target: int, source: int, factor: float, count: int, is_bf16: int) -> None:
    """Store *count* float32 elements times *factor* as bfloat16 or float32."""
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
