"""The built-in sampler against exact arithmetic, and its independence of the batch."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from infer.sampling.torch_sampler import TorchSampler, _draw, _weights
from infer.sampling.uniform import signed_seed, uniform
from infer_plugin_api.sampling import SamplingBatch


@dataclass(frozen=True)
class Row:
    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    greedy: bool = False
    seed: int = 0
    position: int = 0


def batch_of(rows: list[Row], vocab_size: int) -> SamplingBatch:
    top_k = [row.top_k or vocab_size for row in rows]
    return SamplingBatch(
        temperature=torch.tensor([row.temperature for row in rows]),
        top_p=torch.tensor([row.top_p for row in rows]),
        top_k=torch.tensor(top_k),
        min_p=torch.tensor([row.min_p for row in rows]),
        seeds=torch.tensor([signed_seed(row.seed) for row in rows]),
        positions=torch.tensor([row.position for row in rows]),
        greedy=torch.tensor([row.greedy for row in rows]),
        all_greedy=all(row.greedy for row in rows),
        any_greedy=any(row.greedy for row in rows),
        any_top_k=any(k < vocab_size for k in top_k),
        any_top_p=any(row.top_p < 1 for row in rows),
        any_min_p=any(row.min_p > 0 for row in rows),
    )


def draw(logits: torch.Tensor, rows: list[Row]) -> list[int]:
    batch = batch_of(rows, logits.shape[1])
    tokens = TorchSampler().sample(logits.clone(), batch)
    assert tokens.dtype == torch.int64
    return tokens.tolist()


def exact_distribution(logits: np.ndarray, row: Row) -> np.ndarray:
    """The definition in float64: sort, cut, renormalize."""
    scaled = logits.astype(np.float64) / row.temperature
    p = np.exp(scaled - scaled.max())
    p /= p.sum()
    order = np.argsort(-p, kind="stable")
    kept = np.zeros_like(p)
    kept[order] = p[order] * (p[order] >= np.float32(row.min_p) * p.max())
    if row.top_k:
        kept[order[row.top_k :]] = 0
    kept /= kept.sum()
    if row.top_p < 1:
        before = np.cumsum(kept[order]) - kept[order]
        kept[order] *= before < np.float32(row.top_p)
    return kept / kept.sum()


def p_value(chi_square: float, degrees: int) -> float:
    half = torch.tensor(degrees / 2, dtype=torch.float64)
    return float(torch.special.gammaincc(half, torch.tensor(chi_square / 2, dtype=torch.float64)))


MIXES = [
    Row(),
    Row(temperature=0.3),
    Row(temperature=2.5),
    Row(top_k=5),
    Row(top_p=0.7),
    Row(top_p=0.999),
    Row(min_p=0.1),
    Row(temperature=1.7, top_k=20, top_p=0.8),
    Row(temperature=1.5, min_p=0.05, top_p=0.9),
    Row(temperature=0.8, min_p=0.02, top_k=12, top_p=0.95),
    Row(top_k=40, min_p=0.01),
]


@pytest.mark.parametrize("row", MIXES, ids=str)
def test_draws_follow_the_exact_distribution(row: Row) -> None:
    vocab_size, draws = 50, 20_000
    logits = torch.randn(vocab_size, generator=torch.Generator().manual_seed(3)) * 1.5
    rows = [
        Row(row.temperature, row.top_p, row.top_k, row.min_p, seed=11, position=position)
        for position in range(draws)
    ]
    counts = np.bincount(draw(logits.expand(draws, -1), rows), minlength=vocab_size)
    expected = exact_distribution(logits.numpy(), row) * draws
    assert not counts[expected == 0].any(), "a token that was cut off came out"
    # Rare tokens share one bin, as the test asks for some counts in each.
    rare = (expected > 0) & (expected < 8)
    bins = [*np.flatnonzero(expected >= 8)]
    seen = [counts[i] for i in bins] + ([counts[rare].sum()] if expected[rare].sum() > 8 else [])
    mean = [expected[i] for i in bins] + (
        [expected[rare].sum()] if expected[rare].sum() > 8 else []
    )
    if len(mean) > 1:
        chi_square = sum((s - m) ** 2 / m for s, m in zip(seen, mean, strict=True))
        assert p_value(chi_square, len(mean) - 1) > 1e-4


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_each_draw_inverts_the_exact_cumulative_distribution(data: st.DataObject) -> None:
    vocab_size = data.draw(st.sampled_from([1, 2, 3, 17, 64, 1500, 4000]))
    scale = data.draw(st.sampled_from([0.0, 0.3, 2.0, 10.0]))
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 2**20)))
    logits = torch.randn(vocab_size, generator=generator) * scale
    row = Row(
        temperature=data.draw(st.sampled_from([0.01, 0.5, 1.0, 1.3, 8.0])),
        top_p=data.draw(st.sampled_from([1e-6, 0.1, 0.5, 0.9, 0.999, 1.0])),
        top_k=data.draw(st.sampled_from([0, 2, 3, 50, vocab_size])),
        min_p=data.draw(st.sampled_from([0.0, 1e-4, 0.05, 0.5, 1.0])),
        seed=data.draw(st.integers(-(2**63), 2**64 - 1)),
        position=data.draw(st.integers(0, 10**6)),
    )
    token = draw(logits.unsqueeze(0), [row])[0]
    p = exact_distribution(logits.numpy(), row)
    u = float(uniform(torch.tensor([signed_seed(row.seed)]), torch.tensor([row.position])))
    ranked = 0 < row.top_k < vocab_size or row.top_p < 1
    order = np.argsort(-p, kind="stable") if ranked else np.arange(vocab_size)
    place = int(np.flatnonzero(order == token)[0])
    before = p[order[:place]].sum()
    # Float32 probabilities: rounding may move borders and cut or keep one token more.
    slack = 1e-4 + p[p > 0].min()
    assert before - slack <= u <= before + p[token] + slack


@pytest.mark.parametrize("cut", [Row(top_k=3), Row(top_p=0.5)], ids=str)
def test_equally_likely_tokens_are_kept_by_ascending_id(cut: Row) -> None:
    rows = [Row(top_k=cut.top_k, top_p=cut.top_p, position=p) for p in range(500)]
    tokens = draw(torch.zeros(500, 6), rows)
    assert set(tokens) == {0, 1, 2}


def test_greedy_rows_in_a_mixed_batch_take_the_first_of_the_largest() -> None:
    logits = torch.zeros(3, 100)
    logits[:, [20, 60]] = 4.0
    rows = [Row(greedy=True), Row(top_p=0.9), Row(greedy=True)]
    assert draw(logits, rows)[::2] == [20, 20]


def random_row(generator: random.Random) -> Row:
    pick = generator.choice
    return Row(
        temperature=pick([0.2, 0.7, 1.0, 1.9]),
        top_p=pick([0.3, 0.9, 0.99, 1.0, 1.0]),
        top_k=pick([0, 0, 5, 50, 3000]),
        min_p=pick([0.0, 0.0, 0.02]),
        greedy=generator.random() < 0.1,
        seed=generator.randrange(-(2**63), 2**64),
        position=generator.randrange(10**6),
    )


@pytest.mark.parametrize("vocab_size", [1, 7, 513, 49_152, 50_257])
@pytest.mark.parametrize("count", [1, 2])
def test_a_row_gets_the_same_token_alone_and_in_any_batch(
    vocab_size: int, count: int, threads: Callable[[int], None]
) -> None:
    threads(count)
    generator = random.Random(vocab_size)
    rows = [random_row(generator) for _ in range(64)]
    logits = torch.randn(64, vocab_size, generator=torch.Generator().manual_seed(5)) * 2
    alone = [draw(logits[i : i + 1], [row])[0] for i, row in enumerate(rows)]
    for size in (2, 3, 8, 33, 64):
        chosen = generator.sample(range(64), size)
        assert draw(logits[chosen], [rows[i] for i in chosen]) == [alone[i] for i in chosen]


def test_probabilities_of_a_row_are_the_same_bits_in_any_batch() -> None:
    # Tokens could agree by luck; this looks at the numbers that decide them.
    vocab_size = 50_257
    logits = torch.randn(64, vocab_size, generator=torch.Generator().manual_seed(6)) * 4
    rows = [Row(temperature=0.3 + 0.02 * i, min_p=0.001 * (i % 3)) for i in range(64)]
    together = _weights(logits.clone(), batch_of(rows, vocab_size))
    sums = together.cumsum(dim=-1)
    for i, row in enumerate(rows):
        alone = _weights(logits[i : i + 1].clone(), batch_of([row], vocab_size))
        assert torch.equal(alone[0], together[i])
        assert torch.equal(alone.cumsum(dim=-1)[0], sums[i])


@pytest.mark.parametrize("bad", [float("nan"), float("-inf")])
@pytest.mark.parametrize("row", [Row(), Row(top_p=0.5), Row(top_k=4), Row(min_p=0.5)], ids=str)
def test_unusable_logits_still_give_an_id_of_the_vocabulary(bad: float, row: Row) -> None:
    logits = torch.stack([torch.full((300,), bad), torch.randn(300)])
    assert all(0 <= token < 300 for token in draw(logits, [row, row]))


def test_tokens_without_probability_are_never_drawn() -> None:
    logits = torch.full((1000, 400), -torch.inf)
    logits[:, [3, 399]] = 0.0
    for row in (Row(), Row(top_p=0.99), Row(top_k=300)):
        rows = [Row(top_p=row.top_p, top_k=row.top_k, position=p) for p in range(1000)]
        assert set(draw(logits, rows)) == {3, 399}


@pytest.mark.parametrize("number", [0.0, 1 - 2**-53])
def test_the_ends_of_the_unit_interval_draw_a_token_with_probability(number: float) -> None:
    weights = torch.tensor([[0.0, 0.3, 0.7, 0.0]])
    token = _draw(weights, torch.tensor([number], dtype=torch.float64))
    assert token.tolist() == [1 if number == 0.0 else 2]


def test_tiny_temperatures_keep_the_ratio_of_near_ties() -> None:
    logits = torch.full((20_000, 8), -50.0)
    logits[:, 2] = 90.0
    logits[:, 5] = torch.nextafter(torch.tensor(90.0), torch.tensor(0.0))
    rows = [Row(temperature=1.1e-5, position=p) for p in range(20_000)]
    share = draw(logits, rows).count(2) / 20_000
    gap = float(logits[0, 2].double() - logits[0, 5].double())
    assert share == pytest.approx(1 / (1 + np.exp(-gap / 1.1e-5)), abs=0.015)
