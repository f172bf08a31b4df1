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

    run: slots [low, high) when the request's blocks follow each other, so that its keys are a view
    of the cache; otherwise slots holds their indices.
    """

    begin: int
    end: int
    start: int
    first_key: int
    run: tuple[int, int] | None
    slots: torch.Tensor | None
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
        if int(blocks[-1]) - int(blocks[0]) == high - low - 1 and (blocks[1:] > blocks[:-1]).all():
            slot = int(blocks[0]) * page + first_key - low * page
            run = (slot, slot + length - first_key)
            return _Request(begin, end, start, first_key, run, None, mask)
        positions = torch.arange(first_key - low * page, length - low * page)
        slots = torch.from_numpy(blocks)[positions // page] * page + positions % page
        return _Request(begin, end, start, first_key, None, slots, mask)

    def forward(
        self,
        query: torch.Tensor,
        kv_cache: torch.Tensor,
        metadata: list[_Request],
        out: torch.Tensor,
    ) -> None:
        spec = self.context.spec
        keys, values = (_by_slot(half) for half in kv_cache)
        for request in metadata:
            if request.run is not None:
                low, high = request.run
                key, value = keys[low:high], values[low:high]
            else:
                assert request.slots is not None
                key, value = (half.index_select(0, request.slots) for half in (keys, values))
            rows = slice(request.begin, request.end)
            if request.end - request.begin == 1:
                attend_one(query[rows], key, value, spec, out[rows])
            elif self.products:
                start, first_key = request.start, request.first_key
                attend_products(query[rows], key, value, start, first_key, spec, out[rows])
            else:
                attend_many(query[rows], key, value, request.mask, spec, out[rows])


def _by_slot(half: torch.Tensor) -> torch.Tensor:
    """View keys or values [blocks, page, KVH, D] as [slots, KVH, D].

    Raises RuntimeError when blocks are padded, which ``view`` can't express.
    """
    return half.view(-1, *half.shape[2:])
