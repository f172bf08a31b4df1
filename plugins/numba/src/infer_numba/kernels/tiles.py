"""Register-blocked matrix products and transposes, emitted as LLVM instructions.

Operands are made of 32-bit *words*: one float32, or a pair of bfloat16. A product C[rows, columns]
of A[rows, steps] and B[steps, columns] reads one word of B per step and column, and of A what it is
multiplied with (:class:`Words`). Each element of C is one chain of additions in the order of the
steps, whatever the number of rows in a tile, so a row's result does not depend on the rows beside
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from llvmlite import ir
from numba.core import types

from infer_numba.kernels.vector import (
    BYTES,
    F32,
    I32,
    I64,
    LANES,
    LLVM_VF,
    LLVM_VH,
    LLVM_VI,
    TARGET,
    BFloatType,
    call,
    inline,
    instruction,
    load,
    outline,
    prefetch,
    splat_of,
    store,
    vector_constant,
)
from infer_numba.layout import TILE_ROWS, tile_vectors

TILE_VECTORS = tile_vectors(LANES)


Multiply = Callable[[ir.IRBuilder, Any, Any, Any], Any]
Parts = Callable[[ir.IRBuilder, Any], list[Any]]


@dataclass(frozen=True)
class Words:
    """What operands are made of.

    parts: makes of a vector of B's words those that are multiplied with one word of A each.
    count: how many parts, so words of A per row and step.
    multiply: total + word * vector.
    """

    parts: Parts
    count: int
    multiply: Multiply


def _as_it_is(builder: ir.IRBuilder, vector: Any) -> list[Any]:
    return [vector]


def _halves(builder: ir.IRBuilder, vector: Any) -> list[Any]:
    """The bfloat16 in the low halves of words, then those in the high halves, as float32."""
    low = builder.shl(vector, splat_of(builder, ir.Constant(I32, 16)))
    return [low, builder.and_(vector, splat_of(builder, ir.Constant(I32, 0xFFFF0000)))]


def _multiply_pairs(builder: ir.IRBuilder, word: Any, vector: Any, total: Any) -> Any:
    """total + word * vector, for pairs of bfloat16: the sum of both products."""
    pairs = ir.VectorType(BFloatType(), 2 * LANES)
    left = builder.bitcast(splat_of(builder, word), pairs)
    right = builder.bitcast(vector, pairs)
    return call(builder, f"llvm.x86.avx512bf16.dpbf16ps.{32 * LANES}", LLVM_VF, total, left, right)


def _multiply_floats(builder: ir.IRBuilder, word: Any, vector: Any, total: Any) -> Any:
    factor = splat_of(builder, builder.bitcast(word, F32))
    floats = builder.bitcast(vector, LLVM_VF)
    return call(builder, f"llvm.fmuladd.v{LANES}f32", LLVM_VF, factor, floats, total)


FLOATS = Words(_as_it_is, 1, _multiply_floats)
"""A and B are float32."""

PAIRS = Words(_as_it_is, 1, _multiply_pairs)
"""A and B are pairs of bfloat16, which the processor multiplies and adds at once."""

WIDENED = Words(_halves, 2, _multiply_floats)
"""A is float32; B is pairs of bfloat16, for two words of A each."""


def make_tile(
    rows: int, vectors: int, words: Words, rescale: bool, prefetches: int = 0
) -> Callable[..., Any]:
    """Make ``tile(a, a_pitch, b, b_pitch, steps, c, c_pitch, extra)``, all int64.

    Pitches are bytes from row to row (of B: from step to step). With *rescale*, row i of C starts
    from its present value times the float32 at extra + 4 * i, otherwise from zero. Without,
    *prefetches* cache lines from extra + step * b_pitch on are asked for. steps >= 1.
    """

    def emit(builder: Any, *arguments: Any) -> None:
        a, a_pitch, b, b_pitch, steps, c, c_pitch, extra = arguments
        c_rows = [builder.add(c, builder.mul(c_pitch, ir.Constant(I64, i))) for i in range(rows)]
        a_rows = [builder.add(a, builder.mul(a_pitch, ir.Constant(I64, i))) for i in range(rows)]

        def at(row: int, vector: int) -> Any:
            return builder.add(c_rows[row], ir.Constant(I64, BYTES * vector))

        start = []
        for row in range(rows):
            if rescale:
                address = builder.add(extra, ir.Constant(I64, 4 * row))
                factor = splat_of(builder, load(builder, address, F32))
            for vector in range(vectors):
                zero = ir.Constant(LLVM_VF, None)
                start.append(
                    builder.fmul(load(builder, at(row, vector), LLVM_VF), factor)
                    if rescale
                    else zero
                )
        before = builder.block
        loop = builder.append_basic_block("steps")
        after = builder.append_basic_block("done")
        builder.branch(loop)
        builder.position_at_end(loop)
        step = builder.phi(I64)
        totals = [builder.phi(LLVM_VF) for _ in start]
        shift = builder.mul(step, b_pitch)
        b_row = builder.add(b, shift)
        columns = [
            load(builder, builder.add(b_row, ir.Constant(I64, BYTES * vector)), LLVM_VI)
            for vector in range(vectors)
        ]
        for line in range(prefetches):
            prefetch(builder, builder.add(builder.add(extra, shift), ir.Constant(I64, 64 * line)))
        offset = builder.mul(step, ir.Constant(I64, 4 * words.count))
        parts = [words.parts(builder, column) for column in columns]
        sums = list(totals)
        for part in range(words.count):
            shift = builder.add(offset, ir.Constant(I64, 4 * part))
            for row in range(rows):
                word = load(builder, builder.add(a_rows[row], shift), I32)
                for vector in range(vectors):
                    place = row * vectors + vector
                    vector_part = parts[vector][part]
                    sums[place] = words.multiply(builder, word, vector_part, sums[place])
        following = builder.add(step, ir.Constant(I64, 1))
        step.add_incoming(ir.Constant(I64, 0), before)
        step.add_incoming(following, loop)
        for total, first, later in zip(totals, start, sums, strict=True):
            total.add_incoming(first, before)
            total.add_incoming(later, loop)
        builder.cbranch(builder.icmp_signed("<", following, steps), loop, after)
        builder.position_at_end(after)
        for index, value in enumerate(sums):
            store(builder, at(index // vectors, index % vectors), value)

    emit.__name__ = f"tile_{rows}x{vectors}"
    return instruction(types.void, *[types.int64] * 8)(emit)


def make_product(words: Words, rescale: bool) -> Any:
    """Make ``product(a, a_pitch, b, b_pitch, steps, c, c_pitch, scales, rows, vectors)``.

    rows is 1 ... TILE_ROWS, vectors any number of vectors of columns.
    """
    w1, w2, w3, w4, w5, w6 = (
        make_tile(rows, TILE_VECTORS, words, rescale) for rows in range(1, TILE_ROWS + 1)
    )
    n1, n2, n3, n4, n5, n6 = (make_tile(rows, 1, words, rescale) for rows in range(1, 7))

    @inline
    def wide(
        a: int,
        a_pitch: int,
        b: int,
        b_pitch: int,
        steps: int,
        c: int,
        c_pitch: int,
        scales: int,
        rows: int,
    ) -> None:
        if rows == 6:
            w6(a, a_pitch, b, b_pitch, steps, c, c_pitch, scales)
        elif rows == 5:
            w5(a, a_pitch, b, b_pitch, steps, c, c_pitch, scales)
        elif rows == 4:
            w4(a, a_pitch, b, b_pitch, steps, c, c_pitch, scales)
        elif rows == 3:
            w3(a, a_pitch, b, b_pitch, steps, c, c_pitch, scales)
        elif rows == 2:
            w2(a, a_pitch, b, b_pitch, steps, c, c_pitch, scales)
        else:
            w1(a, a_pitch, b, b_pitch, steps, c, c_pitch, scales)

    @inline
    def narrow(
        a: int,
        a_pitch: int,
        b: int,
        b_pitch: int,
        steps: int,
        c: int,
        c_pitch: int,
        scales: int,
        rows: int,
    ) -> None:
        if rows == 6:
            n6(a, a_pitch, b, b_pitch, steps, c, c_pitch, scales)
        elif rows == 5:
            n5(a, a_pitch, b, b_pitch, steps, c, c_pitch, scales)
        elif rows == 4:
            n4(a, a_pitch, b, b_pitch, steps, c, c_pitch, scales)
        elif rows == 3:
            n3(a, a_pitch, b, b_pitch, steps, c, c_pitch, scales)
        elif rows == 2:
            n2(a, a_pitch, b, b_pitch, steps, c, c_pitch, scales)
        else:
            n1(a, a_pitch, b, b_pitch, steps, c, c_pitch, scales)

    @outline
    def product(
        a: int,
        a_pitch: int,
        b: int,
        b_pitch: int,
        steps: int,
        c: int,
        c_pitch: int,
        scales: int,
        rows: int,
        vectors: int,
    ) -> None:
        column = 0
        while vectors - column >= TILE_VECTORS:
            shift = column * BYTES
            wide(a, a_pitch, b + shift, b_pitch, steps, c + shift, c_pitch, scales, rows)
            column += TILE_VECTORS
        while column < vectors:
            shift = column * BYTES
            narrow(a, a_pitch, b + shift, b_pitch, steps, c + shift, c_pitch, scales, rows)
            column += 1

    return product


def make_rows_product(words: Words, prefetches: int) -> Any:
    """Make ``product(a, a_pitch, b, steps, c, ahead, rows)`` for one panel of B.

    B and C have TILE_VECTORS vectors of columns, rows directly after each other; rows is
    1 ... TILE_ROWS. At every step *prefetches* cache lines are asked for, beginning at
    ahead + step * TILE_VECTORS * BYTES.
    """
    t1, t2, t3, t4, t5, t6 = (
        make_tile(rows, TILE_VECTORS, words, rescale=False, prefetches=prefetches)
        for rows in range(1, TILE_ROWS + 1)
    )
    pitch = TILE_VECTORS * BYTES

    @outline
    def product(a: int, a_pitch: int, b: int, steps: int, c: int, ahead: int, rows: int) -> None:
        if rows == 6:
            t6(a, a_pitch, b, pitch, steps, c, pitch, ahead)
        elif rows == 5:
            t5(a, a_pitch, b, pitch, steps, c, pitch, ahead)
        elif rows == 4:
            t4(a, a_pitch, b, pitch, steps, c, pitch, ahead)
        elif rows == 3:
            t3(a, a_pitch, b, pitch, steps, c, pitch, ahead)
        elif rows == 2:
            t2(a, a_pitch, b, pitch, steps, c, pitch, ahead)
        else:
            t1(a, a_pitch, b, pitch, steps, c, pitch, ahead)

    return product


def make_transpose(widen: bool) -> Callable[..., Any]:
    """Make ``transpose(rows, offset, target, pitch)``, all int64.

    Reads LANES words at *offset* bytes past each of the LANES addresses stored at *rows*, and
    writes word i of all of them as one vector to target + i * pitch. With *widen* the elements
    read are bfloat16 and become float32 words.
    """

    def emit(builder: Any, rows: Any, offset: Any, target: Any, pitch: Any) -> None:
        matrix = []
        for row in range(LANES):
            base = load(builder, builder.add(rows, ir.Constant(I64, 8 * row)), I64)
            address = builder.add(base, offset)
            if widen:
                wide = builder.zext(load(builder, address, LLVM_VH), LLVM_VI)
                shift = splat_of(builder, ir.Constant(I32, 16))
                matrix.append(builder.shl(wide, shift))
            else:
                matrix.append(load(builder, address, LLVM_VI))
        for index, column in enumerate(_transposed(builder, matrix)):
            address = builder.add(target, builder.mul(pitch, ir.Constant(I64, index)))
            store(builder, address, column)

    emit.__name__ = "transpose_widened" if widen else "transpose_words"
    return instruction(types.void, *[types.int64] * 4)(emit)


def _transposed(builder: ir.IRBuilder, rows: list[Any]) -> list[Any]:
    """Transpose within quarters of 4 words, then the quarters."""

    def shuffle(left: Any, right: Any, pattern: list[int]) -> Any:
        return builder.shuffle_vector(left, right, vector_constant(pattern))

    def in_quarters(pattern: list[int]) -> list[int]:
        return [
            LANES * (p // 4) + 4 * quarter + p % 4 for quarter in range(LANES // 4) for p in pattern
        ]

    low32, high32 = in_quarters([0, 4, 1, 5]), in_quarters([2, 6, 3, 7])
    low64, high64 = in_quarters([0, 1, 4, 5]), in_quarters([2, 3, 6, 7])
    quads = []
    for k in range(0, LANES, 4):
        a, b, c, d = rows[k : k + 4]
        ab_low, ab_high = shuffle(a, b, low32), shuffle(a, b, high32)
        cd_low, cd_high = shuffle(c, d, low32), shuffle(c, d, high32)
        quads.append(
            [
                shuffle(ab_low, cd_low, low64),
                shuffle(ab_low, cd_low, high64),
                shuffle(ab_high, cd_high, low64),
                shuffle(ab_high, cd_high, high64),
            ]
        )
    columns: list[Any] = [None] * LANES
    for j in range(4):
        gathered = _transposed_quarters(shuffle, [quad[j] for quad in quads])
        for quarter, column in enumerate(gathered):
            columns[4 * quarter + j] = column
    return columns


def _transposed_quarters(shuffle: Callable[..., Any], rows: list[Any]) -> list[Any]:
    """Return, for each quarter q, quarter q of every row joined."""
    count = len(rows)
    if count == 1:
        return rows

    def pick(quarters: list[int]) -> list[int]:
        return [4 * quarter + word for quarter in quarters for word in range(4)]

    if count == 2:
        return [shuffle(*rows, pick([0, 2])), shuffle(*rows, pick([1, 3]))]
    even, odd = pick([0, 2, 4, 6]), pick([1, 3, 5, 7])
    top = [shuffle(rows[0], rows[1], even), shuffle(rows[0], rows[1], odd)]
    bottom = [shuffle(rows[2], rows[3], even), shuffle(rows[2], rows[3], odd)]
    return [
        shuffle(top[0], bottom[0], even),
        shuffle(top[1], bottom[1], even),
        shuffle(top[0], bottom[0], odd),
        shuffle(top[1], bottom[1], odd),
    ]


@instruction(types.void, types.int64, types.int64, types.int64)
def join_pairs(builder: Any, target: Any, first: Any, second: Any) -> None:
    """Store LANES words made of a bfloat16 at *first* (low half) and one at *second*."""
    low = builder.zext(load(builder, first, LLVM_VH), LLVM_VI)
    high = builder.zext(load(builder, second, LLVM_VH), LLVM_VI)
    shifted = builder.shl(high, splat_of(builder, ir.Constant(I32, 16)))
    store(builder, target, builder.or_(low, shifted))


@instruction(types.void, types.int64, types.int64, types.int64)
def widen_pairs(builder: Any, pairs: Any, low: Any, high: Any) -> None:
    """Store the bfloat16 in the low and in the high halves of LANES words as float32."""
    low_floats, high_floats = _halves(builder, load(builder, pairs, LLVM_VI))
    store(builder, low, low_floats)
    store(builder, high, high_floats)


HAS_PAIRS = TARGET.bf16_dot and LANES == 16
