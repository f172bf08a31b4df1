"""Linear layers by ``torch.nn.functional.linear``: works everywhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.nn import functional

from infer_plugin_api.linear import LinearContext, LinearKernel

if TYPE_CHECKING:
    import torch

    from infer_plugin_api.linear import LinearFn
    from infer_plugin_api.quant import LinearWeight


class TorchLinear(LinearKernel):
    """Holds the weight as it is; weights of another dtype than the activations are converted."""

    def pack(
        self, weight: LinearWeight, bias: torch.Tensor | None, context: LinearContext
    ) -> LinearFn:
        matrix = weight.weight
        if str(matrix.dtype) != f"torch.{context.dtype}":
            import torch

            matrix = matrix.to(getattr(torch, context.dtype))

        def linear(x: torch.Tensor) -> torch.Tensor:
            return functional.linear(x, matrix, bias)

        return linear
