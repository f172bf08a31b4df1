"""Causal attention of one request over contiguous keys and values, by torch."""

from __future__ import annotations

import torch
from torch.nn import functional

from infer_plugin_api.attention import AttentionSpec

_QUERIES = 128


def visible(start: int, num_queries: int, first_key: int, spec: AttentionSpec) -> torch.Tensor:
    """Return bool [num_queries, num_keys]: which keys each query sees.

    Queries are at positions start, start + 1, ...; keys at first_key ... last query's position.
    """
    query = torch.arange(start, start + num_queries).unsqueeze(1)
    key = torch.arange(first_key, start + num_queries).unsqueeze(0)
    mask = key <= query
    if spec.window is not None:
        mask &= key > query - spec.window
    return mask


def first_visible(start: int, spec: AttentionSpec) -> int:
    """Return the first position that a query at *start* sees."""
    return 0 if spec.window is None else max(0, start - spec.window + 1)


def attend_one(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    spec: AttentionSpec,
    out: torch.Tensor,
) -> None:
    """One query [1, H, D] sees all keys [L, KVH, D]; heads of a group are rows of one product."""
    grouped = query.view(1, spec.num_kv_heads, -1, spec.head_size)
    result = attention(grouped, key.transpose(0, 1)[None], value.transpose(0, 1)[None], spec)
    out.view_as(grouped).copy_(result)


def attend_many(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    spec: AttentionSpec,
    out: torch.Tensor,
) -> None:
    """Queries [T, H, D] over keys [L, KVH, D]; mask [T, L], or None: causal, T == L."""
    tokens, keys = query.shape[0], key.shape[0]
    groups = spec.num_heads // spec.num_kv_heads
    shape = (tokens, spec.num_kv_heads, groups, spec.head_size)
    wide = (spec.num_kv_heads, groups, keys, spec.head_size)
    result = attention(
        query.view(shape).permute(1, 2, 0, 3),
        key.permute(1, 0, 2).unsqueeze(1).expand(wide),
        value.permute(1, 0, 2).unsqueeze(1).expand(wide),
        spec,
        mask=mask,
        causal=mask is None and tokens > 1,
    )
    out.view(shape).copy_(result.permute(2, 0, 1, 3))


def attend_products(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    start: int,
    first_key: int,
    spec: AttentionSpec,
    out: torch.Tensor,
) -> None:
    """Queries [T, H, D] at positions start ... over keys [L, KVH, D] from *first_key* on.

    Two matrix products per 128 queries and a softmax between them. In bfloat16, on CPUs with
    instructions for it, that is two to three times as fast as SDPA, whose kernel multiplies in
    float32; scores are rounded to bfloat16, which doubles the error (0.2 % to 0.4 %).
    """
    groups = spec.num_heads // spec.num_kv_heads
    keys, values = key.permute(1, 2, 0), value.permute(1, 0, 2)
    for low in range(0, query.shape[0], _QUERIES):
        high = min(low + _QUERIES, query.shape[0])
        count = high - low
        begin = first_visible(start + low, spec) - first_key
        diagonal = start + low - first_key
        end = diagonal + count
        shape = (count, spec.num_kv_heads, groups, spec.head_size)
        rows = (query[low:high].view(shape).permute(1, 2, 0, 3) * spec.scale).flatten(1, 2)
        scores = torch.bmm(rows, keys[:, :, begin:end])
        _hide(
            scores.view(spec.num_kv_heads, groups, count, -1), start + low, first_key + begin, spec
        )
        result = torch.bmm(torch.softmax(scores, dim=-1), values[:, begin:end])
        out[low:high].view(shape).copy_(result.view(-1, groups, *shape[::3]).permute(2, 0, 1, 3))


def _hide(scores: torch.Tensor, start: int, first_key: int, spec: AttentionSpec) -> None:
    """Set scores [KVH, G, T, L] of keys that a query does not see to minus infinity."""
    count = scores.shape[2]
    if spec.window is None:
        scores = scores[..., start - first_key :]
        first_key = start
    mask = visible(start, count, first_key, spec)
    scores.masked_fill_(mask.logical_not_(), float("-inf"))


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    spec: AttentionSpec,
    *,
    mask: torch.Tensor | None = None,
    causal: bool = False,
) -> torch.Tensor:
    """Scaled dot-product attention [..., T, D]; a soft cap takes the explicit formula."""
    key, value = key.to(query.dtype), value.to(query.dtype)
    if spec.soft_cap is None:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=causal, scale=spec.scale
        )
    scores = torch.matmul(query.float(), key.float().transpose(-1, -2)) * spec.scale
    scores = torch.tanh(scores / spec.soft_cap) * spec.soft_cap
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    return torch.matmul(torch.softmax(scores, dim=-1), value.float()).to(query.dtype)
