"""The fused ops in plain torch: the reference of every other provider, on any device."""

from __future__ import annotations

import torch
from torch.nn import functional


class RmsNorm:
    """``rms_norm`` (Zhang and Sennrich, 2019)."""

    def __call__(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
        size = (x.shape[-1],)
        if x.dtype == weight.dtype:
            return functional.rms_norm(x, size, weight, eps)
        return functional.rms_norm(x, size, weight.to(x.dtype), eps).to(weight.dtype)


class AddRmsNorm:
    """``add_rms_norm``."""

    def __init__(self) -> None:
        self._norm = RmsNorm()

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor:
        residual += x
        return self._norm(residual, weight, eps)


class SiluMul:
    """``silu_mul``."""

    def __call__(self, gate_up: torch.Tensor) -> torch.Tensor:
        gate, up = gate_up.chunk(2, dim=-1)
        return functional.silu(gate).mul_(up)


class RopeStoreKV:
    """``rope_store_kv``."""

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
        cos, sin = cos_sin.index_select(0, positions).unsqueeze(1).chunk(2, dim=-1)
        _rotate(query, cos, sin)
        _rotate(key, cos, sin)
        page_size = kv_cache.shape[2]
        block = slot_mapping // page_size
        offset = slot_mapping % page_size
        kv_cache[0].index_put_((block, offset), key.to(kv_cache.dtype))
        kv_cache[1].index_put_((block, offset), value.to(kv_cache.dtype))


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Rotate the first ``2 * cos.shape[-1]`` elements of each head in place, in float32."""
    half = cos.shape[-1]
    first = x[..., :half].float()
    second = x[..., half : 2 * half].float()
    turned = first * cos - second * sin, second * cos + first * sin
    x[..., :half], x[..., half : 2 * half] = turned


class GreedySample:
    """``greedy_sample``."""

    def __call__(self, logits: torch.Tensor) -> torch.Tensor:
        return logits.argmax(dim=-1)
