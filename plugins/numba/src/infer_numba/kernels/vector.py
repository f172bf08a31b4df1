"""Vector registers as a numba type, and the instructions on them.

Memory is addressed by int64. A vector holds LANES elements of 32 bits. Code written with it
compiles to the instructions it names on every processor, which loops left to LLVM's vectorizer
do not. The functions below exist inside kernels only.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.core.typing import signature
from numba.core.typing.templates import ConcreteTemplate, infer_global
from numba.extending import lower_builtin, models, register_model

from infer_numba.target import host_target

TARGET = host_target()
LANES = TARGET.lanes
BYTES = 4 * LANES
"""Bytes of one vector in memory."""

inline = njit(forceinline=True, error_model="numpy", no_cpython_wrapper=True)
outline = njit(error_model="numpy", no_cpython_wrapper=True)

I16, I32, I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
F32, F64 = ir.FloatType(), ir.DoubleType()


class VectorType(types.Type):  # type: ignore[misc]
    """LANES elements of float32 (kind "f"), int32 ("i") or bool ("m")."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(name=f"vector_{kind}{LANES}")


VF, VI, VM = VectorType("f"), VectorType("i"), VectorType("m")
LLVM_VF, LLVM_VI, LLVM_VM, LLVM_VH = (
    ir.VectorType(element, LANES) for element in (F32, I32, ir.IntType(1), I16)
)
_LLVM_TYPES = {"f": LLVM_VF, "i": LLVM_VI, "m": LLVM_VM}


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, dmm: Any, fe_type: VectorType) -> None:
        super().__init__(dmm, fe_type, _LLVM_TYPES[fe_type.kind])


def instruction(
    result: Any, *arguments: Any, of: Any = None
) -> Callable[[Callable[..., Any]], Any]:
    """Make ``emit(builder, *values)`` callable in kernels, as itself or as the operator *of*."""

    def wrap(emit: Callable[..., Any]) -> Any:
        key = of or emit
        cases = [signature(result, *arguments)]
        template = type(emit.__name__, (ConcreteTemplate,), {"key": key, "cases": cases})
        infer_global(key, types.Function(template))

        def lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            value = emit(builder, *args)
            return context.get_dummy_value() if value is None else value

        lower_builtin(key, *arguments)(lower)
        return emit

    return wrap


def vector_constant(values: list[Any], element: ir.Type = I32) -> ir.Constant:
    return ir.Constant(ir.VectorType(element, len(values)), values)


def splat_of(builder: ir.IRBuilder, value: Any, lanes: int = LANES) -> Any:
    """Emit a vector of *lanes* copies of *value*."""
    kind = ir.VectorType(value.type, lanes)
    single = builder.insert_element(ir.Constant(kind, ir.Undefined), value, ir.Constant(I32, 0))
    return builder.shuffle_vector(
        single, ir.Constant(kind, ir.Undefined), vector_constant([0] * lanes)
    )


def pointer(builder: ir.IRBuilder, address: Any, kind: ir.Type) -> Any:
    return builder.inttoptr(address, kind.as_pointer())


def load(builder: ir.IRBuilder, address: Any, kind: ir.Type) -> Any:
    return builder.load(pointer(builder, address, kind), align=1)


def store(builder: ir.IRBuilder, address: Any, value: Any) -> None:
    builder.store(value, pointer(builder, address, value.type), align=1)


def call(builder: ir.IRBuilder, name: str, result: ir.Type, *values: Any) -> Any:
    """Emit a call of the LLVM intrinsic *name*."""
    kind = ir.FunctionType(result, [value.type for value in values])
    function = cgutils.get_or_insert_function(builder.module, kind, name)
    return builder.call(function, values)


# ---- scalars ------------------------------------------------------------------------------------


@instruction(types.int64, types.int64)
def load_i64(builder: Any, address: Any) -> Any:
    return builder.load(pointer(builder, address, I64), align=8)


@instruction(types.int64, types.int64)
def load_i32(builder: Any, address: Any) -> Any:
    return builder.sext(builder.load(pointer(builder, address, I32), align=4), I64)


@instruction(types.void, types.int64, types.int64)
def store_i64(builder: Any, address: Any, value: Any) -> None:
    builder.store(value, pointer(builder, address, I64), align=8)


@instruction(types.void, types.int64, types.int64)
def store_i32(builder: Any, address: Any, value: Any) -> None:
    builder.store(builder.trunc(value, I32), pointer(builder, address, I32), align=4)


