"""Ahead-of-time compilation: what ``infer tune`` runs for this plugin."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from infer_numba.store import Kernels, has_entry, save_entry

if TYPE_CHECKING:
    from infer_plugin_api.prepare import PrepareContext


def is_prepared() -> bool:
    """Say whether this machine's kernels are compiled; reads one small file."""
    return has_entry()


def prepare(context: PrepareContext) -> None:
    """Compile every kernel for this machine and store them, unless they are stored already."""
    if has_entry() and not context.force:
        context.announce("numba kernels are compiled for this machine already")
        return
    from infer_numba.kernels.compile import compile_kernels
    from infer_numba.target import host_target

    target = host_target()
    start = time.perf_counter()
    code, names = compile_kernels(target, context.announce)
    path = save_entry(Kernels(code=code, names=tuple(names), lanes=target.lanes))
    seconds = time.perf_counter() - start
    context.announce(f"compiled {len(names)} kernels for {target.cpu} in {seconds:.0f} s: {path}")
