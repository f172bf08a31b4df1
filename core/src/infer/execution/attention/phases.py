"""One attention from two backends: one for decodes, one for everything else."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from infer_plugin_api.attention import AttentionBackend, AttentionBatch


class PhasedAttention(AttentionBackend):
    """Splits a mixed batch at ``num_decodes``; each part goes to the backend chosen for it."""

    def __init__(self, decode: AttentionBackend, prefill: AttentionBackend) -> None:
        super().__init__(decode.context)
        self.decode = decode
        self.prefill = prefill

    def prepare(self, batch: AttentionBatch) -> tuple[int, Any, Any]:
        count, total = batch.num_decodes, len(batch.seq_lens_host)
        decode = self.decode.prepare(_part(batch, 0, count)) if count else None
        prefill = self.prefill.prepare(_part(batch, count, total)) if count < total else None
        return count, decode, prefill

    def forward(
        self,
        query: torch.Tensor,
        kv_cache: torch.Tensor,
        metadata: tuple[int, Any, Any],
        out: torch.Tensor,
    ) -> None:
        count, decode, prefill = metadata
        if decode is not None:
            self.decode.forward(query[:count], kv_cache, decode, out[:count])
        if prefill is not None:
            self.prefill.forward(query[count:], kv_cache, prefill, out[count:])


def _part(batch: AttentionBatch, low: int, high: int) -> AttentionBatch:
    """Return requests low ... high - 1 as a batch of their own, offsets from zero."""
    first, last = batch.query_start_host[low], batch.query_start_host[high]
    return replace(
        batch,
        num_decodes=high if low == 0 else 0,
        query_start=batch.query_start[low : high + 1] - first,
        seq_lens=batch.seq_lens[low:high],
        block_table=batch.block_table[low:high],
        slot_mapping=batch.slot_mapping[first:last],
        query_start_host=[offset - first for offset in batch.query_start_host[low : high + 1]],
        seq_lens_host=batch.seq_lens_host[low:high],
    )
