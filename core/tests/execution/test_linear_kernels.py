"""Linear kernels: right against float64, and rows that do not depend on their number."""

from __future__ import annotations

import pytest
import torch

from infer.execution.linears.onednn import OneDNNLinear
from infer.execution.linears.torch_linear import TorchLinear
from infer_plugin_api.linear import LinearContext, LinearKernel
from infer_plugin_api.quant import UNQUANTIZED, LinearWeight

SHAPES = [(576, 960), (1536, 576), (64, 128), (60, 36), (33, 17)]
ROWS = [1, 2, 3, 5, 8, 16, 17, 33, 64, 100]
KERNELS: list[type[LinearKernel]] = [TorchLinear, OneDNNLinear]


def context(weight: torch.Tensor, dtype: str) -> LinearContext:
    return LinearContext(
        in_features=weight.shape[1],
        out_features=weight.shape[0],
        dtype=dtype,
        weight_dtype=str(weight.dtype).removeprefix("torch."),
        scheme="none",
        device="cpu",
        max_rows=128,
    )


def packed(kernel: type[LinearKernel], weight: torch.Tensor, dtype: str, bias=None):
    asked = context(weight, dtype)
    made = kernel()
    if reason := made.supports(asked):
        pytest.skip(reason)
    return made.pack(LinearWeight(UNQUANTIZED, weight, {}), bias, asked)


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("inner", "outer"), SHAPES)
def test_results_are_those_of_float64(kernel, dtype, inner, outer):
    torch.manual_seed(0)
    kind = getattr(torch, dtype)
    weight, bias = torch.randn(outer, inner).to(kind), torch.randn(outer).to(kind)
    x = torch.randn(9, inner).to(kind)
    expected = x.double() @ weight.double().T + bias.double()
    error = (packed(kernel, weight, dtype, bias)(x).double() - expected).norm() / expected.norm()
    assert error < (1e-6 if dtype == "float32" else 3e-3)


@pytest.mark.parametrize("kernel", KERNELS)
def test_weights_of_another_dtype_than_the_activations_are_widened(kernel):
    weight, x = torch.randn(32, 16).bfloat16(), torch.randn(3, 16)
    y = packed(kernel, weight, "float32")(x)
    assert y.dtype == torch.float32
    torch.testing.assert_close(y, x @ weight.float().T, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("inner", "outer"), SHAPES)
def test_a_row_of_onednn_does_not_depend_on_the_number_of_rows(dtype, inner, outer):
    torch.manual_seed(1)
    kind = getattr(torch, dtype)
    linear = packed(OneDNNLinear, torch.randn(outer, inner).to(kind), dtype)
    x = torch.randn(max(ROWS), inner).to(kind)
    whole = linear(x)
    for rows in ROWS:
        assert torch.equal(linear(x[:rows].contiguous()), whole[:rows]), rows
        assert torch.equal(linear(x[-rows:].contiguous()), whole[-rows:]), rows


def test_onednn_says_why_it_refuses():
    asked = context(torch.zeros(4, 4), "float16")
    assert "float16" in str(OneDNNLinear().supports(asked))
