"""NVIDIA GPUs as a platform."""

from __future__ import annotations

import torch

from infer_plugin_api.platform import Platform


class CUDAPlatform(Platform):
    """GPUs that this torch can use."""

    def unavailable(self) -> str | None:
        if torch.version.cuda is None:
            return "this torch was built without CUDA"
        if not torch.cuda.is_available():
            return "no CUDA device is visible"
        return None

    def device(self, local_rank: int) -> torch.device:
        return torch.device("cuda", local_rank)

    def available_memory(self, device: torch.device) -> int:
        free, _total = torch.cuda.mem_get_info(device)
        return int(free)

    def activation_dtype(self, dtype: str) -> str:
        return dtype

    def describe(self) -> dict[str, str]:
        facts = {"cuda": str(torch.version.cuda)}
        for index in range(torch.cuda.device_count()):
            properties = torch.cuda.get_device_properties(index)
            facts[f"gpu{index}"] = f"{properties.name}, {properties.total_memory >> 30} GiB"
        return facts
