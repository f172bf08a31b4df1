"""What built-in attention promises beyond the conformance kit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from infer.execution.attention.paged import PagedCPUBackend
from infer.execution.attention.phases import PhasedAttention
from infer.execution.attention.sdpa import SDPABackend
from infer_plugin_api.attention import AttentionBackend, AttentionBatch
from infer_plugin_api.testing.attention_cases import AttentionCase, PagedCase
from infer_plugin_api.testing.numerics import assert_accurate

DECODES = ((1, 1), (1, 16), (1, 17), (1, 200))
PREFILLS = ((7, 7), (130, 130), (16, 16))
MIXED = ((1, 9), (1, 130), (33, 33), (20, 90))


def attend(backend: AttentionBackend, paged: PagedCase, batch: AttentionBatch) -> torch.Tensor:
    query = paged.query[: batch.query_start_host[-1]]
    out = torch.full_like(query, float("nan")).contiguous()
    backend.forward(query, paged.cache, backend.prepare(batch), out)
    return out


@pytest.mark.parametrize("window", [None, 20])
def test_deterministic_sdpa_gives_a_query_the_same_bits_in_every_chunking(
    window: int | None,
) -> None:
    paged = PagedCase(AttentionCase(requests=((90, 90),), window=window), "float32", "float32")
    backend = SDPABackend(replace(paged.context, deterministic=True))
    out = attend(backend, paged, paged.batch)
    for begin, end in ((0, 1), (5, 6), (0, 16), (10, 37), (89, 90), (33, 80)):
        batch = AttentionBatch(
            num_decodes=int(end - begin == 1),
            query_start=torch.tensor([0, end - begin], dtype=torch.int32),
            seq_lens=torch.tensor([end], dtype=torch.int32),
            block_table=paged.batch.block_table,
            slot_mapping=paged.batch.slot_mapping[begin:end],
            query_start_host=[0, end - begin],
            seq_lens_host=[end],
        )
        part = torch.empty_like(paged.query[begin:end])
        backend.forward(paged.query[begin:end], paged.cache, backend.prepare(batch), part)
        assert torch.equal(part, out[begin:end]), (begin, end)


@pytest.mark.parametrize("requests", [DECODES, PREFILLS, MIXED], ids=["decode", "prefill", "mixed"])
def test_two_backends_share_a_batch_by_phase(requests: tuple[tuple[int, int], ...]) -> None:
    paged = PagedCase(AttentionCase(requests=requests), "float32", "float32")
    phased = PhasedAttention(
        decode=PagedCPUBackend(paged.context), prefill=SDPABackend(paged.context)
    )
    out = attend(phased, paged, paged.batch)
    assert_accurate(out, paged.exact(), paged.reference(), "phased")


@pytest.mark.parametrize("in_order", [False, True], ids=["fragmented", "in order"])
def test_blocks_that_follow_each_other_are_read_in_place(in_order: bool) -> None:
    paged = PagedCase(AttentionCase(requests=((1, 60),)), "float32", "float32")
    table = paged.batch.block_table
    if in_order:
        first = int(table[0, 0])
        order = torch.arange(table.shape[1], dtype=torch.int32)
        order = (order + first) % paged.cache.shape[1]
        if int(order[-1]) < first:
            order = torch.arange(table.shape[1], dtype=torch.int32)
        paged.cache[:, order.long()] = paged.cache[:, table[0].long()].clone()
        table[0] = order
    (request,) = PagedCPUBackend(paged.context).prepare(paged.batch)
    assert (request.first_slot is not None) == in_order
    out = attend(PagedCPUBackend(paged.context), paged, paged.batch)
    assert_accurate(out, paged.exact(), paged.reference(), "paged")
