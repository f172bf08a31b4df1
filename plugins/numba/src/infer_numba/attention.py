"""The attention backend ``numba``."""

from __future__ import annotations

import struct
from array import array
from dataclasses import dataclass
from itertools import pairwise
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch

from infer_numba.layout import CHUNK, LINE, Item, Plan, part_bytes, scratch_areas
from infer_numba.library import library, packer
from infer_plugin_api.attention import AttentionBackend
from infer_plugin_api.errors import UnsupportedError

if TYPE_CHECKING:
    from infer_plugin_api.attention import AttentionBatch, AttentionContext, AttentionSpec

_LOG2_E = 1.4426950408889634
_DTYPES = ("float32", "bfloat16")

_TILE_ROWS = 96
"""Query rows (tokens times heads of a group) that share one packing of the keys."""

_SPREAD_COST = 2048
"""Cost from which a parallel region pays. A tile costs its keys times its KV heads times the
number of its tokens plus 3: packing the keys takes as long as three tokens' work with them."""

_ITEMS_PER_THREAD = 4
"""Items below which requests are divided further: by KV head, then by chunks of keys."""


@dataclass(frozen=True)
class _Metadata:
    """A step's plan.

    address: of its words. spread: whether the work pays for the threads.
    kept: the memory that the plan points into.
    """

    address: int
    spread: bool
    kept: tuple[Any, ...]


