"""Attention over a paged KV cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class AttentionSpec:
    """The shape of one attention layer.

    scale multiplies the scores; window counts the tokens a query sees, itself included;
    soft_cap c replaces scores s by c * tanh(s / c).
    """

    num_heads: int
    num_kv_heads: int
    head_size: int
    scale: float
    window: int | None = None
    soft_cap: float | None = None


@dataclass(frozen=True, kw_only=True)
class AttentionContext:
    """What a backend is built for: one KV group of one model on one device.

    dtype is that of the activations, kv_dtype that of the cache.
    max_requests and max_tokens bound one step, max_blocks one request's block table.
    """

    spec: AttentionSpec
    device: torch.device
    dtype: str
    kv_dtype: str
    page_size: int
    max_requests: int
    max_tokens: int
    max_blocks: int
    deterministic: bool = False


@dataclass(frozen=True, kw_only=True)
class AttentionBatch:
    """One step's requests as the backend sees them; R requests, T tokens.

    Requests with one query token come first (``num_decodes`` of them), then the others.
    query_start: int32 [R + 1], offsets of the requests' tokens.
    seq_lens: int32 [R], tokens in the cache after this step's were stored.
    block_table: int32 [R, max_blocks]; entries past a request's length or wholly
    before its window are undefined.
    slot_mapping: int64 [T], block * page_size + offset of each token.
    query_start_host and seq_lens_host are the same numbers as Python ints.
    """

    num_decodes: int
    query_start: torch.Tensor
    seq_lens: torch.Tensor
    block_table: torch.Tensor
    slot_mapping: torch.Tensor
    query_start_host: list[int]
    seq_lens_host: list[int]


class AttentionBackend(ABC):
    """Attention of one KV group. The cache layout ``"nhd"`` of a layer is one tensor
    ``[2, num_blocks, page_size, num_kv_heads, head_size]``: keys at 0, values at 1. Its last three
    dimensions are contiguous; the stride from block to block may be larger than a page.
    """

    def __init__(self, context: AttentionContext) -> None:
        self.context = context

    @abstractmethod
    def prepare(self, batch: AttentionBatch) -> Any:
        """Return what all layers of this step share. Called once per step and group."""

    @abstractmethod
    def forward(
        self, query: torch.Tensor, kv_cache: torch.Tensor, metadata: Any, out: torch.Tensor
    ) -> None:
        """Write causal attention of *query* over the cache to *out*.

        query and out: [T, num_heads, head_size]. This step's keys and values are in the cache
        already (the ``rope_store_kv`` op put them there). A query at position p of its request
        sees positions max(0, p - window + 1) ... p. Must not read slots past a request's length.
        """
