"""Built-in attention backends against float64 over random paged caches."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from infer.execution.attention.paged import PagedCPUBackend
from infer.execution.attention.phases import PhasedAttention
from infer.execution.attention.sdpa import SDPABackend
from infer_plugin_api.attention import AttentionBatch, AttentionContext, AttentionSpec

PAGE = 16
MAX_BLOCKS = 24
BACKENDS = [SDPABackend, PagedCPUBackend]
# (tokens computed now, tokens in the cache afterwards)
BATCHES = {
    "decodes": [(1, 1), (1, 16), (1, 17), (1, 200)],
    "prefills": [(7, 7), (130, 130), (16, 16)],
    "chunks": [(5, 40), (1, 33), (140, 300)],
    "mixed": [(1, 9), (1, 130), (33, 33), (20, 90)],
}


def context(spec: AttentionSpec, dtype: str, *, deterministic: bool = False) -> AttentionContext:
    return AttentionContext(
        spec=spec,
        device=torch.device("cpu"),
        dtype=dtype,
        kv_dtype=dtype,
        page_size=PAGE,
        max_requests=8,
        max_tokens=512,
        max_blocks=MAX_BLOCKS,
        deterministic=deterministic,
    )


class Case:
    """A cache full of NaN but for the requests' own slots."""

    def __init__(self, spec: AttentionSpec, sizes, dtype: str, *, scattered: bool) -> None:
        kind = getattr(torch, dtype)
        generator = torch.Generator().manual_seed(len(sizes) + sizes[0][1])
        sizes = sorted(sizes, key=lambda size: size[0] != 1)
        blocks = len(sizes) * MAX_BLOCKS
        order = torch.randperm(blocks, generator=generator) if scattered else torch.arange(blocks)
        self.table = order.int().view(len(sizes), MAX_BLOCKS)
        shape = (2, blocks, PAGE, spec.num_kv_heads, spec.head_size)
        self.cache = torch.full(shape, float("nan"), dtype=kind)
        self.spec, self.sizes = spec, sizes
        self.keys, self.values, slots = [], [], []
        for index, (count, length) in enumerate(sizes):
            at = torch.arange(length)
            slot = self.table[index].long()[at // PAGE] * PAGE + at % PAGE
            for half, kept in ((0, self.keys), (1, self.values)):
                data = torch.randn(
                    length, spec.num_kv_heads, spec.head_size, generator=generator
                ).to(kind)
                self.cache[half].view(-1, *shape[3:])[slot] = data
                kept.append(data)
            slots.append(slot[length - count :])
        starts = [0]
        for count, _ in sizes:
            starts.append(starts[-1] + count)
        self.query = torch.randn(
            starts[-1], spec.num_heads, spec.head_size, generator=generator
        ).to(kind)
        self.batch = AttentionBatch(
            num_decodes=sum(count == 1 for count, _ in sizes),
            query_start=torch.tensor(starts, dtype=torch.int32),
            seq_lens=torch.tensor([length for _, length in sizes], dtype=torch.int32),
            block_table=self.table,
            slot_mapping=torch.cat(slots),
            query_start_host=starts,
            seq_lens_host=[length for _, length in sizes],
        )

    def run(self, backend) -> torch.Tensor:
        out = torch.full_like(self.query, float("nan"))
        backend.forward(self.query, self.cache, backend.prepare(self.batch), out)
        return out

    def expected(self) -> torch.Tensor:
        return torch.cat([self._one(index) for index in range(len(self.sizes))])

    def _one(self, index: int) -> torch.Tensor:
        spec, (count, length) = self.spec, self.sizes[index]
        start = self.batch.query_start_host[index]
        query = self.query[start : start + count].double()
        groups = spec.num_heads // spec.num_kv_heads
        key = self.keys[index].double().repeat_interleave(groups, 1)
        value = self.values[index].double().repeat_interleave(groups, 1)
        scores = torch.einsum("qhd,khd->hqk", query, key) * spec.scale
        if spec.soft_cap:
            scores = torch.tanh(scores / spec.soft_cap) * spec.soft_cap
        at = torch.arange(length - count, length).unsqueeze(1)
        seen = torch.arange(length) <= at
        if spec.window:
            seen &= torch.arange(length) > at - spec.window
        scores = scores.masked_fill(~seen, float("-inf"))
        return torch.einsum("hqk,khd->qhd", functional.softmax(scores, -1), value)


def spec(**changes) -> AttentionSpec:
    values = {"num_heads": 6, "num_kv_heads": 2, "head_size": 32, "scale": 32**-0.5}
    return AttentionSpec(**(values | changes))


def relative_error(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected).norm() / expected.norm())


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("sizes", BATCHES.values(), ids=BATCHES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("window", [None, 20])
@pytest.mark.parametrize("scattered", [False, True], ids=["runs", "scattered"])
def test_output_is_that_of_float64(backend, sizes, dtype, window, scattered):
    case = Case(spec(window=window), sizes, dtype, scattered=scattered)
    error = relative_error(case.run(backend(context(case.spec, dtype))), case.expected())
    assert error < (2e-6 if dtype == "float32" else 7e-3)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_soft_cap_bounds_the_scores(backend):
    case = Case(spec(soft_cap=2.0, scale=3.0), BATCHES["mixed"], "float32", scattered=False)
    assert relative_error(case.run(backend(context(case.spec, "float32"))), case.expected()) < 2e-6


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("heads", [(4, 4), (9, 3), (8, 1)])
def test_heads_are_grouped_as_the_model_says(backend, heads):
    shape = spec(num_heads=heads[0], num_kv_heads=heads[1], head_size=8)
    case = Case(shape, BATCHES["mixed"], "float32", scattered=True)
    assert relative_error(case.run(backend(context(shape, "float32"))), case.expected()) < 2e-6


@pytest.mark.parametrize("window", [None, 20])
def test_deterministic_sdpa_gives_a_query_the_same_bits_in_every_chunking(window):
    shape = spec(window=window)
    backend = SDPABackend(context(shape, "float32", deterministic=True))
    whole = Case(shape, [(90, 90)], "float32", scattered=False)
    out = whole.run(backend)
    for begin, end in ((0, 1), (5, 6), (0, 16), (10, 37), (89, 90), (33, 80)):
        batch = AttentionBatch(
            num_decodes=int(end - begin == 1),
            query_start=torch.tensor([0, end - begin], dtype=torch.int32),
            seq_lens=torch.tensor([end], dtype=torch.int32),
            block_table=whole.table,
            slot_mapping=whole.batch.slot_mapping[begin:end],
            query_start_host=[0, end - begin],
            seq_lens_host=[end],
        )
        part = torch.empty_like(whole.query[begin:end])
        backend.forward(whole.query[begin:end], whole.cache, backend.prepare(batch), part)
        assert torch.equal(part, out[begin:end]), (begin, end)


@pytest.mark.parametrize("sizes", BATCHES.values(), ids=BATCHES)
def test_two_backends_share_a_batch_by_phase(sizes):
    case = Case(spec(), sizes, "float32", scattered=False)
    asked = context(case.spec, "float32")
    phased = PhasedAttention(decode=PagedCPUBackend(asked), prefill=SDPABackend(asked))
    assert relative_error(case.run(phased), case.expected()) < 2e-6
