"""Acceptance 3: a request's greedy tokens in float32 do not depend on how it was computed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from infer import LLM, SamplingParams
from infer.engine.outputs import RequestOutput
from tests.models import tiny_model

Answers = list[list[int]]
COMMON = {"dtype": "float32", "cpu_threads": 2, "max_model_len": 256}
ROOMY = {"kv_cache_memory_bytes": 512 << 20}


MODELS = [
    ("tiny", 24),
    ("smollm2", 6),
    pytest.param(("smollm2", 64), marks=[pytest.mark.acceptance, pytest.mark.timeout(900)]),
]


@dataclass(frozen=True)
class Case:
    """A model, and how many tokens each of its answers has."""

    model: str
    tokens: int

    def answers(self, llm: LLM, prompts: list[list[int]]) -> list[RequestOutput]:
        params = SamplingParams(temperature=0, max_tokens=self.tokens, ignore_eos=True)
        asked: list[Any] = [{"prompt_token_ids": prompt} for prompt in prompts]
        return llm.generate(asked, params)

    def ids(self, llm: LLM, prompts: list[list[int]]) -> Answers:
        return [output.outputs[0].token_ids for output in self.answers(llm, prompts)]


@pytest.fixture(scope="module", params=MODELS, ids=lambda pair: f"{pair[0]}-{pair[1]}")
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    name, tokens = request.param
    if name == "tiny":
        return Case(str(tiny_model(tmp_path_factory.mktemp("tiny"))), tokens)
    return Case(str(request.getfixturevalue("smollm2_path")), tokens)


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """32 prompts of 3 to 90 ids; half of them share their first 40."""
    rng = random.Random(5)
    shared = rng.choices(range(300), k=40)
    return [
        (shared if index % 2 else []) + rng.choices(range(300), k=rng.randint(3, 50))
        for index in range(32)
    ]


@pytest.fixture(scope="module")
def alone(case: Case, prompts: list[list[int]]) -> Iterator[Answers]:
    """Each prompt by itself, without a prefix cache."""
    with LLM(case.model, **COMMON, **ROOMY, enable_prefix_caching=False) as llm:
        yield [case.ids(llm, [prompt])[0] for prompt in prompts]


def test_batched_with_31_others(case: Case, prompts: list[list[int]], alone: Answers) -> None:
    with LLM(case.model, **COMMON, **ROOMY, enable_prefix_caching=False) as llm:
        assert case.ids(llm, prompts) == alone


def test_in_chunks_of_16(case: Case, prompts: list[list[int]], alone: Answers) -> None:
    with LLM(case.model, **COMMON, **ROOMY, max_num_batched_tokens=16) as llm:
        assert case.ids(llm, prompts) == alone


def test_with_the_prefix_cache_cold_and_warm(
    case: Case, prompts: list[list[int]], alone: Answers
) -> None:
    with LLM(case.model, **COMMON, **ROOMY) as llm:
        assert case.ids(llm, prompts) == alone
        again = case.answers(llm, prompts)
        assert [output.outputs[0].token_ids for output in again] == alone
        assert sum(output.num_cached_tokens > 0 for output in again) > 20


def test_under_forced_preemption(case: Case, prompts: list[list[int]], alone: Answers) -> None:
    with LLM(case.model, **COMMON, **ROOMY) as llm:
        block = llm.info.block_bytes
    with LLM(case.model, **COMMON, kv_cache_memory_bytes=24 * block) as llm:
        assert case.ids(llm, prompts) == alone
        assert llm.stats.preemptions > 0
