"""Prompts become ids; what can't be served is refused by the name of the field."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infer.engine.input_processor import InputProcessor, child_seed, default_sampling_params
from infer.modeling.files import ModelFiles
from infer_plugin_api.sampling import ParameterError, SamplingParams

LENGTH = 64
END_OF_TEXT = 256


def refused(inputs: InputProcessor, prompt: Any, **params: Any) -> ParameterError:
    with pytest.raises(ParameterError) as caught:
        inputs.prepare(prompt, SamplingParams(**params))
    return caught.value


def test_text_ids_and_mappings_give_the_same_ids(inputs: InputProcessor) -> None:
    ids = [ord("h"), ord("i")]
    forms: list[Any] = ["hi", ids, tuple(ids), {"prompt": "hi"}, {"prompt_token_ids": ids}]
    for form in forms:
        prepared = inputs.prepare(form, SamplingParams())
        assert prepared.prompt_token_ids == ids
        assert prepared.children[0].prompt_token_ids == ids
    assert inputs.prepare("hi", SamplingParams()).text == "hi"
    assert inputs.prepare(ids, SamplingParams()).text is None


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("", "empty"),
        ([], "empty"),
        ({}, "empty"),
        ({"promt": "hi"}, "unknown key 'promt'"),
        ([1, "2"], "'2' is not a token id"),
        ([True], "True is not a token id"),
        ([1.0], "1.0 is not a token id"),
        ([512], "token id 512 is outside the vocabulary (0 to 511)"),
        ([-1], "token id -1 is outside"),
        ([65] * LENGTH, "has 64 tokens"),
        ("a" * 200_000, "at least"),
    ],
)
def test_prompts_that_cannot_be_served_name_the_fault(
    inputs: InputProcessor, prompt: Any, words: str
) -> None:
    error = refused(inputs, prompt)
    assert error.param == "prompt"
    assert words in str(error)


def test_the_longest_prompt_leaves_one_token(inputs: InputProcessor) -> None:
    inputs.prepare([65] * (LENGTH - 1), SamplingParams())


def test_a_salt_reaches_the_engine_and_must_be_text(inputs: InputProcessor) -> None:
    prepared = inputs.prepare({"prompt": "hi", "cache_salt": "tenant"}, SamplingParams())
    assert prepared.children[0].cache_salt == "tenant"
    assert refused(inputs, {"prompt": "hi", "cache_salt": 3}).param == "cache_salt"


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"logit_bias": {512: 1.0}}, "logit_bias"),
        ({"stop_token_ids": (512,)}, "stop_token_ids"),
        ({"logprobs": 21}, "logprobs"),
        ({"logits_processors": ("no_such",)}, "logits_processors"),
    ],
)
def test_parameters_are_checked_against_model_and_plugins(
    inputs: InputProcessor, params: dict[str, Any], field: str
) -> None:
    assert refused(inputs, "hi", **params).param == field


def test_an_unknown_logits_processor_is_answered_with_what_is_installed(
    inputs: InputProcessor,
) -> None:
    error = refused(inputs, "hi", logits_processors=("no_such",))
    assert "unknown logits processor 'no_such'; installed: " in str(error)


def test_callers_may_repeat_their_ids_but_the_engine_never_sees_one_twice(
    inputs: InputProcessor,
) -> None:
    seen = {
        child.request_id
        for _ in range(3)
        for child in inputs.prepare("hi", SamplingParams(n=2), "same").children
    }
    assert len(seen) == 6


def test_end_tokens_stop_unless_they_are_ignored(inputs: InputProcessor) -> None:
    def stop_ids(**params: Any) -> tuple[int, ...]:
        return inputs.prepare("hi", SamplingParams(**params)).children[0].stop_ids

    assert stop_ids() == (END_OF_TEXT,)
    assert stop_ids(stop_token_ids=(65, END_OF_TEXT)) == (END_OF_TEXT, 65)
    assert stop_ids(ignore_eos=True) == ()
    assert stop_ids(ignore_eos=True, stop_token_ids=(65,)) == (65,)


def test_bad_words_are_forbidden_alone_and_after_a_space(inputs: InputProcessor) -> None:
    params = inputs.prepare("hi", SamplingParams(bad_words=("ab",))).params
    assert set(params.bad_words_token_ids) == {(97, 98), (32, 97, 98)}


def test_answers_of_one_request_have_seeds_of_their_own(inputs: InputProcessor) -> None:
    children = inputs.prepare("hi", SamplingParams(n=3, seed=7)).children
    assert children[0].seed == 7
    assert len({child.seed for child in children}) == 3
    assert [child.seed for child in children] == [child_seed(7, index) for index in range(3)]


def test_the_engines_seed_makes_an_order_of_arrival_repeatable(
    make_inputs: Callable[..., InputProcessor],
) -> None:
    def seeds(seed: int | None) -> list[int]:
        inputs = make_inputs(seed=seed)
        return [inputs.prepare("hi", SamplingParams()).children[0].seed for _ in range(4)]

    assert seeds(5) == seeds(5)
    assert seeds(5) != seeds(6)
    assert seeds(None) != seeds(None)
    assert len(set(seeds(5))) == 4


def test_a_models_recommendations_become_defaults(alphabet_files: ModelFiles) -> None:
    def defaults(**config: Any) -> dict[str, Any]:
        files = ModelFiles(
            name="m",
            path=Path(),
            tokenizer_dir=Path(),
            config={},
            generation_config=config,
            fingerprint="",
            weight_format="",
            eos_token_ids=(),
        )
        return default_sampling_params(files)

    assert defaults() == {}
    assert defaults(temperature=0.6, top_k=None, max_new_tokens=9) == {
        "temperature": 0.6,
        "max_tokens": 9,
    }
    assert defaults(temperature=0.6, do_sample=False) == {"temperature": 0.0}
