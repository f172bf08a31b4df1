"""Penalties and biases, over the ids that they are defined over."""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infer_plugin_api.sampling import SamplingParams

if TYPE_CHECKING:
    from conftest import Harness

H, T, X = 0, 1, 2
COIN = torch.tensor([22.6 + math.log(0.75), 22.6 + math.log(0.25), -40.0, -40.0])


def spoken(tokens: list[int]) -> str:
    return "".join("HTxy"[token] for token in tokens)


@pytest.mark.parametrize(
    ("prompt", "options", "text"),
    [
        ([H] * 4, {"presence_penalty": 1.5}, "HTHHHHHHHH"),
        ([H] * 4, {"frequency_penalty": 0.6}, "HHTHTHTHTH"),
        ([H], {"repetition_penalty": 1.2}, "THHHHHHHHH"),
        ([X], {"repetition_penalty": 1.2}, "HTHHHHHHHH"),
    ],
)
def test_presence_and_frequency_count_the_answer_and_repetition_the_prompt_too(
    rows: Harness, prompt: list[int], options: dict[str, float], text: str
) -> None:
    state = rows(vocab_size=4)
    state.admit(0, prompt, SamplingParams(temperature=0, **options))
    assert spoken(state.generate(COIN, 0, 10)) == text


def test_a_preempted_request_is_penalized_for_what_it_had_generated(rows: Harness) -> None:
    params = SamplingParams(temperature=0, frequency_penalty=0.6, presence_penalty=0.1)
    state = rows(vocab_size=4)
    state.admit(0, [H] * 4, params)
    whole = state.generate(COIN, 0, 10)
    for done in range(10):
        state.state.release(0)
        state.admit(0, [H] * 4, params, generated=whole[:done])
        assert state.generate(COIN, 0, 10 - done) == whole[done:]


def test_a_row_knows_nothing_of_its_earlier_occupant(rows: Harness) -> None:
    state = rows(vocab_size=4)
    state.admit(
        0,
        [X],
        SamplingParams(
            temperature=0,
            frequency_penalty=2,
            repetition_penalty=3,
            logit_bias={T: 9},
            min_tokens=4,
            bad_words_token_ids=((H,),),
            logprobs=1,
        ),
        stop_ids=(H,),
    )
    state.generate(COIN, 0, 8)
    state.state.release(0)
    state.admit(0, [X], SamplingParams(temperature=0))
    output = state.step(COIN.unsqueeze(0), [0])
    assert output.token_ids.tolist() == [H]
    assert output.logprobs is None


IDS = st.lists(st.integers(0, 9), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    requests=st.lists(
        st.tuples(
            IDS.filter(bool),
            IDS,
            st.sampled_from([0.0, 0.7, -2.0]),
            st.sampled_from([0.0, 0.3, -1.0]),
            st.sampled_from([1.0, 1.3, 0.6]),
            st.dictionaries(st.sampled_from([0, 3, 9, 10, 99]), st.sampled_from([-100, 2.5])),
        ),
        min_size=1,
        max_size=5,
    ),
    seed=st.integers(0, 1000),
)
def test_logits_equal_the_definitions_row_by_row(
    rows: Harness,
    requests: list[tuple[list[int], list[int], float, float, float, dict[int, float]]],
    seed: int,
) -> None:
    state = rows(vocab_size=10)
    logits = torch.randn(len(requests), 10, generator=torch.Generator().manual_seed(seed)) * 3
    expected = logits.tolist()
    for row, (prompt, output, presence, frequency, repetition, bias) in enumerate(requests):
        state.admit(
            row,
            prompt,
            SamplingParams(
                temperature=0,
                presence_penalty=presence,
                frequency_penalty=frequency,
                repetition_penalty=repetition,
                logit_bias=bias,
            ),
            generated=output,
        )
        line = expected[row]
        for token in {*prompt, *output}:
            line[token] *= 1 / repetition if line[token] > 0 else repetition
        for token, count in Counter(output).items():
            line[token] -= presence + frequency * count
        for token, value in bias.items():
            if token < 10:
                line[token] += value
    changed = logits.clone()
    state.state.sample(changed, list(range(len(requests))), state.lengths[: len(requests)])
    torch.testing.assert_close(changed, torch.tensor(expected), rtol=1e-5, atol=1e-5)


def test_biases_outside_the_vocabulary_touch_no_other_row(rows: Harness) -> None:
    state = rows(vocab_size=4)
    state.admit(0, [X], SamplingParams(temperature=0, logit_bias={4: 100, 99_999_999: 100}))
    state.admit(1, [X], SamplingParams(temperature=0))
    output = state.step(torch.stack([COIN, COIN]), [0, 1])
    assert output.token_ids.tolist() == [H, H]
