"""Checkpoint files: names to tensors, read lazily."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class TensorInfo:
    """A stored tensor before it is read: its logical shape and its size in the file (bytes)."""

    shape: tuple[int, ...]
    nbytes: int


class WeightReader(ABC):
    """An open checkpoint. Names are those of the Hugging Face model, whatever the file says."""

    @abstractmethod
    def tensors(self) -> Mapping[str, TensorInfo]:
        """Return every tensor's name and info, without reading data."""

    @abstractmethod
    def read(self, name: str) -> torch.Tensor:
        """Return the tensor *name* on the CPU, memory-mapped where the format can.

        Formats that store low-bit blocks dequantize to float32. Raises KeyError.
        """

    def close(self) -> None:  # noqa: B027 - most readers have nothing to release
        """Release files; tensors that were read stay valid."""


class WeightFormat(ABC):
    """A file format. Instances are cheap and hold no state."""

    @abstractmethod
    def open(self, path: Path, config: Mapping[str, Any]) -> WeightReader:
        """Open the checkpoint at *path* (a folder or a file) of a model with *config*.

        Raises :class:`~infer_plugin_api.errors.ModelError` naming file and fault.
        """

    def config(self, path: Path) -> dict[str, Any] | None:
        """Return a Hugging Face style config that the file itself carries, else None.

        Reads metadata only and imports no torch.
        """
        return None
