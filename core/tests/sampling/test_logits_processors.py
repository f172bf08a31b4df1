"""Logits processors that requests name: what they see, and that they fail alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from infer_plugin_api.sampling import LogitsContext, LogitsProcessor, SamplingParams

if TYPE_CHECKING:
    from conftest import Harness

FALLING = -torch.arange(8, dtype=torch.float32)


class CountUp(LogitsProcessor):
    """Forces the prompt's length, then one more each time."""

    def apply(self, output_token_ids: Sequence[int], logits: torch.Tensor) -> None:
        logits[len(self.context.prompt_token_ids) + len(output_token_ids)] = 100.0


class Echo(LogitsProcessor):
    """Forces the id before the last one, so it needs the right ids."""

    def apply(self, output_token_ids: Sequence[int], logits: torch.Tensor) -> None:
        if len(output_token_ids) > 1:
            logits[output_token_ids[-2]] += 200.0


class FailsAtTwo(LogitsProcessor):
    def apply(self, output_token_ids: Sequence[int], logits: torch.Tensor) -> None:
        if len(output_token_ids) == 2:
            raise ValueError("no idea")


class CannotStart(LogitsProcessor):
    def __init__(self, context: LogitsContext) -> None:
        raise KeyError("pattern")

    def apply(self, output_token_ids: Sequence[int], logits: torch.Tensor) -> None:
        raise AssertionError("must not be reached")


class Nothing(LogitsProcessor):
    def apply(self, output_token_ids: Sequence[int], logits: torch.Tensor) -> None:
        logits.fill_(-torch.inf)


PROCESSORS: dict[str, type[LogitsProcessor]] = {
    "count-up": CountUp,
    "echo": Echo,
    "fails": FailsAtTwo,
    "cannot-start": CannotStart,
    "nothing": Nothing,
}


def named(*names: str, **options: object) -> SamplingParams:
    return SamplingParams(temperature=0, logits_processors=names, **options)


def test_a_processor_sees_the_prompt_and_all_generated_ids(rows: Harness) -> None:
    state = rows(vocab_size=8, processors=PROCESSORS)
    state.admit(0, [7, 7], named("count-up"))
    assert state.generate(FALLING, 0, 4) == [2, 3, 4, 5]


def test_processors_run_in_the_order_that_was_asked_for(rows: Harness) -> None:
    state = rows(vocab_size=8, processors=PROCESSORS)
    state.admit(0, [7], named("count-up", "echo"))
    assert state.generate(FALLING, 0, 5) == [1, 2, 1, 2, 1]


def test_after_a_preemption_a_new_instance_sees_the_earlier_ids(rows: Harness) -> None:
    state = rows(vocab_size=8, processors=PROCESSORS)
    state.admit(0, [7], named("count-up", "echo"), generated=[1, 2, 1])
    assert state.generate(FALLING, 0, 2) == [2, 1]


def test_a_processor_that_raises_fails_its_own_request_only(rows: Harness) -> None:
    state = rows(vocab_size=8, processors=PROCESSORS)
    state.admit(2, [7], named("fails"))
    state.admit(4, [7], SamplingParams(temperature=0))
    logits = torch.stack([FALLING, FALLING])
    for step in range(4):
        output = state.step(logits, [4, 2])
        assert output.token_ids.tolist() == [0, 0]
        expected = {2: "logits processor 'fails' failed: ValueError: no idea"}
        assert output.errors == (expected if step >= 2 else {})


def test_a_processor_that_cannot_start_fails_its_request_at_the_first_token(rows: Harness) -> None:
    state = rows(vocab_size=8, processors=PROCESSORS)
    state.admit(0, [7], named("count-up", "cannot-start", "no-such-name"))
    output = state.step(FALLING.unsqueeze(0), [0])
    assert output.errors == {
        0: "logits processor 'cannot-start' failed to start: KeyError: 'pattern'"
    }
    state.state.release(0)
    state.admit(0, [7], named())
    assert state.step(FALLING.unsqueeze(0), [0]).errors == {}


def test_a_processor_that_leaves_no_token_is_an_error(rows: Harness) -> None:
    state = rows(vocab_size=8, processors=PROCESSORS)
    state.admit(0, [7], named("nothing"))
    output = state.step(FALLING.unsqueeze(0), [0])
    assert output.errors == {0: "logits processor 'nothing' left no token that could be sampled"}
    assert 0 <= int(output.token_ids[0]) < 8


def test_errors_name_only_rows_of_the_step(rows: Harness) -> None:
    state = rows(vocab_size=8, processors=PROCESSORS)
    state.admit(0, [7], named("nothing"))
    state.admit(1, [7], named())
    state.step(FALLING.unsqueeze(0), [0])
    assert state.step(FALLING.unsqueeze(0), [1]).errors == {}


def test_min_tokens_holds_against_a_processor(rows: Harness) -> None:
    state = rows(vocab_size=8, processors=PROCESSORS)
    state.admit(0, [7], named("count-up", min_tokens=2), stop_ids=(1, 2))
    assert state.generate(FALLING, 0, 3) == [0, 0, 3]
