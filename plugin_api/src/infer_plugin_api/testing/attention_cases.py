"""Random paged caches for attention, and what attention over them is in float64."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import cycle

import torch
from torch.nn import functional

from infer_plugin_api.attention import AttentionBatch, AttentionContext, AttentionSpec
from infer_plugin_api.testing.numerics import dtype_of

_POISON = 2**30
"""Block table entry that no backend may follow."""


@dataclass(frozen=True, kw_only=True)
class AttentionCase:
    """One batch over one cache. requests: (tokens of this step, tokens in the cache)."""

    heads: tuple[int, int, int] = (4, 2, 64)
    requests: tuple[tuple[int, int], ...] = ((1, 70), (17, 90))
    page_size: int = 16
    window: int | None = None
    soft_cap: float | None = None
    padding: int = 0
    outliers: bool = False

    @property
    def spec(self) -> AttentionSpec:
        num_heads, num_kv_heads, head_size = self.heads
        return AttentionSpec(
            num_heads=num_heads,
            num_kv_heads=num_kv_heads,
            head_size=head_size,
            scale=head_size**-0.5,
            window=self.window,
            soft_cap=self.soft_cap,
        )

    @property
    def phases(self) -> set[str]:
        return {"decode" if count == 1 else "prefill" for count, _ in self.requests}

    def __str__(self) -> str:
        requests = "+".join(f"{count}of{length}" for count, length in self.requests)
        extras = [f"page{self.page_size}"]
        extras += [f"window{self.window}"] if self.window else []
        extras += [f"cap{self.soft_cap:g}"] if self.soft_cap else []
        extras += ["padded"] if self.padding else []
        extras += ["outliers"] if self.outliers else []
        return "-".join(["x".join(map(str, self.heads)), requests, *extras])


_HEADS = (
    (9, 3, 64),
    (4, 4, 8),
    (8, 2, 128),
    (8, 1, 24),
    (4, 4, 80),
    (6, 3, 72),
    (2, 1, 256),
    (14, 2, 56),
    (5, 5, 40),
    (3, 1, 96),
)
_BATCHES = (
    ((1, 1),),
    ((1, 16), (1, 17), (1, 64), (1, 65), (1, 200)),
    ((7, 7), (64, 64), (65, 65), (130, 130)),
    ((5, 40), (33, 129), (1, 33), (20, 700)),
    ((1, 513), (1, 1100), (1, 512)),
)
_LIMITS: tuple[tuple[int | None, float | None], ...] = (
    (None, None),
    (33, None),
    (None, 20.0),
    (600, 5.0),
    (1, None),
)


def attention_cases() -> list[AttentionCase]:
    """Every head shape with every batch; pages, windows and caps take turns."""
    pages, limits = cycle((16, 1, 32)), cycle(_LIMITS)
    cases = []
    for heads in _HEADS:
        for batch in _BATCHES:
            requests = tuple(sorted(batch, key=lambda request: request[0] != 1))
            window, soft_cap = next(limits)
            cases.append(
                AttentionCase(
                    heads=heads,
                    requests=requests,
                    page_size=next(pages),
                    window=window,
                    soft_cap=soft_cap,
                )
            )
        next(limits)
    cases.append(AttentionCase(padding=3))
    cases.append(AttentionCase(heads=(9, 3, 64), requests=_BATCHES[1], outliers=True))
    return cases


class PagedCase:
    """The tensors of a case. Slots that no request owns hold NaN; blocks lie in random order.

    keys, values: each request's [length, num_kv_heads, head_size]. query is a view of rows that
    hold more than the query, as a fused projection makes them.
    """

    def __init__(self, case: AttentionCase, dtype: str, kv_dtype: str, seed: int = 0) -> None:
        self.case, self.dtype = case, dtype_of(dtype)
        self.kv_dtype = dtype_of(kv_dtype)
        self.context = self._context(dtype, kv_dtype)
        self.generator = torch.Generator().manual_seed(seed)
        spec = case.spec
        pages = [-(-length // case.page_size) for _, length in case.requests]
        order = torch.randperm(sum(pages) + 2, generator=self.generator)
        table = torch.full((len(pages), max(pages)), _POISON, dtype=torch.int32)
        self.cache = self._empty_cache(order.numel())
        self.keys: list[torch.Tensor] = []
        self.values: list[torch.Tensor] = []
        slots: list[torch.Tensor] = []
        first = 0
        for index, (count, length) in enumerate(case.requests):
            table[index, : pages[index]] = order[first : first + pages[index]].int()
            first += pages[index]
            position = torch.arange(length)
            slot = table[index].long()[position // case.page_size] * case.page_size
            slot += position % case.page_size
            block, offset = slot // case.page_size, slot % case.page_size
            for half, kept in ((0, self.keys), (1, self.values)):
                rows = self._random((length, spec.num_kv_heads, spec.head_size), self.kv_dtype)
                self.cache[half][block, offset] = rows
                kept.append(rows)
            slots.append(slot[length - count :])
        starts = [0]
        for count, _ in case.requests:
            starts.append(starts[-1] + count)
        self.batch = AttentionBatch(
            num_decodes=sum(count == 1 for count, _ in case.requests),
            query_start=torch.tensor(starts, dtype=torch.int32),
            seq_lens=torch.tensor([length for _, length in case.requests], dtype=torch.int32),
            block_table=table,
            slot_mapping=torch.cat(slots),
            query_start_host=starts,
            seq_lens_host=[length for _, length in case.requests],
        )
        packed = self._random((starts[-1], spec.num_heads + 2, spec.head_size), self.dtype)
        self.query = packed[:, : spec.num_heads]

    def _context(self, dtype: str, kv_dtype: str) -> AttentionContext:
        requests = self.case.requests
        return AttentionContext(
            spec=self.case.spec,
            device=torch.device("cpu"),
            dtype=dtype,
            kv_dtype=kv_dtype,
            page_size=self.case.page_size,
            max_requests=len(requests),
            max_tokens=sum(count for count, _ in requests),
            max_blocks=max(-(-length // self.case.page_size) for _, length in requests),
        )

    def _empty_cache(self, blocks: int) -> torch.Tensor:
        spec, page = self.case.spec, self.case.page_size
        elements = page * spec.num_kv_heads * spec.head_size
        flat = torch.full((2, blocks, elements + self.case.padding), float("nan"))
        shape = (page, spec.num_kv_heads, spec.head_size)
        rows = flat.to(self.kv_dtype)[:, :, :elements]
        return torch.unflatten(rows, -1, shape)

    def _random(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        rows = torch.randn(shape, generator=self.generator)
        if self.case.outliers:
            rows[..., 3] *= 30
        return rows.to(dtype)

    def alone(self, index: int) -> tuple[AttentionBatch, torch.Tensor]:
        """Return request *index* as a batch of its own, and its queries."""
        batch = self.batch
        begin, end = batch.query_start_host[index : index + 2]
        count, length = self.case.requests[index]
        single = AttentionBatch(
            num_decodes=int(count == 1),
            query_start=torch.tensor([0, count], dtype=torch.int32),
            seq_lens=batch.seq_lens[index : index + 1],
            block_table=batch.block_table[index : index + 1],
            slot_mapping=batch.slot_mapping[begin:end],
            query_start_host=[0, count],
            seq_lens_host=[length],
        )
        return single, self.query[begin:end]

    def exact(self) -> torch.Tensor:
        """Return attention in float64 [T, num_heads, head_size]."""
        return self._each_request(torch.float64)

    def reference(self) -> torch.Tensor:
        """Return what plain torch makes of it in the query's dtype."""
        return self._each_request(self.dtype)

    def _each_request(self, dtype: torch.dtype) -> torch.Tensor:
        starts = self.batch.query_start_host
        return torch.cat(
            [
                attention(
                    self.query[starts[index] : starts[index + 1]].to(dtype),
                    self.keys[index].to(dtype),
                    self.values[index].to(dtype),
                    self.case.spec,
                )
                for index in range(len(self.case.requests))
            ]
        )


