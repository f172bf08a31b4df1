"""A step over permanent rows: batches in any make-up give each request its own tokens."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from infer.sampling.state import SamplingState
from infer_plugin_api.execution import Admission
from infer_plugin_api.sampling import Sampler, SamplingBatch, SamplingParams

if TYPE_CHECKING:
    from conftest import Harness, Rows

VOCAB = 700
LENGTH = 12


def random_params(generator: random.Random) -> SamplingParams:
    pick = generator.choice
    return SamplingParams(
        max_tokens=LENGTH,
        temperature=pick([0.0, 0.6, 1.0, 2.0]),
        top_p=pick([1.0, 0.8]),
        top_k=pick([0, 1, 30]),
        min_p=pick([0.0, 0.01]),
        presence_penalty=pick([0.0, 1.0]),
        frequency_penalty=pick([0.0, 0.5]),
        repetition_penalty=pick([1.0, 1.2]),
        logit_bias=pick([{}, {5: 8.0, 9: -100.0}]),
        bad_words_token_ids=pick([(), ((3,), (5, 5))]),
        min_tokens=pick([0, 6]),
        logprobs=pick([None, 2]),
    )


def model(request: int, position: int) -> torch.Tensor:
    """Logits [VOCAB] that depend on the request and the position, as a model's would."""
    generator = torch.Generator().manual_seed(request * 1000 + position)
    return torch.randn(VOCAB, generator=generator) * 3


def admit(state: Rows, row: int, request: int, generated: list[int]) -> None:
    generator = random.Random(request)
    params = random_params(generator)
    prompt = [generator.randrange(VOCAB) for _ in range(1 + request % 5)]
    state.admit(row, prompt, params, generated=generated, seed=request - 8, stop_ids=(5, 11))


def advance(state: Rows, where: dict[int, int], order: list[int]) -> dict[int, int]:
    """Sample one token of each request; *where* maps requests to rows."""
    rows = [where[request] for request in order]
    logits = torch.stack([model(request, state.lengths[where[request]]) for request in order])
    return dict(zip(order, state.step(logits, rows).token_ids.tolist(), strict=True))


def alone(rows: Harness, request: int) -> list[int]:
    state = rows(vocab_size=VOCAB)
    admit(state, 0, request, [])
    return [advance(state, {request: 0}, [request])[request] for _ in range(LENGTH)]


def test_every_request_gets_its_own_tokens_in_changing_batches_and_through_preemptions(
    rows: Harness,
) -> None:
    requests = list(range(24))
    expected = {request: alone(rows, request) for request in requests}
    found: dict[int, list[int]] = {request: [] for request in requests}
    generator = random.Random(1)
    state = rows(vocab_size=VOCAB)
    where: dict[int, int] = {}
    for _ in range(2000):
        open_requests = [r for r in requests if len(found[r]) < LENGTH]
        if not open_requests:
            break
        for request in list(where):
            # Finished ones leave; now and then a running one is preempted and comes back later.
            if len(found[request]) == LENGTH or generator.random() < 0.1:
                state.state.release(where.pop(request))
        free = [row for row in range(8) if row not in where.values()]
        waiting = [r for r in open_requests if r not in where]
        for request in generator.sample(waiting, min(len(free), len(waiting))):
            where[request] = free.pop(generator.randrange(len(free)))
            admit(state, where[request], request, found[request])
        running = list(where)
        order = generator.sample(running, generator.randint(1, len(running)))
        for request, token in advance(state, where, order).items():
            found[request].append(token)
    assert found == expected


@pytest.mark.parametrize("temperature", [1e-7, 1e-30, 0.0])
def test_a_temperature_near_zero_is_greedy(rows: Harness, temperature: float) -> None:
    state = rows(vocab_size=VOCAB)
    state.admit(0, [1], SamplingParams(temperature=temperature))
    for position in range(1, 20):
        logits = model(0, position) * 100
        assert state.generate(logits, 0, 1) == [int(logits.argmax())]


def test_a_seeded_stream_depends_on_seed_and_position_only(rows: Harness) -> None:
    logits = torch.zeros(VOCAB)
    streams = []
    for row, seed in ((0, 7), (5, 7), (0, 8), (0, -1), (0, 2**64 - 1)):
        state = rows(vocab_size=VOCAB)
        state.admit(row, [1], SamplingParams(), seed=seed)
        streams.append(state.generate(logits, row, 20))
    assert streams[0] == streams[1]
    assert streams[0] != streams[2]
    assert streams[3] == streams[4], "a negative seed is its unsigned form"


class Recording(Sampler):
    """Notes the batches it is given."""

    def __init__(self) -> None:
        self.batches: list[SamplingBatch] = []

    def sample(self, logits: torch.Tensor, batch: SamplingBatch) -> torch.Tensor:
        self.batches.append(batch)
        return logits.argmax(dim=-1)


