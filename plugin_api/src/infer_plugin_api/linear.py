"""Linear kernels: how ``x @ W.T + b`` is computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    from infer_plugin_api.quant import LinearWeight

    LinearFn = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class LinearContext:
    """What a kernel is asked to serve. dtype is that of x and of the result.

    max_rows bounds M of any call; device is where x lives.
    """

    in_features: int
    out_features: int
    dtype: str
    weight_dtype: str
    scheme: str
    device: str
    max_rows: int


class LinearKernel(ABC):
    """A kernel for one or more schemes. ``supports`` is asked before ``pack``."""

    def supports(self, context: LinearContext) -> str | None:
        """Say why this layer can't be served beyond what the descriptor says, or None."""
        return None

    @abstractmethod
    def pack(
        self, weight: LinearWeight, bias: torch.Tensor | None, context: LinearContext
    ) -> LinearFn:
        """Prepare the weight once and return the function x [M, in] -> y [M, out].

        The function may keep *weight* or a repacked copy; it returns a new or reused tensor that
        the caller consumes before calling the same function again.
        """