def attention(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, spec: AttentionSpec
) -> torch.Tensor:
    """Causal attention of the last tokens of one request: [T, H, D] over [L, KVH, D]."""
    tokens, length = query.shape[0], keys.shape[0]
    position = torch.arange(length - tokens, length).unsqueeze(1)
    key = torch.arange(length).unsqueeze(0)
    seen = key <= position
    if spec.window is not None:
        seen &= key > position - spec.window
    group = spec.num_heads // spec.num_kv_heads
    heads = query.transpose(0, 1)
    wide_keys, wide_values = (
        rows.transpose(0, 1).repeat_interleave(group, 0) for rows in (keys, values)
    )
    if spec.soft_cap is None and query.dtype != torch.float64:
        result = functional.scaled_dot_product_attention(
            heads[None], wide_keys[None], wide_values[None], attn_mask=seen, scale=spec.scale
        )[0]
        return result.transpose(0, 1)
    kind = torch.promote_types(query.dtype, torch.float32)
    scores = heads.to(kind) @ wide_keys.to(kind).transpose(1, 2) * spec.scale
    if spec.soft_cap is not None:
        scores = spec.soft_cap * torch.tanh(scores / spec.soft_cap)
    weights = scores.masked_fill(~seen, -math.inf).softmax(-1)
    return (weights @ wide_values.to(kind)).to(query.dtype).transpose(0, 1)
