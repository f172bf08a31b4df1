"""The thread plan: who may compute on which cores, decided before torch is imported.

Libraries under torch read these settings from the environment, once.
"""

from __future__ import annotations

import os

_SPIN_COUNT = "2000"

_KERNEL_CACHES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
_KEPT_KERNELS = "128"
"""oneDNN compiles a kernel for every shape it meets, some 0.2 MB each, and torch keeps its own list
of them. A server meets every number of rows sooner or later: by default 1,024 would be kept."""


def compute_threads(wanted: int | None) -> int:
    """Return the engine's compute threads: as asked, or one per core this process may use."""
    if wanted is not None:
        return wanted
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def serving_environment(threads: int) -> dict[str, str]:
    """Return variables for an engine process that shares its cores with an API process.

    OpenMP's workers sleep soon after a parallel region instead of spinning: a spinning worker
    would take the core that tokenizing, detokenizing and HTTP need. The caches of oneDNN's kernels
    are bounded, unless the user has set their size.
    """
    return {name: os.environ.get(name, _KEPT_KERNELS) for name in _KERNEL_CACHES} | {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": _SPIN_COUNT,
        "KMP_BLOCKTIME": "0",
    }
