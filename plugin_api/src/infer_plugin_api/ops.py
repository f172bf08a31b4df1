"""Fused ops by name: signatures and what they compute.

An :class:`~infer_plugin_api.descriptors.OpDescriptor` with ``op`` equal to a name below points to
a class whose instances are callable with that Protocol's signature. Core carries a torch
implementation of each (provider ``torch``), which is the reference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import torch


class RmsNorm(Protocol):
    """``rms_norm``: y = x / sqrt(mean(x^2) + eps) * weight over the last dimension.

    x: [..., size] of the weight's dtype or float32; the mean is taken in float32. Returns a tensor
    of x's shape and the weight's dtype.
    """

    def __call__(self, x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor: ...


class AddRmsNorm(Protocol):
    """``add_rms_norm``: residual += x in place, then RMS norm of residual.

    x: [T, size] of the weight's dtype. residual: [T, size] of the same dtype, or of float32: sums
    are then kept in full and only the result is rounded. Returns the normed tensor [T, size] in
    the weight's dtype.
    """

    def __call__(
        self, x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float
    ) -> torch.Tensor: ...


class SiluMul(Protocol):
    """``silu_mul``: silu(gate) * up for gate_up [T, 2 * n] = gate | up. Returns [T, n]."""

    def __call__(self, gate_up: torch.Tensor) -> torch.Tensor: ...


class RopeStoreKV(Protocol):
    """``rope_store_kv``: rotate query and key in place, then put key and value into the cache.

    query: [T, num_heads, head_size], key and value: [T, num_kv_heads, head_size], all views of
    one packed row possible. cos_sin: float32 [max_positions, rotary], cosines in the first half
    of a row and sines in the second; the first ``rotary`` elements of a head are rotated in
    half-split ("neox") order. positions: int64 [T]. kv_cache: layout "nhd" (see attention.py).
    slot_mapping: int64 [T].
    """

    def __call__(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        cos_sin: torch.Tensor,
        positions: torch.Tensor,
        kv_cache: torch.Tensor,
        slot_mapping: torch.Tensor,
    ) -> None: ...


class GreedySample(Protocol):
    """``greedy_sample``: index of the largest logit of each row, the first one on ties.

    logits: [S, vocab]. Returns int64 [S].
    """

    def __call__(self, logits: torch.Tensor) -> torch.Tensor: ...


OPS: dict[str, type] = {
    "rms_norm": RmsNorm,
    "add_rms_norm": AddRmsNorm,
    "silu_mul": SiluMul,
    "rope_store_kv": RopeStoreKV,
    "greedy_sample": GreedySample,
}
"""Every fused op that core asks for, by name."""