@instruction(types.float32, types.int64)
def load_f32(builder: Any, address: Any) -> Any:
    return builder.load(pointer(builder, address, F32), align=4)


@instruction(types.float32, types.int64)
def load_f64_as_f32(builder: Any, address: Any) -> Any:
    return builder.fptrunc(builder.load(pointer(builder, address, F64), align=8), F32)


@instruction(types.void, types.int64, types.float32)
def store_f32(builder: Any, address: Any, value: Any) -> None:
    builder.store(value, pointer(builder, address, F32), align=4)


@instruction(types.float32, types.int64)
def load_bf16(builder: Any, address: Any) -> Any:
    bits = builder.zext(builder.load(pointer(builder, address, I16), align=2), I32)
    return builder.bitcast(builder.shl(bits, ir.Constant(I32, 16)), F32)


@instruction(types.void, types.int64, types.float32)
def store_bf16(builder: Any, address: Any, value: Any) -> None:
    bits = _round_bf16(builder, value, I32)
    builder.store(builder.trunc(bits, I16), pointer(builder, address, I16), align=2)


@instruction(types.void, types.int64, types.int64)
def copy_16(builder: Any, target: Any, source: Any) -> None:
    store(builder, target, load(builder, source, I16))


@instruction(types.void, types.int64, types.int64)
def copy_32(builder: Any, target: Any, source: Any) -> None:
    store(builder, target, load(builder, source, I32))


@instruction(types.int64, types.int64, types.int64)
def fetch_add(builder: Any, address: Any, value: Any) -> Any:
    """Add to a counter that threads share; return what it held before."""
    return builder.atomic_rmw("add", pointer(builder, address, I64), value, "acq_rel")


@instruction(types.void, types.int64)
def prefetch(builder: Any, address: Any) -> None:
    """Ask for the cache line at *address*."""
    place = builder.inttoptr(address, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [place.type, I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [place, *(ir.Constant(I32, value) for value in (0, 1, 1))])


@instruction(types.float32, types.float32)
def sqrt(builder: Any, value: Any) -> Any:
    return call(builder, "llvm.sqrt.f32", F32, value)


# ---- memory -------------------------------------------------------------------------------------


@instruction(VF, types.int64)
def vload_f32(builder: Any, address: Any) -> Any:
    return load(builder, address, LLVM_VF)


@instruction(VF, types.int64)
def vload_bf16(builder: Any, address: Any) -> Any:
    """Load LANES bfloat16 elements, widened."""
    wide = builder.zext(load(builder, address, LLVM_VH), LLVM_VI)
    return builder.bitcast(builder.shl(wide, splat_of(builder, ir.Constant(I32, 16))), LLVM_VF)


@instruction(types.void, types.int64, VF)
def vstore_f32(builder: Any, address: Any, value: Any) -> None:
    store(builder, address, value)


@instruction(types.void, types.int64, VF)
def vstore_bf16(builder: Any, address: Any, value: Any) -> None:
    """Store LANES elements rounded to the nearest bfloat16, ties to even."""
    if TARGET.bf16_dot:
        half = ir.VectorType(BFloatType(), LANES)
        rounded = call(builder, f"llvm.x86.avx512bf16.cvtneps2bf16.{32 * LANES}", half, value)
        store(builder, address, builder.bitcast(rounded, LLVM_VH))
        return
    store(builder, address, builder.trunc(_round_bf16(builder, value, LLVM_VI), LLVM_VH))


class BFloatType(ir.Type):  # type: ignore[misc]
    """LLVM's bfloat, which llvmlite has no class for."""

    intrinsic_name = "bf16"

    def _to_string(self) -> str:
        return "bfloat"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BFloatType)

    def __hash__(self) -> int:
        return hash(BFloatType)


def _round_bf16(builder: Any, value: Any, kind: ir.Type) -> Any:
    """Return the bits of *value* rounded to bfloat16, in the low half of each element.

    A NaN whose payload the carry could turn into an infinity keeps a quiet bit instead.
    """

    def constant(number: int) -> Any:
        single = ir.Constant(I32, number)
        return single if kind == I32 else splat_of(builder, single)

    bits = builder.bitcast(value, kind)
    high = builder.lshr(bits, constant(16))
    odd = builder.and_(high, constant(1))
    carried = builder.add(bits, builder.add(odd, constant(0x7FFF)))
    rounded = builder.lshr(carried, constant(16))
    is_nan = builder.fcmp_unordered("uno", value, value)
    return builder.select(is_nan, builder.or_(high, constant(0x40)), rounded)


# ---- arithmetic ---------------------------------------------------------------------------------


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
