"""Compile every kernel to one object file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import llvmlite.binding as llvm
import numba
from numba import types

from infer_numba.kernels import activation, argmax, attention, linear, norm, rope
from infer_numba.target import Target


def kernel_sources() -> dict[str, Callable[..., Any]]:
    """Return every kernel's Python function by its name."""
    found: dict[str, Callable[..., Any]] = {}
    for module in (norm, activation, rope, argmax, linear, attention):
        found.update(module.kernels())
    return found


def compile_kernels(target: Target, announce: Callable[[str], None]) -> tuple[bytes, list[str]]:
    """Return an object file with one C function ``void NAME(int64_t arguments)`` per kernel."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    modules = []
    names = []
    for name, source in kernel_sources().items():
        announce(f"compiling {name}")
        compiled = numba.cfunc(types.void(types.int64), error_model="numpy")(source)
        text = compiled.inspect_llvm()
        modules.append(_extract(text, compiled.native_name, name))
        names.append(name)
    merged = modules[0]
    for module in modules[1:]:
        merged.link_in(module)
    merged.verify()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=target.cpu,
        features=target.features,
        opt=3,
        reloc="static",
        codemodel="jitdefault",
        jit=True,
    )
    return machine.emit_object(merged), names


def _extract(text: str, symbol: str, name: str) -> llvm.ModuleRef:
    """Return the module with *symbol* renamed to *name* and everything else private to it."""
    module = llvm.parse_assembly(text.replace(symbol, name))
    for function in module.functions:
        if not function.is_declaration and function.name != name:
            function.linkage = llvm.Linkage.internal
    for variable in module.global_variables:
        if not variable.is_declaration:
            variable.linkage = llvm.Linkage.internal
    return module
