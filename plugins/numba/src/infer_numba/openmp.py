"""Torch's own OpenMP runtime: kernels run on its threads, so that there is no second pool."""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

logger = logging.getLogger(__name__)

_RUNTIMES = ("libgomp", "libiomp5", "libomp")

Region = Callable[[int, bytes, int, int], None]


@lru_cache(maxsize=1)
def parallel_region() -> Region | None:
    """Return ``GOMP_parallel(function, argument, threads, flags)`` of the runtime in use.

    None, with the reason in the log, when this process has no OpenMP runtime loaded: kernels then
    run in the calling thread.
    """
    for path in _loaded_runtimes():
        try:
            function: Any = ctypes.CDLL(path).GOMP_parallel
        except (OSError, AttributeError) as error:
            logger.debug("OpenMP runtime %s is not usable: %s", path, error)
            continue
        function.restype = None
        function.argtypes = (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_uint, ctypes.c_uint)
        return function  # type: ignore[no-any-return]
    logger.warning("no OpenMP runtime with GOMP_parallel is loaded: kernels use one thread")
    return None


def _loaded_runtimes() -> list[str]:
    """Paths of the OpenMP runtimes that this process has loaded; torch's folder first."""
    import torch

    folder = os.path.dirname(torch.__file__)
    maps = Path("/proc/self/maps")
    if sys.platform != "linux" or not maps.exists():
        return [str(path) for path in sorted(Path(folder, "lib").glob("lib*omp*"))]
    found = set()
    for line in maps.read_text(encoding="utf-8", errors="replace").splitlines():
        _, _, path = line.partition("/")
        if os.path.basename(path).startswith(_RUNTIMES):
            found.add("/" + path)
    return sorted(found, key=lambda path: (not path.startswith(folder), path))
