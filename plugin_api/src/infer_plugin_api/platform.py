"""Kinds of device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Platform(ABC):
    """One kind of device, e.g. the CPU or CUDA GPUs."""

    @abstractmethod
    def unavailable(self) -> str | None:
        """Say why this machine has no such device, or None when it has."""

    @abstractmethod
    def device(self, local_rank: int) -> torch.device:
        """Return the device of a worker."""

    @abstractmethod
    def available_memory(self, device: torch.device) -> int:
        """Return bytes that a new KV cache could take now."""

    @abstractmethod
    def activation_dtype(self, dtype: str) -> str:
        """Return the dtype that activations have when weights are stored as *dtype*.

        A device that can only widen a dtype (bfloat16 on an old CPU) says so here.
        """

    @abstractmethod
    def describe(self) -> dict[str, str]:
        """Return facts for ``infer env``: device names, memory, instruction sets, driver."""
