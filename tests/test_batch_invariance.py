"""Acceptance 3: a request's greedy tokens in float32 do not depend on how it was computed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest

from infer import LLM, SamplingParams
from tests.models import tiny_model

Answers = list[list[int]]
TOKENS = 24
COMMON = {"dtype": "float32", "cpu_threads": 2, "max_model_len": 256}
ROOMY = {"kv_cache_memory_bytes": 512 << 20}


@pytest.fixture(scope="module", params=["tiny", "smollm2"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    if request.param == "tiny":
        return str(tiny_model(tmp_path_factory.mktemp("tiny")))
    return str(request.getfixturevalue("smollm2_path"))


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """32 prompts of 3 to 90 ids; half of them share their first 40."""
    rng = random.Random(5)
    shared = rng.choices(range(300), k=40)
    return [
        (shared if index % 2 else []) + rng.choices(range(300), k=rng.randint(3, 50))
        for index in range(32)
    ]


def answers(llm: LLM, prompts: list[list[int]]) -> Answers:
    params = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
    asked: list[Any] = [{"prompt_token_ids": prompt} for prompt in prompts]
    return [output.outputs[0].token_ids for output in llm.generate(asked, params)]


@pytest.fixture(scope="module")
def alone(model: str, prompts: list[list[int]]) -> Iterator[Answers]:
    """Each prompt by itself, without a prefix cache."""
    with LLM(model, **COMMON, **ROOMY, enable_prefix_caching=False) as llm:
        yield [answers(llm, [prompt])[0] for prompt in prompts]


def test_batched_with_31_others(model: str, prompts: list[list[int]], alone: Answers) -> None:
    with LLM(model, **COMMON, **ROOMY, enable_prefix_caching=False) as llm:
        assert answers(llm, prompts) == alone


def test_in_chunks_of_16(model: str, prompts: list[list[int]], alone: Answers) -> None:
    with LLM(model, **COMMON, **ROOMY, max_num_batched_tokens=16) as llm:
        assert answers(llm, prompts) == alone


def test_with_the_prefix_cache_cold_and_warm(
    model: str, prompts: list[list[int]], alone: Answers
) -> None:
    with LLM(model, **COMMON, **ROOMY) as llm:
        assert answers(llm, prompts) == alone
        asked: list[Any] = [{"prompt_token_ids": prompt} for prompt in prompts]
        again = llm.generate(
            asked, SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True)
        )
        assert [output.outputs[0].token_ids for output in again] == alone
        assert sum(output.num_cached_tokens > 0 for output in again) > 20


def test_under_forced_preemption(model: str, prompts: list[list[int]], alone: Answers) -> None:
    with LLM(model, **COMMON, **ROOMY) as llm:
        block = llm.info.block_bytes
    with LLM(model, **COMMON, kv_cache_memory_bytes=24 * block) as llm:
        assert answers(llm, prompts) == alone
        assert llm.stats.preemptions > 0
