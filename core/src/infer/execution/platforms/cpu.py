"""The CPU as a platform."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from infer_plugin_api.platform import Platform

_CACHE_SHARE = 4
_CACHE_LIMIT = 4 << 30
_MEMINFO = Path("/proc/meminfo")


class CPUPlatform(Platform):
    """Always there. The KV cache takes a quarter of the free memory, 4 GiB at most."""

    def unavailable(self) -> str | None:
        return None

    def device(self, local_rank: int) -> torch.device:
        return torch.device("cpu")

    def available_memory(self, device: torch.device) -> int:
        return min(free_memory() // _CACHE_SHARE, _CACHE_LIMIT)

    def activation_dtype(self, dtype: str) -> str:
        if dtype == "bfloat16" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return "float32"
        if dtype == "float16":
            return "float32"
        return dtype

    def describe(self) -> dict[str, str]:
        return {
            "machine": platform.machine(),
            "capability": torch.backends.cpu.get_cpu_capability(),
            "threads": str(torch.get_num_threads()),
            "free_memory_bytes": str(free_memory()),
        }


def free_memory() -> int:
    """Bytes that could be allocated without swapping; half of nothing known is 2 GiB."""
    if _MEMINFO.exists():
        for line in _MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    return 2 << 30
