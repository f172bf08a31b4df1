"""SamplingParams refuse what makes no sense, naming the parameter and the value."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import pytest

from infer_plugin_api.sampling import ParameterError, SamplingParams


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("n", 0),
        ("n", 1_000_000),
        ("n", True),
        ("n", 1.0),
        ("max_tokens", 0),
        ("max_tokens", "16"),
        ("min_tokens", -1),
        ("temperature", -0.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "hot"),
        ("top_p", 0.0),
        ("top_p", 1.01),
        ("top_k", -2),
        ("top_k", 1.5),
        ("min_p", -0.01),
        ("min_p", 1.01),
        ("presence_penalty", 2.01),
        ("presence_penalty", -2.01),
        ("frequency_penalty", 2.01),
        ("frequency_penalty", -2.01),
        ("repetition_penalty", 0.0),
        ("repetition_penalty", math.inf),
        ("seed", 2**64),
        ("seed", 1.5),
        ("logprobs", -1),
        ("priority", 2**31),
        ("stop", ("",)),
        ("stop", (3,)),
        ("stop", tuple(str(i) for i in range(65))),
        ("stop_token_ids", (-1,)),
        ("stop_token_ids", ("a",)),
        ("logit_bias", {-1: 0.0}),
        ("logit_bias", {"5": 1.0}),
        ("logit_bias", {5: 100.5}),
        ("logit_bias", {5: math.nan}),
    ],
)
def test_a_wrong_value_is_refused_by_name(param: str, value: Any) -> None:
    with pytest.raises(ParameterError) as raised:
        SamplingParams(**{param: value})
    assert raised.value.param == param
    assert str(raised.value).startswith(f"{param}: ")


@pytest.mark.parametrize(
    ("param", "value"),
    [
        ("n", 128),
        ("max_tokens", None),
        ("temperature", 0),
        ("temperature", 1e-30),
        ("temperature", 100),
        ("top_p", 1),
        ("top_k", -1),
        ("min_p", 1),
        ("presence_penalty", -2),
        ("repetition_penalty", 1e-3),
        ("seed", -(2**63)),
        ("seed", 2**64 - 1),
        ("logprobs", 0),
        ("logit_bias", {0: -100, 7: 100.0}),
    ],
)
def test_a_limit_itself_is_accepted(param: str, value: Any) -> None:
    assert getattr(SamplingParams(**{param: value}), param) == value


def test_min_tokens_may_not_exceed_max_tokens() -> None:
    with pytest.raises(ParameterError, match=r"min_tokens: 5 is above max_tokens \(4\)"):
        SamplingParams(min_tokens=5, max_tokens=4)
    assert SamplingParams(min_tokens=5, max_tokens=None).min_tokens == 5


@pytest.mark.parametrize("param", ["stop", "bad_words", "logits_processors"])
def test_one_text_and_a_list_become_a_tuple(param: str) -> None:
    assert getattr(SamplingParams(**{param: "END"}), param) == ("END",)
    assert getattr(SamplingParams(**{param: ["a", "b"]}), param) == ("a", "b")
    assert getattr(SamplingParams(**{param: None}), param) == ()


def test_one_stop_token_becomes_a_tuple() -> None:
    assert SamplingParams(stop_token_ids=0).stop_token_ids == (0,)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("params", "greedy"),
    [
        ({"temperature": 0}, True),
        ({"temperature": 1e-7}, True),
        ({"temperature": 1.0, "top_k": 1}, True),
        ({"temperature": 0.01}, False),
        ({}, False),
    ],
)
def test_greedy_is_known_beforehand(params: dict[str, Any], greedy: bool) -> None:
    assert SamplingParams(**params).greedy is greedy


def test_parameters_cannot_be_changed_but_replaced() -> None:
    params = SamplingParams(max_tokens=4)
    with pytest.raises(dataclasses.FrozenInstanceError):
        params.max_tokens = 5  # type: ignore[misc]
    with pytest.raises(ParameterError):
        dataclasses.replace(params, min_tokens=5)
