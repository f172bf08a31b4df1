"""The processor that kernels are compiled for."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path

_CPUINFO = Path("/proc/cpuinfo")
_CPUINFO_FIELDS = ("vendor_id", "cpu family", "model", "flags", "Features", "CPU part")


@dataclass(frozen=True)
class Target:
    """A processor as LLVM names it.

    lanes: float32 elements of one vector register.
    bf16_dot: it multiplies pairs of bfloat16 into float32 sums (AVX512-BF16).
    """

    cpu: str
    features: str
    lanes: int
    bf16_dot: bool


def host_target() -> Target:
    """Return this machine, or what ``NUMBA_CPU_NAME`` and ``NUMBA_CPU_FEATURES`` say of it."""
    import llvmlite.binding as llvm

    cpu = os.environ.get("NUMBA_CPU_NAME") or llvm.get_host_cpu_name()
    features = os.environ.get("NUMBA_CPU_FEATURES")
    if features is None:
        features = llvm.get_host_cpu_features().flatten()
    enabled = {feature[1:] for feature in features.split(",") if feature.startswith("+")}
    if "avx512f" in enabled:
        lanes = 16
    elif "avx2" in enabled:
        lanes = 8
    else:
        lanes = 4
    return Target(
        cpu=cpu,
        features=features,
        lanes=lanes,
        bf16_dot={"avx512bf16", "avx512bw"} <= enabled,
    )


def host_fingerprint() -> str:
    """Return text that differs wherever :func:`host_target` may, without importing llvmlite."""
    overrides = [os.environ.get(name, "") for name in ("NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES")]
    return "\n".join([platform.machine(), platform.system(), *overrides, *_cpuinfo_lines()])


def _cpuinfo_lines() -> list[str]:
    """The lines of the first processor in /proc/cpuinfo that say what it can do."""
    if not _CPUINFO.exists():
        return [platform.processor()]
    found = []
    for line in _CPUINFO.read_text(encoding="utf-8", errors="replace").splitlines():
        if not line.strip():
            break
        if line.partition(":")[0].strip() in _CPUINFO_FIELDS:
            found.append(line)
    return found
