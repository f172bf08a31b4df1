"""Attention by gathering each request's cache and torch's SDPA: any device, every feature."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from infer.execution.attention.dense import attend_many, attention, first_visible, visible
from infer_plugin_api.attention import AttentionBackend, AttentionBatch

_TILE = 16
"""Queries of one call in deterministic mode."""


@dataclass(frozen=True)
class _Request:
    """One request's share of a step: its tokens of the flat batch, its blocks, its mask."""

    begin: int
    end: int
    start: int
    first_key: int
    slots: torch.Tensor
    mask: torch.Tensor | None


class SDPABackend(AttentionBackend):
    """The reference backend.

    In deterministic mode queries are computed in tiles of fixed size at fixed positions, so that
    chunking and batching never change the shape, and with it the rounding, of a computation.
    """

    def prepare(self, batch: AttentionBatch) -> list[_Request]:
        return [self._request(batch, index) for index in range(len(batch.seq_lens_host))]

    def _request(self, batch: AttentionBatch, index: int) -> _Request:
        spec, page = self.context.spec, self.context.page_size
        begin, end = batch.query_start_host[index], batch.query_start_host[index + 1]
        length = batch.seq_lens_host[index]
        start = length - (end - begin)
        first_key = first_visible(start, spec)
        device = batch.block_table.device
        positions = torch.arange(first_key, length, device=device)
        blocks = batch.block_table[index].index_select(0, positions // page).long()
        mask = None
        if (start > 0 or spec.window is not None) and end - begin > 1:
            mask = visible(start, end - begin, first_key, spec).to(device)
        return _Request(begin, end, start, first_key, blocks * page + positions % page, mask)

    def forward(
        self,
        query: torch.Tensor,
        kv_cache: torch.Tensor,
        metadata: list[_Request],
        out: torch.Tensor,
    ) -> None:
        page = self.context.page_size
        for request in metadata:
            block, offset = request.slots // page, request.slots % page
            key, value = kv_cache[0][block, offset], kv_cache[1][block, offset]
            queries, target = query[request.begin : request.end], out[request.begin : request.end]
            if self.context.deterministic:
                self._tiles(queries, key, value, request, target)
            elif queries.shape[0] == 1:
                attend_many(queries, key, value, None, self.context.spec, target)
            else:
                attend_many(queries, key, value, request.mask, self.context.spec, target)

    def _tiles(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        request: _Request,
        out: torch.Tensor,
    ) -> None:
        """Compute each tile of positions [n * 16, n * 16 + 16) that has queries here.

        Rows without a query here are zero, and so are keys beyond the request; what is masked adds
        exactly nothing, so a query's sum has the same terms in the same places in every step.
        """
        spec = self.context.spec
        last = request.start + query.shape[0]
        groups = spec.num_heads // spec.num_kv_heads
        for tile in range(request.start - request.start % _TILE, last, _TILE):
            low, high = max(tile, request.start), min(tile + _TILE, last)
            first = first_visible(tile, spec)
            keys = _window(key, request.first_key, first, tile + _TILE)
            values = _window(value, request.first_key, first, tile + _TILE)
            rows = query.new_zeros(_TILE, spec.num_heads, spec.head_size)
            rows[low - tile : high - tile] = query[low - request.start : high - request.start]
            wide = (spec.num_kv_heads, groups, tile + _TILE - first, spec.head_size)
            result = attention(
                rows.view(_TILE, spec.num_kv_heads, groups, -1).permute(1, 2, 0, 3),
                keys.permute(1, 0, 2).unsqueeze(1).expand(wide),
                values.permute(1, 0, 2).unsqueeze(1).expand(wide),
                spec,
                mask=visible(tile, _TILE, first, spec).to(query.device),
            )
            flat = result.permute(2, 0, 1, 3).reshape(_TILE, spec.num_heads, -1)
            out[low - request.start : high - request.start] = flat[low - tile : high - tile]


def _window(x: torch.Tensor, first_key: int, first: int, last: int) -> torch.Tensor:
    """Return positions first ... last - 1 of *x*, whose row 0 is *first_key*; zeros outside it."""
    padded = x.new_zeros(last - first, *x.shape[1:])
    low, high = max(first, first_key), min(last, first_key + x.shape[0])
    padded[low - first : high - first] = x[low - first_key : high - first_key]
    return padded
