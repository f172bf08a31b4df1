"""What built-in linear kernels promise beyond the conformance kit."""

from __future__ import annotations

from infer.execution.linears.onednn import OneDNNLinear
from infer_plugin_api.linear import LinearContext
from infer_plugin_api.quant import UNQUANTIZED


def test_onednn_says_why_it_refuses() -> None:
    asked = LinearContext(
        in_features=4,
        out_features=4,
        dtype="float16",
        weight_dtype="float16",
        scheme=UNQUANTIZED.name,
        device="cpu",
        max_rows=128,
    )
    assert "float16" in str(OneDNNLinear().supports(asked))