def recorded(params: dict[int, SamplingParams]) -> tuple[SamplingState, Recording]:
    sampler = Recording()
    state = SamplingState(
        max_rows=8,
        vocab_size=VOCAB,
        token_ids=torch.zeros(8, 16, dtype=torch.int32),
        sampler=sampler,
        greedy=lambda logits: logits.argmax(dim=-1),
        processors=lambda name, context: pytest.fail(f"no processor {name} was asked for"),
    )
    for row, chosen in params.items():
        state.admit(Admission(row, str(row), [1, 2], 2, chosen, seed=row))
    return state, sampler


def test_greedy_batches_need_the_argmax_only() -> None:
    state, sampler = recorded(
        {0: SamplingParams(temperature=0), 1: SamplingParams(top_k=1), 2: SamplingParams()}
    )
    output = state.sample(torch.randn(2, VOCAB), [0, 1], [2, 2])
    assert output.token_ids.shape == (2,)
    assert sampler.batches == []


def test_the_sampler_is_told_what_the_batch_needs() -> None:
    state, sampler = recorded(
        {
            0: SamplingParams(temperature=0, top_p=0.5, top_k=9, min_p=0.3),
            1: SamplingParams(temperature=0.5),
            2: SamplingParams(top_p=0.25, top_k=-1),
            3: SamplingParams(top_k=VOCAB + 1, min_p=0.125),
            4: SamplingParams(top_k=40),
        }
    )
    state.sample(torch.randn(2, VOCAB), [1, 0], [2, 9])
    state.sample(torch.randn(4, VOCAB), [4, 3, 2, 1], [5, 6, 7, 8])
    first, second = sampler.batches
    assert (first.any_greedy, first.all_greedy) == (True, False)
    assert (first.any_top_k, first.any_top_p, first.any_min_p) == (False, False, False)
    assert first.greedy.tolist() == [False, True]
    assert first.positions.tolist() == [2, 9]
    assert (second.any_greedy, second.any_top_k, second.any_top_p, second.any_min_p) == (
        False,
        True,
        True,
        True,
    )
    assert second.top_k.tolist() == [40, VOCAB, VOCAB, VOCAB]
    assert second.top_p.tolist() == [1.0, 1.0, 0.25, 1.0]
    assert second.min_p.tolist() == [0.0, 0.125, 0.0, 0.0]
    assert second.temperature.tolist() == [1.0, 1.0, 1.0, 0.5]
    assert second.seeds.tolist() == [4, 3, 2, 1]


def test_a_row_taken_by_another_request_is_sampled_with_its_parameters() -> None:
    state, sampler = recorded({0: SamplingParams(temperature=0.5)})
    state.sample(torch.randn(1, VOCAB), [0], [2])
    state.release(0)
    state.admit(Admission(0, "next", [1], 1, SamplingParams(temperature=0.25), seed=99))
    state.sample(torch.randn(1, VOCAB), [0], [1])
    assert [batch.temperature.tolist() for batch in sampler.batches] == [[0.5], [0.25]]
    assert sampler.batches[1].seeds.tolist() == [99]


def test_sampling_works_in_inference_mode() -> None:
    with torch.inference_mode():
        state, _ = recorded({})
        params = SamplingParams(
            repetition_penalty=1.1, frequency_penalty=1, logit_bias={1: 1}, logprobs=2
        )
        state.admit(Admission(0, "r", [1, 2], 2, params, seed=1, stop_ids=(4,)))
        assert state.sample(torch.randn(1, VOCAB), [0], [2]).logprobs is not None


class NoWaiting(TorchDispatchMode):
    """Fails on operations that make the host wait for the device."""

    def __torch_dispatch__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = str(function)
        assert "_local_scalar_dense" not in name, "a value was read on the host"
        assert "nonzero" not in name, "a shape depends on values"
        return function(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 0},
        {"temperature": 0, "logprobs": 3},
        {"temperature": 0.7},
        {"temperature": 0.7, "min_p": 0.1},
        {"repetition_penalty": 1.2, "presence_penalty": 1.0, "frequency_penalty": 0.5},
        {"logit_bias": {3: 5.0}, "min_tokens": 2, "bad_words_token_ids": ((3,), (4, 5))},
    ],
    ids=str,
)
def test_sampling_does_not_wait_for_the_device(rows: Harness, options: dict[str, Any]) -> None:
    state = rows(vocab_size=VOCAB)
    for row in range(3):
        state.admit(row, [1, 2], SamplingParams(**options), generated=[3, 4], stop_ids=(9,))
    with NoWaiting():
        state.state.sample(torch.randn(3, VOCAB), [0, 1, 2], [4, 4, 4])
