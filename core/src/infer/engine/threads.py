"""The thread plan: who may compute on which cores, decided before torch is imported."""

from __future__ import annotations

import os

_SPIN_COUNT = "2000"


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
    would take the core that tokenizing, detokenizing and HTTP need.
    """
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",
        "GOMP_SPINCOUNT": _SPIN_COUNT,
        "KMP_BLOCKTIME": "0",
    }
