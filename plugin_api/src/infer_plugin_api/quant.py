"""Quantization as data: a scheme says what the weights are, never how they are computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from infer_plugin_api.weights import WeightReader


@dataclass(frozen=True, kw_only=True)
class QuantScheme:
    """How a weight matrix is stored. ``name == "none"`` is a plain floating-point matrix."""

    name: str = "none"
    bits: int = 16
    group_size: int | None = None
    symmetric: bool = True


UNQUANTIZED = QuantScheme()


@dataclass(frozen=True)
class LinearWeight:
    """A weight in its scheme's canonical layout.

    weight: [out_features, in_features] when the scheme is unquantized.
    extra: further tensors of the scheme (scales, zero points) by name.
    """

    scheme: QuantScheme
    weight: torch.Tensor
    extra: Mapping[str, torch.Tensor]

    @property
    def out_features(self) -> int:
        return int(self.weight.shape[0])

    @property
    def in_features(self) -> int:
        return int(self.weight.shape[1])


class Quantizer(ABC):
    """Reads one linear layer's weights from a checkpoint into a scheme."""

    @abstractmethod
    def configure(self, config: Mapping[str, Any]) -> None:
        """Take the checkpoint's ``quantization_config`` (empty when it has none).

        Raises ValueError naming the field when it can't be understood.
        """

    @abstractmethod
    def load_linear(
        self, reader: WeightReader, names: tuple[str, ...], dtype: torch.dtype
    ) -> LinearWeight:
        """Read the matrices *names* (joined along out_features) as *dtype*.

        Raises KeyError with the name of a missing tensor.
        """
