"""The linear kernel, against the conformance kit."""

from __future__ import annotations

import pytest
import torch

import infer_numba
from infer_numba.linear import NumbaLinear
from infer_plugin_api.linear import LinearContext
from infer_plugin_api.quant import UNQUANTIZED, LinearWeight
from infer_plugin_api.testing.linear import LinearConformance


class TestNumbaLinear(LinearConformance):
    descriptor = infer_numba.infer_linear_kernels()[0]


def context(inputs: int, outputs: int, dtype: str) -> LinearContext:
    return LinearContext(
        in_features=inputs,
        out_features=outputs,
        dtype=dtype,
        weight_dtype=dtype,
        scheme=UNQUANTIZED.name,
        device="cpu",
        max_rows=64,
    )


def test_odd_inputs_in_bfloat16_are_refused_with_the_reason() -> None:
    reason = NumbaLinear().supports(context(7, 8, "bfloat16"))
    assert reason
    assert "even number" in reason or "no instructions" in reason


def test_rows_of_a_larger_matrix_need_no_copy() -> None:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(70, 32, generator=generator)
    linear = NumbaLinear().pack(
        LinearWeight(UNQUANTIZED, weight, {}), None, context(32, 70, "float32")
    )
    wide = torch.randn(9, 80, generator=generator)
    torch.testing.assert_close(linear(wide[:, 16:48]), wide[:, 16:48] @ weight.T)


def test_no_rows_give_no_rows() -> None:
    linear = NumbaLinear().pack(
        LinearWeight(UNQUANTIZED, torch.ones(5, 4), {}), None, context(4, 5, "float32")
    )
    assert linear(torch.empty(0, 4)).shape == (0, 5)


@pytest.mark.parametrize("outputs", [1, 63, 64, 65, 3000])
def test_columns_past_the_last_panel_are_not_written(outputs: int) -> None:
    weight = torch.full((outputs, 4), 2.0)
    linear = NumbaLinear().pack(
        LinearWeight(UNQUANTIZED, weight, {}), torch.ones(outputs), context(4, outputs, "float32")
    )
    torch.testing.assert_close(linear(torch.ones(13, 4)), torch.full((13, outputs), 9.0))
