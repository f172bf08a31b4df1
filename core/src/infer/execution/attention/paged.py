"""Attention for CPUs in torch: reads the cache where it lies instead of gathering it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from infer.execution.attention.dense import (
    attend_many,
    attend_one,
    attend_products,
    first_visible,
    visible,
)
from infer_plugin_api.attention import AttentionBackend, AttentionBatch, AttentionContext


@dataclass(frozen=True)
class _Request:
    """One request's share of a step.

    Its keys are *count* tokens from token *offset* of the first of *blocks* on. first_slot: where
    they begin in the cache when the blocks follow each other, otherwise None.
    """

    begin: int
    end: int
    start: int
    first_key: int
    blocks: torch.Tensor
    offset: int
    count: int
    first_slot: int | None
    mask: torch.Tensor | None


class PagedCPUBackend(AttentionBackend):
    """The KV cache hands out neighbouring blocks while it can; those are read in place.

    A fragmented request's keys are gathered, without padding.
    """

    def __init__(self, context: AttentionContext) -> None:
        super().__init__(context)
        self.products = (
            context.dtype == context.kv_dtype == "bfloat16"
            and context.spec.soft_cap is None
            and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        )

    def prepare(self, batch: AttentionBatch) -> list[_Request]:
        tables = batch.block_table.numpy()
        return [self._request(batch, tables[i], i) for i in range(len(batch.seq_lens_host))]

    def _request(self, batch: AttentionBatch, table: object, index: int) -> _Request:
        spec, page = self.context.spec, self.context.page_size
        begin, end = batch.query_start_host[index], batch.query_start_host[index + 1]
        length = batch.seq_lens_host[index]
        start = length - (end - begin)
        first_key = first_visible(start, spec)
        low, high = first_key // page, (length - 1) // page + 1
        blocks = table[low:high].astype("int64")  # type: ignore[index]
        mask = None
        if not self.products and (start > 0 or spec.window is not None) and end - begin > 1:
            mask = visible(start, end - begin, first_key, spec)
        offset = first_key - low * page
        first_slot = None
        if int(blocks[-1]) - int(blocks[0]) == high - low - 1 and (blocks[1:] > blocks[:-1]).all():
            first_slot = int(blocks[0]) * page + offset
        return _Request(
            begin=begin,
            end=end,
            start=start,
            first_key=first_key,
            blocks=torch.from_numpy(blocks),
            offset=offset,
            count=length - first_key,
            first_slot=first_slot,
            mask=mask,
        )

    def forward(
        self,
        query: torch.Tensor,
        kv_cache: torch.Tensor,
        metadata: list[_Request],
        out: torch.Tensor,
    ) -> None:
        spec = self.context.spec
        halves = [(half, _by_slot(half)) for half in kv_cache]
        for request in metadata:
            key, value = (_read(half, slots, request) for half, slots in halves)
            rows = slice(request.begin, request.end)
            if request.end - request.begin == 1:
                attend_one(query[rows], key, value, spec, out[rows])
            elif self.products:
                start, first_key = request.start, request.first_key
                attend_products(query[rows], key, value, start, first_key, spec, out[rows])
            else:
                attend_many(query[rows], key, value, request.mask, spec, out[rows])


def _by_slot(half: torch.Tensor) -> torch.Tensor | None:
    """View keys or values [blocks, page, KVH, D] as [slots, KVH, D]; None for padded blocks."""
    if half.stride(0) != half.shape[1] * half.stride(1):
        return None
    return half.view(-1, *half.shape[2:])


def _read(half: torch.Tensor, slots: torch.Tensor | None, request: _Request) -> torch.Tensor:
    """Return a request's keys or values [count, KVH, D]: a view where it is possible."""
    if slots is not None and request.first_slot is not None:
        return slots[request.first_slot : request.first_slot + request.count]
    gathered = half.index_select(0, request.blocks).flatten(0, 1)
    return gathered[request.offset : request.offset + request.count]