class NumbaAttention(AttentionBackend):
    """Compiled attention that reads the cache's pages in place; one kernel for both phases.

    A query's result depends on its own request only, bit for bit: not on the batch, the chunking
    of the prompt, the phase or the number of threads.
    """

    def __init__(self, context: AttentionContext) -> None:
        super().__init__(context)
        _check(context)
        spec, kernels = context.spec, library()
        pairs = context.dtype == context.kv_dtype == "bfloat16"
        name = "attention_pairs" if pairs and "attention_pairs" in kernels.names else "attention"
        self._kernel = kernels.kernel(name, torch.get_num_threads())
        self._pack = packer("q" * 10)
        group = spec.num_heads // spec.num_kv_heads
        self._tile_tokens = max(1, _TILE_ROWS // group)
        rows = max(self._tile_tokens * group, spec.num_heads)
        scratch_bytes = scratch_areas(0, spec.head_size, rows, kernels.lanes).end
        self._scratch, scratch = _aligned_zeros(self._kernel.threads * scratch_bytes)
        self._part_bytes = part_bytes(spec.head_size, rows, kernels.lanes)
        self._parts, _ = _aligned_zeros(0)
        scale, cap = _exponents(spec)
        self._plan = Plan(
            items=0,
            num_items=0,
            table=0,
            table_pitch=0,
            kv_heads=spec.num_kv_heads,
            group=group,
            head_size=spec.head_size,
            page=context.page_size,
            window=spec.window or 0,
            scale=_bits(scale),
            cap=_bits(cap),
            query_bf16=int(context.dtype == "bfloat16"),
            cache_bf16=int(context.kv_dtype == "bfloat16"),
            scratch=scratch,
            scratch_pitch=scratch_bytes,
            rows=rows,
            parts=0,
            part_bytes=self._part_bytes,
            counters=0,
            threads=1,
        )

    def prepare(self, batch: AttentionBatch) -> _Metadata:
        work, parts = self._divide(batch)
        work.sort(key=itemgetter(0), reverse=True)
        items = array("q")
        for _, item in work:
            items.extend(item)
        spread = sum(cost for cost, _ in work) >= _SPREAD_COST
        counters = array("q", bytes(8 * parts))
        if parts * self._part_bytes > self._parts.numel() - LINE:
            self._parts, _ = _aligned_zeros(parts * self._part_bytes)
        plan = self._plan._replace(
            items=items.buffer_info()[0],
            num_items=len(work),
            table=batch.block_table.data_ptr(),
            table_pitch=batch.block_table.stride(0) * batch.block_table.element_size(),
            parts=_align(self._parts.data_ptr()),
            counters=counters.buffer_info()[0],
            threads=self._kernel.threads if spread else 1,
        )
        words = array("q", plan)
        kept = (words, items, counters, self._parts, batch.block_table)
        return _Metadata(words.buffer_info()[0], spread, kept)

    def forward(
        self, query: torch.Tensor, kv_cache: torch.Tensor, metadata: Any, out: torch.Tensor
    ) -> None:
        size = query.element_size()
        cache_size = kv_cache.element_size()
        query_token, query_head, _ = query.stride()
        out_token, out_head, _ = out.stride()
        plane, block, _, _, _ = kv_cache.stride()
        arguments = self._pack(
            0,
            0,
            metadata.address,
            query.data_ptr(),
            query_token * size,
            query_head * size,
            kv_cache.data_ptr(),
            plane * cache_size,
            block * cache_size,
            out.data_ptr(),
            out_token * size,
            out_head * size,
        )
        if metadata.spread:
            self._kernel.spread(arguments)
        else:
            self._kernel.here(arguments)

    def _divide(self, batch: AttentionBatch) -> tuple[list[tuple[int, Item]], int]:
        """Return items with their costs, and the number of partial results.

        A tile is for all KV heads if there are tiles enough for the threads: its keys are then
        read in one stream. Otherwise it is divided by KV head, and if even that is too little by
        chunks of keys.
        """
        plan, size = self._plan, self._tile_tokens
        starts, heads = batch.query_start_host, plan.kv_heads
        tiles = sum(-(-(end - start) // size) for start, end in pairwise(starts))
        enough = _ITEMS_PER_THREAD * self._kernel.threads
        split = tiles * heads < enough
        work: list[tuple[int, Item]] = []
        parts = 0
        for request, length in enumerate(batch.seq_lens_host):
            end = starts[request + 1]
            for token in range(starts[request], end, size):
                count = min(size, end - token)
                position = length - (end - token)
                first = max(0, position - plan.window + 1) // CHUNK if plan.window else 0
                stop = (position + count - 1) // CHUNK + 1
                keys = position + count - first * CHUNK
                weight = 3 + count
                together = tiles >= enough and count * heads * plan.group <= plan.rows
                step = heads if together else 1
                pieces = stop - first if split else 1
                for head in range(0, heads, step):
                    if pieces == 1:
                        item = Item(
                            token, count, position, request, head, head + step, first, stop, 1, 0, 0
                        )
                        work.append((keys * step * weight, item))
                        continue
                    for piece, chunk in enumerate(range(first, stop)):
                        item = Item(
                            token,
                            count,
                            position,
                            request,
                            head,
                            head + step,
                            chunk,
                            chunk + 1,
                            pieces,
                            parts,
                            piece,
                        )
                        cost = min(CHUNK, keys - piece * CHUNK) * step * weight
                        work.append((cost, item))
                    parts += pieces
        return work, parts


def _check(context: AttentionContext) -> None:
    for dtype in (context.dtype, context.kv_dtype):
        if dtype not in _DTYPES:
            raise UnsupportedError(f"numba attention computes {' and '.join(_DTYPES)}, not {dtype}")
    if context.device.type != "cpu":
        raise UnsupportedError(f"numba attention runs on the CPU, not on {context.device}")


def _exponents(spec: AttentionSpec) -> tuple[float, float]:
    """Return what multiplies scores before and after the cap so that 2**score is the weight."""
    if spec.soft_cap is None:
        return spec.scale * _LOG2_E, 0.0
    return spec.scale / spec.soft_cap, spec.soft_cap * _LOG2_E


def _bits(value: float) -> int:
    """Return the float64 *value* as the integer of the same 64 bits."""
    return int(struct.unpack("=q", struct.pack("=d", value))[0])


def _align(address: int) -> int:
    return -(-address // LINE) * LINE


def _aligned_zeros(size: int) -> tuple[torch.Tensor, int]:
    """Return a tensor of zero bytes and the address of *size* of them on whole cache lines."""
    memory = torch.zeros(size + LINE, dtype=torch.uint8)
    return memory, _align(memory.data_ptr())
