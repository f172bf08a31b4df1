"""What this machine computes with, without torch."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

_FLAGS = {
    "avx2": "avx2",
    "avx512f": "avx512",
    "avx512_bf16": "avx512_bf16",
    "avx512_vnni": "avx512_vnni",
    "amx_tile": "amx",
    "amx_bf16": "amx_bf16",
    "amx_int8": "amx_int8",
    "asimd": "neon",
    "sve": "sve",
    "bf16": "bf16",
    "i8mm": "i8mm",
}
"""Names in /proc/cpuinfo that decide which kernels are fast, with what people call them."""

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_CGROUP_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def cpu_facts() -> dict[str, Any]:
    """Return model, instruction sets and cores; what the system does not say is "not known"."""
    info = _fields(_CPUINFO)
    flags = set(info.get("flags", info.get("Features", "")).split())
    known = [label for flag, label in _FLAGS.items() if flag in flags]
    return {
        "cpu": info.get("model name") or platform.processor() or platform.machine(),
        "cpu flags": " ".join(known) or "not known",
        "cores": f"{usable_cores()} usable of {os.cpu_count()}",
    }


def usable_cores() -> int:
    """Return the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_facts() -> dict[str, Any]:
    """Return the memory of the machine, what is free, and the limit of this control group."""
    info = _fields(_MEMINFO)
    if "MemTotal" not in info:
        return {"memory": "not known"}
    total, free = (_bytes(info[name]) for name in ("MemTotal", "MemAvailable"))
    text = f"{_gib(total)}, {_gib(free)} available"
    limit = _cgroup_limit()
    if limit is not None and limit < total:
        text += f", limited to {_gib(limit)}"
    return {"memory": text}


def _fields(path: Path) -> dict[str, str]:
    """Return ``name: value`` lines; the first of a name counts. Empty where there is no file."""
    if not path.is_file():
        return {}
    found: dict[str, str] = {}
    for line in path.read_text().splitlines():
        name, colon, value = line.partition(":")
        if colon:
            found.setdefault(name.strip(), value.strip())
    return found


def _cgroup_limit() -> int | None:
    for path in _CGROUP_LIMITS:
        if path.is_file() and (text := path.read_text().strip()).isdigit():
            return int(text)
    return None


def _bytes(kibibytes: str) -> int:
    return int(kibibytes.split()[0]) * 1024


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"
