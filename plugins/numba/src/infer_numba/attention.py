"""The attention backend ``numba``."""

from __future__ import annotations

from dataclasses import dataclass
from math import log2
from typing import TYPE_CHECKING, Any

import torch
from infer_plugin_api.attention import AttentionBackend
from infer_plugin_api.errors import UnsupportedError

from infer_numba import layout as at
from infer_numba.library import library, packer

if TYPE_CHECKING:
    from infer_plugin_api.attention import AttentionBatch, AttentionContext

_LOG2_E = 1.4426950408889634
_DTYPES = ("float32", "bfloat16")
_TILE_ROWS = 96
"""Query rows (tokens times heads of a group) that share one packing of the keys."""

MERGE = True
_SPREAD_KEYS = 512
"""Key visits (queries' tiles times keys, over all KV heads) from which threads pay."""


@dataclass(frozen=True)
class _Metadata:
    """A step's plan and what it points to.

    plan: address of the plan's words. spread: whether the work is worth the threads.
    kept: tensors that the plan points into.
    """

    plan: int
    spread: bool
    kept: tuple[Any, ...]


class NumbaAttention(AttentionBackend):
    """Compiled attention that reads the cache's pages in place; both phases, one kernel."""

    def __init__(self, context: AttentionContext) -> None:
        super().__init__(context)
        spec = context.spec
        if context.dtype not in _DTYPES or context.kv_dtype not in _DTYPES:
            raise UnsupportedError(
                f"numba attention computes {' and '.join(_DTYPES)}, not {context.dtype} with a "
                f"{context.kv_dtype} cache"
            )
        kernels = library()
        pairs = context.dtype == context.kv_dtype == "bfloat16"
        name = "attention_pairs" if pairs and "attention_pairs" in kernels.names else "attention"
        self._kernel = kernels.kernel(name, torch.get_num_threads())
        self._pack = packer("qqqqqqqqqq")
        self._group = spec.num_heads // spec.num_kv_heads
        self._tile_tokens = max(1, _TILE_ROWS // self._group)
        rows = max(self._tile_tokens * self._group, spec.num_heads)
        self._scratch_bytes = at.scratch_offsets(spec.head_size, rows, kernels.lanes)[-1]
        self._scratch = torch.zeros(self._kernel.threads * self._scratch_bytes + 64, dtype=torch.uint8)
        start = -self._scratch.data_ptr() % 64
        vector = 4 * kernels.lanes
        row_bytes = -(-4 * spec.head_size // (2 * vector)) * 2 * vector
        self._part_bytes = rows * (row_bytes + vector) + -(-4 * rows // vector) * vector
        self._plan = [
            0,
            0,
            0,
            0,
            spec.num_kv_heads,
            self._group,
            spec.head_size,
            context.page_size,
            spec.window or 0,
            0,
            0,
            int(context.dtype == "bfloat16"),
            int(context.kv_dtype == "bfloat16"),
            self._scratch.data_ptr() + start,
            self._scratch_bytes,
            0,
            self._part_bytes,
            0,
            rows,
        ]
        self._floats = torch.tensor(
            [spec.scale * _LOG2_E, 0.0], dtype=torch.float64
        )
        if spec.soft_cap is not None:
            self._floats = torch.tensor([spec.scale / spec.soft_cap, spec.soft_cap * _LOG2_E], dtype=torch.float64)
        self._plan[9], self._plan[10] = self._floats.view(torch.int64).tolist()

    def prepare(self, batch: AttentionBatch) -> Any:
        items = []
        spec = self.context.spec
        window = spec.window
        starts, lengths = batch.query_start_host, batch.seq_lens_host
        visits = 0
        for request, length in enumerate(lengths):
            start, end = starts[request], starts[request + 1]
            for token in range(start, end, self._tile_tokens):
                count = min(self._tile_tokens, end - token)
                position = length - (end - token)
                last = position + count - 1
                first = max(0, position - window + 1) if window else 0
                chunk = first // at.CHUNK
                stop = last // at.CHUNK + 1
                visits += last - first + 1
                if request < batch.num_decodes and MERGE:
                    items.append((token, count, position, request, 0, spec.num_kv_heads, chunk, stop, 1, 0, 0))
                else:
                    for h in range(spec.num_kv_heads):
                        items.append((token, count, position, request, h, h+1, chunk, stop, 1, 0, 0))
        table = torch.tensor(items, dtype=torch.int64)
        plan = list(self._plan)
        plan[0] = table.data_ptr()
        plan[1] = len(items)
        plan[2] = batch.block_table.data_ptr()
        plan[3] = batch.block_table.stride(0)
        words = torch.tensor(plan, dtype=torch.int64)
        spread = visits * self.context.spec.num_kv_heads >= _SPREAD_KEYS
        return _Metadata(words.data_ptr(), spread, (words, table, batch))

    def forward(
        self, query: torch.Tensor, kv_cache: torch.Tensor, metadata: Any, out: torch.Tensor
    ) -> None:
        size = query.element_size()
        q_token, q_head, _ = query.stride()
        o_token, o_head, _ = out.stride()
        plane, block, _, _, _ = kv_cache.stride()
        kv_size = kv_cache.element_size()
        arguments = self._pack(
            0,
            0,
            metadata.plan,
            query.data_ptr(),
            q_token * size,
            q_head * size,
            kv_cache.data_ptr(),
            plane * kv_size,
            block * kv_size,
            out.data_ptr(),
            o_token * size,
            o_head * size,
        )
        if metadata.spread:
            self._kernel.spread(arguments)
        else:
            self._kernel.here(arguments)
