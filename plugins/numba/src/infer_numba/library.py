"""The compiled kernels in memory, and how they are called.

Loading takes llvmlite only: importing numba costs more than everything else at start.
"""

from __future__ import annotations

import ctypes
import logging
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from infer_numba.openmp import parallel_region
from infer_numba.store import Kernels, load_entry
from infer_plugin_api.errors import UnsupportedError

logger = logging.getLogger(__name__)

KernelCall = Callable[[bytes], None]


@dataclass(frozen=True)
class Kernel:
    """One compiled function.

    here(arguments) runs it in the calling thread and keeps the interpreter lock: for a few
    microseconds of work. spread(arguments) runs it on *threads* threads of torch's own pool, each
    of which draws work until none is left.

    arguments: the packed block of words, made for this call: the kernel counts in it.
    """

    here: KernelCall
    spread: KernelCall
    threads: int


@cache
def packer(words: str) -> Callable[..., bytes]:
    """Return a function that packs an argument block: "q" for an integer, "d" for a float."""
    return struct.Struct("=qq" + words).pack


class Library:
    """Every kernel of the stored object file."""

    def __init__(self, kernels: Kernels) -> None:
        import llvmlite.binding as llvm

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        self._engine: Any = llvm.create_mcjit_compiler(llvm.parse_assembly(""), machine)
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(kernels.code))
        self._engine.finalize_object()
        self.lanes = kernels.lanes
        self.names = kernels.names

    def kernel(self, name: str, threads: int) -> Kernel:
        """Return the kernel *name* for at most *threads* threads."""
        address = self._engine.get_function_address(name)
        here = ctypes.PYFUNCTYPE(None, ctypes.c_char_p)(address)
        alone = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(address)
        region = parallel_region() if threads > 1 else None
        if region is None:
            return Kernel(here=here, spread=alone, threads=1)

        def spread(arguments: bytes) -> None:
            region(address, arguments, threads, 0)

        return Kernel(here=here, spread=spread, threads=threads)


@lru_cache(maxsize=1)
def library() -> Library:
    """Return the loaded kernels, once per process.

    Raises UnsupportedError when they have not been compiled for this machine.
    """
    kernels = load_entry()
    if kernels is None:
        raise UnsupportedError(
            "the numba kernels are not compiled for this machine yet; run `infer tune`"
        )
    return Library(kernels)
