"""The declaration is sound, and the processor does what it says."""

from __future__ import annotations

import math

import torch

import infer_no_repeat
from infer_no_repeat.processor import NoRepeat
from infer_plugin_api.sampling import LogitsContext, SamplingParams


def allowed_after(*output: int, vocabulary: int = 6) -> set[int]:
    """Return the tokens that may follow *output*."""
    context = LogitsContext(params=SamplingParams(), prompt_token_ids=[0], vocab_size=vocabulary)
    logits = torch.zeros(vocabulary)
    NoRepeat(context).apply(output, logits)
    return {token for token, logit in enumerate(logits.tolist()) if logit > -math.inf}


def test_the_declaration_is_sound() -> None:
    (descriptor,) = infer_no_repeat.infer_logits_processors()
    assert descriptor.problems() == []


def test_a_run_of_three_tokens_comes_once() -> None:
    assert allowed_after(1, 2, 3, 1, 2) == {0, 1, 2, 4, 5}
    assert allowed_after(1, 2, 3, 1, 2, 4, 1, 2) == {0, 1, 2, 5}
    assert allowed_after(5, 5, 5) == {0, 1, 2, 3, 4}


def test_shorter_runs_may_come_again() -> None:
    for output in ((), (1,), (1, 2), (1, 2, 1), (1, 2, 3, 2)):
        assert allowed_after(*output) == {0, 1, 2, 3, 4, 5}
