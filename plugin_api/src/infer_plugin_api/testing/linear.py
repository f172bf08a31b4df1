"""Conformance of linear kernels for unquantized weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest
import torch
from torch.nn import functional

from infer_plugin_api.descriptors import LinearKernelDescriptor
from infer_plugin_api.linear import LinearContext, LinearKernel
from infer_plugin_api.quant import UNQUANTIZED, LinearWeight
from infer_plugin_api.testing.numerics import assert_accurate, dtype_of, load_implementation

if TYPE_CHECKING:
    from infer_plugin_api.linear import LinearFn

_SHAPES = [(576, 960), (576, 576), (1536, 576), (64, 1000), (100, 7), (1, 1)]


_ROWS = (2, 3, 7, 16, 65)

_each_dtype = pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])


class LinearConformance:
    """Subclass with the kernel's *descriptor*; override *make* to build it in another way."""

    descriptor: ClassVar[LinearKernelDescriptor]

    def make(self) -> LinearKernel:
        kernel = load_implementation(self.descriptor)()
        assert isinstance(kernel, LinearKernel)
        return kernel

    @_each_dtype
    @pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
    @pytest.mark.parametrize(("inputs", "outputs"), _SHAPES)
    def test_product_is_as_accurate_as_torch(
        self, inputs: int, outputs: int, bias: bool, dtype: str
    ) -> None:
        layer = _Layer(inputs, outputs, dtype, bias=bias)
        self._assert_accurate(layer)

    @pytest.mark.parametrize("bias", [False, True], ids=["plain", "bias"])
    @pytest.mark.parametrize(("inputs", "outputs"), _SHAPES)
    def test_weights_of_bfloat16_serve_activations_of_float32(
        self, inputs: int, outputs: int, bias: bool
    ) -> None:
        """What CPUs without instructions for bfloat16 run such models with."""
        self._assert_accurate(_Layer(inputs, outputs, "float32", "bfloat16", bias=bias))

    @_each_dtype
    @pytest.mark.parametrize("inputs", [100, 576, 1536, 4096])
    def test_row_does_not_depend_on_other_rows(self, inputs: int, dtype: str) -> None:
        """Every row is checked: kernels that sum in another order differ in one element in 5000."""
        if not self.descriptor.deterministic:
            pytest.skip("not declared deterministic")
        layer = _Layer(inputs, 576, dtype, bias=True)
        linear = self._pack(layer)
        rows = self._rows()
        x = layer.x(min(rows[-1], 128))
        expected = linear(x).clone()
        for count in (rows for rows in rows if rows <= len(x)):
            parts = [part for part in torch.split(x, count) if len(part) == count]
            results = torch.cat([linear(part.clone()).clone() for part in parts])
            different = int((results != expected[: len(results)]).sum())
            assert not different, (
                f"{different} elements differ when computed {count} rows at a time"
            )

    def _rows(self) -> list[int]:
        low, high = self.descriptor.min_rows, self.descriptor.max_rows or 130
        return sorted({low, high, *(rows for rows in _ROWS if low < rows < high)})

    def _assert_accurate(self, layer: _Layer) -> None:
        linear = self._pack(layer)
        for rows in self._rows():
            x = layer.x(rows)
            out = linear(x)
            assert out.dtype == x.dtype
            reference = functional.linear(x, layer.weight.to(x.dtype), layer.bias)
            assert_accurate(out, layer.exact(x), reference, f"{rows} rows")

    def _pack(self, layer: _Layer) -> LinearFn:
        kernel = self.descriptor
        if layer.dtype not in kernel.activation_dtypes:
            pytest.skip(f"{layer.dtype} activations not declared")
        if layer.weight_dtype not in kernel.weight_dtypes:
            pytest.skip(f"{layer.weight_dtype} weights not declared")
        if UNQUANTIZED.name not in kernel.schemes:
            pytest.skip("unquantized weights not declared")
        context = LinearContext(
            in_features=layer.weight.shape[1],
            out_features=layer.weight.shape[0],
            dtype=layer.dtype,
            weight_dtype=layer.weight_dtype,
            scheme=UNQUANTIZED.name,
            device="cpu",
            max_rows=self._rows()[-1],
        )
        implementation = self.make()
        if refusal := implementation.supports(context):
            pytest.skip(refusal)
        weight = LinearWeight(scheme=UNQUANTIZED, weight=layer.weight, extra={})
        return implementation.pack(weight, layer.bias, context)


class _Layer:
    """A random linear layer for activations of *dtype*; weights have the same unless given."""

    def __init__(
        self, inputs: int, outputs: int, dtype: str, weight_dtype: str = "", *, bias: bool
    ) -> None:
        self.dtype, self.weight_dtype = dtype, weight_dtype or dtype
        self.generator = torch.Generator().manual_seed(inputs)
        self.weight = self._random(outputs, inputs).to(dtype_of(self.weight_dtype))
        self.bias = self._random(outputs) if bias else None

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.generator).to(dtype_of(self.dtype))

    def x(self, rows: int) -> torch.Tensor:
        return self._random(rows, self.weight.shape[1])

    def exact(self, x: torch.Tensor) -> torch.Tensor:
        bias = None if self.bias is None else self.bias.double()
        return functional.linear(x.double(), self.weight.double(), bias)
