"""Linear layers of provider ``numba``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from infer_numba.layout import LINE, TILE_ROWS, tile_vectors
from infer_numba.library import library, packer
from infer_plugin_api.linear import LinearContext, LinearKernel

if TYPE_CHECKING:
    from infer_plugin_api.linear import LinearFn
    from infer_plugin_api.quant import LinearWeight

_PART_ROWS = 16 * TILE_ROWS
"""Rows of a part: while they are computed, the next panel arrives from memory."""

_PARTS_PER_THREAD = 8
"""Parts below which rows are divided further, so that no thread waits long for the last one."""


class NumbaLinear(LinearKernel):
    """Weights packed in panels; rows are computed the same way whatever their number.

    float32 everywhere, over weights of float32 or bfloat16; bfloat16 where the processor multiplies
    pairs of it.
    """

    def __init__(self) -> None:
        self._scratch = _Scratch()

    def supports(self, context: LinearContext) -> str | None:
        weights = _weight_dtype(context)
        if f"linear_{context.dtype}_{weights}" not in library().names:
            return f"this CPU has no instructions for products of {context.dtype} (AVX512-BF16)"
        if weights == "bfloat16" and context.in_features % 2:
            return f"pairs of bfloat16 need an even number of inputs, not {context.in_features}"
        return None

    def pack(
        self, weight: LinearWeight, bias: torch.Tensor | None, context: LinearContext
    ) -> LinearFn:
        weights = _weight_dtype(context)
        kernel = f"linear_{context.dtype}_{weights}"
        matrix = weight.weight.to(getattr(torch, weights))
        return _Linear(kernel, matrix, bias, self._scratch)


def _weight_dtype(context: LinearContext) -> str:
    """What weights are kept as: bfloat16 under float32 stays narrow if its pairs come out even."""
    pairs = context.weight_dtype == "bfloat16" and context.in_features % 2 == 0
    return "bfloat16" if context.dtype == "float32" and pairs else context.dtype


class _Scratch:
    """Memory that all layers use in turn, as large as the largest of them needs."""

    def __init__(self) -> None:
        self.address = 0
        self._memory = torch.empty(0)

    def reserve(self, floats: int) -> None:
        if self._memory.numel() < floats + LINE:
            self._memory = torch.empty(floats + LINE)
            self.address = -(-self._memory.data_ptr() // LINE) * LINE


class _Linear:
    """One layer."""

    def __init__(
        self,
        kernel: str,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        scratch: _Scratch,
    ) -> None:
        kernels, threads = library(), torch.get_num_threads()
        self._kernel = kernels.kernel(kernel, threads)
        self._pack = packer("q" * 14)
        self._size = 2 if kernel.startswith("linear_bfloat16") else 4
        panel = kernels.lanes * tile_vectors(kernels.lanes)
        self._columns, inputs = weight.shape
        per_word = 4 // weight.element_size()
        self._steps = inputs // per_word
        self._weights = _packed(weight, panel, per_word)
        self._panels = len(self._weights)
        missing = self._panels * panel - self._columns
        self._bias = None if bias is None else functional.pad(bias.float(), (0, missing))
        self._bias_address = 0 if self._bias is None else self._bias.data_ptr()
        widened = self._size != weight.element_size()
        self._thread_floats = panel * (TILE_ROWS + (inputs if widened else 0))
        self._scratch = scratch
        scratch.reserve(self._kernel.threads * self._thread_floats)
        self._wanted = _PARTS_PER_THREAD * self._kernel.threads

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        if x.stride(1) != 1:
            x = x.contiguous()
        rows = x.shape[0]
        out = x.new_empty((rows, self._columns))
        part_rows = _PART_ROWS
        if self._panels < self._wanted:
            fair = rows * self._panels // (self._wanted * TILE_ROWS) + 1
            part_rows = min(part_rows, fair * TILE_ROWS)
        arguments = self._pack(
            0,
            0,
            x.data_ptr(),
            x.stride(0) * self._size,
            self._weights.data_ptr(),
            self._bias_address,
            out.data_ptr(),
            self._columns * self._size,
            rows,
            self._steps,
            self._columns,
            self._panels,
            self._scratch.address,
            4 * self._thread_floats,
            part_rows,
            1 if rows > part_rows else self._kernel.threads,
        )
        self._kernel.spread(arguments)
        return out


def _packed(weight: torch.Tensor, panel: int, per_word: int) -> torch.Tensor:
    """Return *weight* [N, K] as [N / panel, K / per_word, panel, per_word], N padded with zeros."""
    columns, inputs = weight.shape
    padded = functional.pad(weight, (0, 0, 0, -columns % panel))
    shape = (-1, panel, inputs // per_word, per_word)
    return padded.view(shape).permute(0, 2, 1, 3).contiguous()
