"""Arithmetic, comparisons and reductions of vectors; exist inside kernels only."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types

from infer_numba.kernels.vector import (
    F32,
    I32,
    I64,
    LANES,
    LLVM_VF,
    LLVM_VI,
    VF,
    VI,
    VM,
    call,
    instruction,
    splat_of,
    vector_constant,
)


@instruction(VF, types.float32)
def splat(builder: Any, value: Any) -> Any:
    return splat_of(builder, value)


@instruction(VI, types.int64)
def isplat(builder: Any, value: Any) -> Any:
    return splat_of(builder, builder.trunc(value, I32))


@instruction(VI)
def iota(builder: Any) -> Any:
    return vector_constant(list(range(LANES)))


@instruction(VF, VF, VF, of=operator.add)
def _add(builder: Any, left: Any, right: Any) -> Any:
    return builder.fadd(left, right)


@instruction(VF, VF, VF, of=operator.sub)
def _sub(builder: Any, left: Any, right: Any) -> Any:
    return builder.fsub(left, right)


@instruction(VF, VF, VF, of=operator.mul)
def _mul(builder: Any, left: Any, right: Any) -> Any:
    return builder.fmul(left, right)


@instruction(VF, VF, VF, of=operator.truediv)
def _div(builder: Any, left: Any, right: Any) -> Any:
    return builder.fdiv(left, right)


@instruction(VF, VF, VF, VF)
def fma(builder: Any, left: Any, right: Any, addend: Any) -> Any:
    """left * right + addend, in one rounding where the processor has it."""
    name = f"llvm.fmuladd.v{LANES}f32"
    return call(builder, name, LLVM_VF, left, right, addend)


@instruction(VF, VF, VF)
def vmax(builder: Any, left: Any, right: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", left, right), left, right)


@instruction(VF, VF, VF)
def vmin(builder: Any, left: Any, right: Any) -> Any:
    return builder.select(builder.fcmp_ordered("<", left, right), left, right)


@instruction(VF, VF)
def vabs(builder: Any, value: Any) -> Any:
    return call(builder, f"llvm.fabs.v{LANES}f32", LLVM_VF, value)


@instruction(VF, VF, VF)
def copy_sign(builder: Any, size: Any, sign: Any) -> Any:
    return call(builder, f"llvm.copysign.v{LANES}f32", LLVM_VF, size, sign)


@instruction(VI, VI, VI)
def iadd(builder: Any, left: Any, right: Any) -> Any:
    return builder.add(left, right)


@instruction(VF, VF)
def round_to_int(builder: Any, value: Any) -> Any:
    """Nearest integers; |value| < 2^22 is given."""
    magic = splat_of(builder, ir.Constant(F32, 12582912.0))
    return builder.fsub(builder.fadd(value, magic), magic)


@instruction(VF, VF)
def pow2_int(builder: Any, value: Any) -> Any:
    """2 to the power of each element, which is an integer in -126 ... 127."""
    whole = builder.fptosi(value, LLVM_VI)
    biased = builder.add(whole, splat_of(builder, ir.Constant(I32, 127)))
    return builder.bitcast(builder.shl(biased, splat_of(builder, ir.Constant(I32, 23))), LLVM_VF)


@instruction(VM, VI, VI)
def is_less(builder: Any, left: Any, right: Any) -> Any:
    return builder.icmp_signed("<", left, right)


@instruction(VM, VF, VF)
def is_below(builder: Any, left: Any, right: Any) -> Any:
    return builder.fcmp_ordered("<", left, right)


@instruction(VM, VF, VF)
def is_same(builder: Any, left: Any, right: Any) -> Any:
    return builder.fcmp_ordered("==", left, right)


@instruction(VM, VF)
def is_nan(builder: Any, value: Any) -> Any:
    return builder.fcmp_unordered("uno", value, value)


@instruction(VM, VM, VM)
def mask_or(builder: Any, left: Any, right: Any) -> Any:
    return builder.or_(left, right)


@instruction(types.int64, VM)
def mask_bits(builder: Any, mask: Any) -> Any:
    """One bit per lane, lane 0 lowest."""
    return builder.zext(builder.bitcast(mask, ir.IntType(LANES)), I64)


@instruction(VF, VM, VF, VF)
def choose(builder: Any, mask: Any, yes: Any, no: Any) -> Any:
    return builder.select(mask, yes, no)


@instruction(types.float32, VF)
def first_lane(builder: Any, value: Any) -> Any:
    return builder.extract_element(value, ir.Constant(I32, 0))


@instruction(types.float32, VF)
def sum_lanes(builder: Any, value: Any) -> Any:
    """Sum by halves, the same order everywhere."""
    return _fold(builder, value, builder.fadd)


@instruction(types.float32, VF)
def max_lanes(builder: Any, value: Any) -> Any:
    def larger(left: Any, right: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", left, right), left, right)

    return _fold(builder, value, larger)


def _fold(builder: Any, value: Any, combine: Callable[[Any, Any], Any]) -> Any:
    count = LANES
    while count > 1:
        count //= 2
        undefined = ir.Constant(value.type, ir.Undefined)
        low = builder.shuffle_vector(value, undefined, vector_constant(list(range(count))))
        high = builder.shuffle_vector(
            value, undefined, vector_constant(list(range(count, 2 * count)))
        )
        value = combine(low, high)
    return builder.extract_element(value, ir.Constant(I32, 0))
