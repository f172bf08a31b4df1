"""The attention backend, against the conformance kit and its own promises."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

import infer_numba
from infer_numba.attention import NumbaAttention
from infer_plugin_api.attention import AttentionBatch
from infer_plugin_api.errors import UnsupportedError
from infer_plugin_api.testing.attention import AttentionConformance
from infer_plugin_api.testing.attention_cases import AttentionCase, PagedCase
from infer_plugin_api.testing.numerics import assert_accurate

LONG = AttentionCase(heads=(9, 3, 64), requests=((700, 700),))


class TestNumbaAttention(AttentionConformance):
    descriptor = infer_numba.infer_attention_backends()[0]


def attend(paged: PagedCase, batch: AttentionBatch, query: torch.Tensor) -> torch.Tensor:
    backend = NumbaAttention(paged.context)
    out = torch.full_like(query, float("nan")).contiguous()
    backend.forward(query, paged.cache, backend.prepare(batch), out)
    return out


def chunk_of(paged: PagedCase, begin: int, end: int) -> AttentionBatch:
    """Tokens begin ... end - 1 of the case's only request, with the cache as it was then."""
    return AttentionBatch(
        num_decodes=int(end - begin == 1),
        query_start=torch.tensor([0, end - begin], dtype=torch.int32),
        seq_lens=torch.tensor([end], dtype=torch.int32),
        block_table=paged.batch.block_table,
        slot_mapping=paged.batch.slot_mapping[begin:end],
        query_start_host=[0, end - begin],
        seq_lens_host=[end],
    )


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("window", [None, 100, 600])
def test_chunks_and_single_tokens_get_what_the_whole_prompt_gets(
    window: int | None, dtype: str
) -> None:
    paged = PagedCase(replace(LONG, window=window), dtype, dtype)
    whole = attend(paged, paged.batch, paged.query)
    for begin, end in ((0, 1), (0, 13), (13, 77), (77, 600), (511, 512), (512, 513), (699, 700)):
        chunk = attend(paged, chunk_of(paged, begin, end), paged.query[begin:end])
        assert torch.equal(chunk, whole[begin:end]), (begin, end)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_one_thread_and_two_give_the_same(dtype: str) -> None:
    case = AttentionCase(heads=(9, 3, 64), requests=((1, 2000), (1, 30), (90, 600)))
    paged = PagedCase(case, dtype, dtype)
    before = torch.get_num_threads()
    results = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            results.append(attend(paged, paged.batch, paged.query))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*results)


@pytest.mark.parametrize(("dtype", "kv_dtype"), [("float32", "bfloat16"), ("bfloat16", "float32")])
def test_cache_may_have_another_dtype(dtype: str, kv_dtype: str) -> None:
    case = AttentionCase(heads=(6, 3, 72), requests=((1, 70), (33, 90)))
    paged = PagedCase(case, dtype, kv_dtype)
    out = attend(paged, paged.batch, paged.query)
    assert_accurate(out, paged.exact(), paged.reference(), f"{dtype} over {kv_dtype}")


def test_long_request_split_between_threads_is_merged_for_every_layer() -> None:
    case = AttentionCase(heads=(2, 1, 64), requests=((1, 5000),))
    paged = PagedCase(case, "float32", "float32")
    backend = NumbaAttention(paged.context)
    metadata = backend.prepare(paged.batch)
    for _ in range(3):
        out = torch.full_like(paged.query, float("nan")).contiguous()
        backend.forward(paged.query, paged.cache, metadata, out)
        assert_accurate(out, paged.exact(), paged.reference(), "split request")


def test_other_dtypes_are_refused_by_name() -> None:
    paged = PagedCase(LONG, "float32", "float32")
    with pytest.raises(UnsupportedError, match="float32 and bfloat16, not float16"):
        NumbaAttention(replace(paged.context, kv_dtype="float16"))
