"""Sampling parameters through the whole engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from infer import LLM, SamplingParams
from tests.chain_model import chain_model
from tests.models import tiny_model

SMALL = {"dtype": "float32", "kv_cache_memory_bytes": 16 * 2**20, "cpu_threads": 1}


def prompt(ids: list[int]) -> dict[str, list[int]]:
    return {"prompt_token_ids": ids}


@pytest.mark.parametrize(
    ("text", "options", "answer"),
    [
        ("HHHH", {"presence_penalty": 1.5}, "HTHHHHHHHH"),
        ("HHHH", {"frequency_penalty": 0.6}, "HHTHTHTHTH"),
        ("H", {"repetition_penalty": 1.2}, "THHHHHHHHH"),
        ("x", {"repetition_penalty": 1.2}, "HTHHHHHHHH"),
        ("x", {"logit_bias": {ord("T"): 5.0}}, "TTTTTTTTTT"),
        ("x", {"bad_words": ["HHH"]}, "HHTHHTHHTH"),
        ("x", {"temperature": 1e-7}, "HHHHHHHHHH"),
        ("x", {"temperature": 1e-30}, "HHHHHHHHHH"),
        ("x", {"temperature": 2.0, "top_k": 1}, "HHHHHHHHHH"),
        ("x", {"temperature": 1.0, "top_p": 0.7}, "HHHHHHHHHH"),
        ("x", {"temperature": 1.0, "min_p": 0.5}, "HHHHHHHHHH"),
    ],
)
def test_a_biased_coin_obeys_each_parameter(
    coin: LLM, text: str, options: dict[str, Any], answer: str
) -> None:
    params = SamplingParams(**({"temperature": 0, "max_tokens": 10} | options))
    assert coin.generate(text, params)[0].outputs[0].text == answer


@pytest.fixture(scope="module")
def coin(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with LLM(str(chain_model("coin", tmp_path_factory.mktemp("coin"))), **SMALL) as llm:
        yield llm


def test_a_fair_share_of_heads_and_known_odds_come_out(coin: LLM) -> None:
    params = SamplingParams(temperature=1, max_tokens=200, seed=3, logprobs=2)
    answer = coin.generate("x", params)[0].outputs[0]
    assert 125 <= answer.text.count("H") <= 175, "150 expected, deviation 6.1"
    assert answer.logprobs is not None
    odds = {"H": -0.2877, "T": -1.3863}
    for entry, letter in zip(answer.logprobs, answer.text, strict=True):
        assert entry.text == letter
        assert entry.logprob == pytest.approx(odds[letter], abs=1e-3)


def mixed_requests() -> tuple[list[dict[str, list[int]]], list[SamplingParams]]:
    """Twelve requests of all kinds; those without a seed are greedy."""
    generator = torch.Generator().manual_seed(9)
    kinds: list[dict[str, Any]] = [
        {},
        {"temperature": 0},
        {"top_k": 20},
        {"top_p": 0.9, "frequency_penalty": 0.4},
        {"min_p": 0.05, "repetition_penalty": 1.1},
        {"temperature": 2.0, "top_p": 0.5, "presence_penalty": 0.7, "logprobs": 3},
    ]
    prompts = [
        prompt(torch.randint(0, 256, (5 + 7 * i,), generator=generator).tolist()) for i in range(12)
    ]
    params = [
        SamplingParams(**({"seed": i - 4, "max_tokens": 40, "ignore_eos": True} | kinds[i % 6]))
        for i in range(12)
    ]
    return prompts, params


def tokens_of(path: Path, *, one_by_one: bool, **options: Any) -> list[list[int]]:
    prompts, params = mixed_requests()
    with LLM(str(path), **(SMALL | options)) as llm:
        if one_by_one:
            outputs = [
                llm.generate([asked], chosen)[0]
                for asked, chosen in zip(prompts, params, strict=True)
            ]
        else:
            outputs = llm.generate(prompts, params)
    return [output.outputs[0].token_ids for output in outputs]


def test_a_seeded_answer_is_the_same_alone_in_a_batch_chunked_and_preempted(
    tmp_path: Path,
) -> None:
    path = tiny_model(tmp_path)
    alone = tokens_of(path, one_by_one=True)
    assert len({tuple(tokens) for tokens in alone}) == 12
    assert tokens_of(path, one_by_one=False) == alone
    assert tokens_of(path, one_by_one=False, max_num_batched_tokens=16) == alone
    # Blocks of 16 tokens of 3 layers, 2 heads of 16, keys and values in float32: room for 16.
    tight = 16 * (16 * 3 * 2 * 16 * 2 * 4)
    assert tokens_of(path, one_by_one=False, kv_cache_memory_bytes=tight) == alone
