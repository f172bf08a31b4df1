"""Linear layers by oneDNN with weights packed once for its kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from infer_plugin_api.linear import LinearContext, LinearKernel

if TYPE_CHECKING:
    from infer_plugin_api.linear import LinearFn
    from infer_plugin_api.quant import LinearWeight

_PACK_ROWS = 16
"""Row count that the packed layout is made for. Layouts made for 1 row are slow beyond it in
float32; the one for 16 is as quick at 1 row."""


class OneDNNLinear(LinearKernel):
    """Packed weights read at nearly the memory's speed for one row and are never slower above.

    Rows are computed independently of their number: a single row, which oneDNN sums in another
    order in float32 and for long rows, is computed as two.
    """

    def supports(self, context: LinearContext) -> str | None:
        if not torch._C._has_mkldnn:
            return "this torch was built without oneDNN"
        if context.dtype == "bfloat16" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return "this CPU has no bfloat16 instructions (AVX512-BF16 or AMX)"
        if context.dtype not in ("bfloat16", "float32"):
            return f"oneDNN packs bfloat16 and float32 weights here, not {context.dtype}"
        return None

    def pack(
        self, weight: LinearWeight, bias: torch.Tensor | None, context: LinearContext
    ) -> LinearFn:
        matrix = weight.weight.to(getattr(torch, context.dtype)).contiguous()
        packed = torch.ops.mkldnn._reorder_linear_weight(matrix, _PACK_ROWS)
        pointwise = torch.ops.mkldnn._linear_pointwise.default
        no_scalars: list[float] = []

        def linear(x: torch.Tensor) -> torch.Tensor:
            y: torch.Tensor = pointwise(x, packed, bias, "none", no_scalars, "")
            return y

        def invariant(x: torch.Tensor) -> torch.Tensor:
            if x.shape[0] == 1:
                return linear(x.expand(2, -1).contiguous())[:1]
            return linear(x)

        return invariant if context.dtype == "float32" or context.in_features > 1024 else linear
