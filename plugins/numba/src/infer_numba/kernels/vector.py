"""Vector registers as a numba type, and the instructions on them.

Memory is addressed by int64. A vector holds LANES elements of 32 bits. Code written with it
compiles to the instructions it names on every processor, which loops left to LLVM's vectorizer
do not. The functions below exist inside kernels only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.core.typing.templates import ConcreteTemplate, infer_global, signature
from numba.extending import lower_builtin, models, register_model

from infer_numba.target import host_target

TARGET = host_target()
LANES = TARGET.lanes
BYTES = 4 * LANES
"""Bytes of one vector in memory."""

Compiled = TypeVar("Compiled", bound=Callable[..., Any])


def inline(function: Compiled) -> Compiled:
    """Compile a helper that becomes part of every kernel that calls it."""
    compiled: Any = njit(forceinline=True, error_model="numpy")(function)
    return compiled


def outline(function: Compiled) -> Compiled:
    """Compile a helper that kernels may call as a function."""
    compiled: Any = njit(error_model="numpy")(function)
    return compiled


I16, I32, I64 = ir.IntType(16), ir.IntType(32), ir.IntType(64)
F32, F64 = ir.FloatType(), ir.DoubleType()


class VectorType(types.Type):
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
class _VectorModel(models.PrimitiveModel):
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


def field_reader(kind: type[Any]) -> Callable[..., Any]:
    """Make a function that reads a tuple *kind* of 64-bit words from an address, all as int64."""
    fields = len(kind._fields)

    def emit(builder: Any, address: Any) -> Any:
        return load(builder, address, ir.ArrayType(I64, fields))

    emit.__name__ = f"read_{kind.__name__}"
    return instruction(types.NamedUniTuple(types.int64, fields, kind), types.int64)(emit)


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
def real(builder: Any, bits: Any) -> Any:
    """The float64 of these bits, as float32."""
    return builder.fptrunc(builder.bitcast(bits, F64), F32)


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
    """Ask for the cache line at *address* in the second-level cache.

    Asking for it in the first level would be bounded by the few misses that one can have open.
    """
    place = builder.inttoptr(address, ir.IntType(8).as_pointer())
    kind = ir.FunctionType(ir.VoidType(), [place.type, I32, I32, I32])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [place, *(ir.Constant(I32, value) for value in (0, 2, 1))])


@instruction(types.float32, types.int64)
def to_f32(builder: Any, value: Any) -> Any:
    return builder.sitofp(value, F32)


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


class BFloatType(ir.Type):
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
