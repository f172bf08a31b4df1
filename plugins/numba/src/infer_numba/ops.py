"""The fused ops of provider ``numba``, each as :mod:`infer_plugin_api.ops` says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from infer_numba.library import Kernel, library, packer
from infer_plugin_api.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Iterable

_COMPUTED = 512 * 1024
"""Bytes from which a parallel region pays for ops that compute with every element."""

_MOVED = 4 * 1024 * 1024
"""The same for ops that hardly do more than move elements between caches."""

_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16"}


_SUMS = (
    (torch.float32, torch.float32),
    (torch.bfloat16, torch.bfloat16),
    (torch.float32, torch.bfloat16),
)
"""Dtypes of sums and results that norms are compiled for."""


class _Kernels(dict[object, Kernel]):
    """An op's kernels by dtype."""

    def __init__(self, op: str, dtypes: Iterable[tuple[torch.dtype, ...]]) -> None:
        threads = torch.get_num_threads()
        self.op = op
        for key in dtypes:
            name = "_".join([op, *(_NAMES[dtype] for dtype in key)])
            self[key if len(key) > 1 else key[0]] = library().kernel(name, threads)

    def __missing__(self, key: object) -> Kernel:
        raise UnsupportedError(f"numba {self.op} is not compiled for {key}")


def _singles(op: str) -> _Kernels:
    return _Kernels(op, ((dtype,) for dtype in _NAMES))


def _run(kernel: Kernel, spread: bool, arguments: bytes) -> None:
    if spread:
        kernel.spread(arguments)
    else:
        kernel.here(arguments)


class RmsNorm:
    """``rms_norm``."""

    def __init__(self) -> None:
        self._kernels = _Kernels("rms_norm", _SUMS)
        self._pack = packer("q" * 9 + "d")

    def __call__(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        kernel = self._kernels[x.dtype, weight.dtype]
        if not x.is_contiguous():
            x = x.contiguous()
        if not weight.is_contiguous():
            weight = weight.contiguous()
        out = torch.empty_like(x, dtype=weight.dtype)
        elements, columns, size = x.numel(), x.shape[-1], x.element_size()
        arguments = self._pack(
            0,
            0,
            x.data_ptr(),
            columns * size,
            0,
            0,
            weight.data_ptr(),
            out.data_ptr(),
            columns * out.element_size(),
            elements // columns if columns else 0,
            columns,
            eps,
        )
        _run(kernel, 2 * elements * size > _MOVED, arguments)
        return out


class AddRmsNorm:
    """``add_rms_norm``."""

    def __init__(self) -> None:
        self._kernels = _Kernels("add_rms_norm", _SUMS)
        self._pack = packer("q" * 9 + "d")

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        kernel = self._kernels[residual.dtype, x.dtype]
        rows, columns = x.shape
        size, residual_size = x.element_size(), residual.element_size()
        x_pitch, x_step = x.stride()
        residual_pitch, residual_step = residual.stride()
        if x_step != 1 or residual_step != 1 or weight.dtype != x.dtype:
            raise UnsupportedError(
                "numba add_rms_norm takes contiguous rows and a weight of x's dtype, not strides "
                f"{x.stride()} and {residual.stride()} and {weight.dtype} for {x.dtype}"
            )
        if not weight.is_contiguous():
            weight = weight.contiguous()
        out = torch.empty_like(x, memory_format=torch.contiguous_format)
        arguments = self._pack(
            0,
            0,
            x.data_ptr(),
            x_pitch * size,
            residual.data_ptr(),
            residual_pitch * residual_size,
            weight.data_ptr(),
            out.data_ptr(),
            columns * size,
            rows,
            columns,
            eps,
        )
        moved = 2 * rows * columns * (size + residual_size)
        _run(kernel, moved > _MOVED, arguments)
        return out


class SiluMul:
    """``silu_mul``."""

    def __init__(self) -> None:
        self._kernels = _singles("silu_mul")
        self._pack = packer("q" * 6)

    def __call__(self, gate_up: torch.Tensor) -> torch.Tensor:
        kernel = self._kernels[gate_up.dtype]
        if gate_up.stride(-1) != 1:
            gate_up = gate_up.contiguous()
        rows, both = gate_up.shape
        columns, size = both // 2, gate_up.element_size()
        out = gate_up.new_empty((rows, columns))
        arguments = self._pack(
            0,
            0,
            gate_up.data_ptr(),
            gate_up.stride(0) * size,
            out.data_ptr(),
            columns * size,
            rows,
            columns,
        )
        _run(kernel, 3 * rows * columns * size > _COMPUTED, arguments)
        return out


class RopeStoreKV:
    """``rope_store_kv``."""

    def __init__(self) -> None:
        pairs = ((dtype, cached) for dtype in _NAMES for cached in _NAMES)
        self._kernels = _Kernels("rope_store_kv", pairs)
        self._pack = packer("q" * 22)

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cos_sin: torch.Tensor,
        positions: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None:
        kernel = self._kernels[key.dtype, kv_cache.dtype]
        tokens, heads, head_size = query.shape
        size, cache_size = query.element_size(), kv_cache.element_size()
        query_token, query_head, query_step = query.stride()
        key_token, key_head, key_step = key.stride()
        value_token, value_head, value_step = value.stride()
        if not query_step == key_step == value_step == positions.stride(0) == 1:
            raise UnsupportedError("numba rope_store_kv takes heads with contiguous elements")
        plane, block, _, _, _ = kv_cache.stride()
        _, _, page, kv_heads, _ = kv_cache.shape
        arguments = self._pack(
            0,
            0,
            query.data_ptr(),
            query_token * size,
            query_head * size,
            key.data_ptr(),
            key_token * size,
            key_head * size,
            value.data_ptr(),
            value_token * size,
            value_head * size,
            cos_sin.data_ptr(),
            cos_sin.stride(0) * 4,
            positions.data_ptr(),
            kv_cache.data_ptr(),
            plane * cache_size,
            block * cache_size,
            slot_mapping.data_ptr(),
            tokens,
            heads,
            kv_heads,
            head_size,
            cos_sin.shape[1] // 2,
            page,
        )
        moved = 2 * tokens * (heads + 2 * kv_heads) * head_size * size
        _run(kernel, moved > _MOVED, arguments)


class GreedySample:
    """``greedy_sample``."""

    def __init__(self) -> None:
        self._kernels = _singles("greedy_sample")
        self._pack = packer("q" * 5)

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        kernel = self._kernels[logits.dtype]
        if logits.stride(-1) != 1:
            logits = logits.contiguous()
        rows, columns = logits.shape
        size = logits.element_size()
        out = torch.empty(rows, dtype=torch.int64)
        arguments = self._pack(
            0,
            0,
            logits.data_ptr(),
            logits.stride(0) * size,
            out.data_ptr(),
            rows,
            columns,
        )
        _run(kernel, rows > 1 and rows * columns * size > _COMPUTED, arguments)
        return out
