"""Reported log-probabilities: the model's own distribution, whatever changed the logits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from infer_plugin_api.sampling import SamplingParams

if TYPE_CHECKING:
    from conftest import Harness


def random_logits(count: int, vocab_size: int = 50) -> torch.Tensor:
    return torch.randn(count, vocab_size, generator=torch.Generator().manual_seed(2)) * 3


def test_only_rows_that_ask_get_them_and_each_its_own_number(rows: Harness) -> None:
    state = rows(vocab_size=50)
    wanted = [None, 3, 0, None, 5]
    for row, count in enumerate(wanted):
        state.admit(row, [1], SamplingParams(temperature=0, logprobs=count))
    logits = random_logits(5)
    output = state.step(logits, [0, 1, 2, 3, 4])
    exact = torch.log_softmax(logits.double(), dim=-1)
    assert output.logprobs is not None
    for slot, (entry, count) in enumerate(zip(output.logprobs.entries(), wanted, strict=True)):
        if count is None:
            assert entry is None
            continue
        assert entry is not None
        values, ids = exact[slot].topk(count)
        assert entry.top_ids == ids.tolist()
        assert entry.top_logprobs == pytest.approx(values.tolist(), abs=1e-5)
        assert entry.logprob == pytest.approx(float(exact[slot].max()), abs=1e-5)
        assert entry.rank == 1


def test_temperature_penalties_masks_and_truncation_do_not_change_them(rows: Harness) -> None:
    state = rows(vocab_size=50)
    logits = random_logits(1)
    best, second = logits[0].topk(2).indices.tolist()
    params = SamplingParams(
        temperature=0.01,
        top_p=0.9,
        logit_bias={best: -100, second: 100},
        repetition_penalty=1.5,
        presence_penalty=1.0,
        logprobs=2,
    )
    state.admit(0, [best], params, generated=[second])
    output = state.step(logits, [0])
    exact = torch.log_softmax(logits[0].double(), dim=-1)
    assert output.logprobs is not None
    entry = output.logprobs.entries()[0]
    assert entry is not None
    assert output.token_ids.tolist() == [second]
    assert (entry.rank, entry.top_ids) == (2, [best, second])
    assert entry.logprob == pytest.approx(float(exact[second]), abs=1e-5)


def test_equal_logits_rank_by_id_and_share_the_rank(rows: Harness) -> None:
    state = rows(vocab_size=6)
    state.admit(0, [1], SamplingParams(temperature=0, logprobs=3))
    logits = torch.tensor([[0.0, 2.0, 0.0, 2.0, 2.0, 0.0]])
    output = state.step(logits, [0])
    assert output.logprobs is not None
    entry = output.logprobs.entries()[0]
    assert entry is not None
    assert (output.token_ids.tolist(), entry.rank, entry.top_ids) == ([1], 1, [1, 3, 4])


def test_the_chosen_token_alone_can_be_asked_for(rows: Harness) -> None:
    state = rows(vocab_size=50)
    state.admit(0, [1], SamplingParams(temperature=0, logprobs=0))
    logits = random_logits(1)
    output = state.step(logits, [0])
    assert output.logprobs is not None
    entry = output.logprobs.entries()[0]
    assert entry is not None
    assert (entry.rank, entry.top_ids, entry.top_logprobs) == (1, [], [])
    assert entry.logprob == pytest.approx(float(torch.log_softmax(logits[0], 0).max()), abs=1e-5)


def test_more_alternatives_than_tokens_gives_all_tokens(rows: Harness) -> None:
    state = rows(vocab_size=4)
    state.admit(0, [1], SamplingParams(temperature=0, logprobs=20))
    output = state.step(random_logits(1, 4), [0])
    assert output.logprobs is not None
    entry = output.logprobs.entries()[0]
    assert entry is not None
    assert sorted(entry.top_ids) == [0, 1, 2, 3]


def test_they_can_be_fetched_after_the_next_step_was_sampled(rows: Harness) -> None:
    state = rows(vocab_size=50)
    state.admit(0, [1], SamplingParams(temperature=0, logprobs=1))
    first = state.step(random_logits(2)[:1], [0])
    state.step(random_logits(2)[1:], [0])
    assert first.logprobs is not None
    entry = first.logprobs.entries()[0]
    assert entry is not None
    assert entry.top_ids == first.token_ids.tolist() == [int(random_logits(2)[0].argmax())]
