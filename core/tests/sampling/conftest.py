"""A sampling state with its token pool, driven the way the model runner drives it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from infer.sampling.state import SampleOutput, SamplingState
from infer.sampling.torch_sampler import TorchSampler
from infer_plugin_api.execution import Admission
from infer_plugin_api.sampling import LogitsContext, LogitsProcessor, SamplingParams

Harness = Callable[..., "Rows"]


class Rows:
    """Permanent rows; ``processors`` maps a registered name to its class."""

    def __init__(
        self,
        vocab_size: int,
        max_rows: int = 8,
        max_length: int = 64,
        processors: dict[str, type[LogitsProcessor]] | None = None,
    ) -> None:
        # Ids of earlier occupants must not matter, so the pool starts with some.
        self.pool = torch.full((max_rows, max_length), vocab_size - 1, dtype=torch.int32)
        self.lengths = [0] * max_rows
        known = processors or {}

        def make(name: str, context: LogitsContext) -> LogitsProcessor:
            return known[name](context)

        self.state = SamplingState(
            max_rows=max_rows,
            vocab_size=vocab_size,
            token_ids=self.pool,
            sampler=TorchSampler(),
            greedy=lambda logits: logits.argmax(dim=-1),
            processors=make,
        )

    def admit(
        self,
        row: int,
        prompt: list[int],
        params: SamplingParams,
        *,
        generated: list[int] | None = None,
        seed: int = 0,
        stop_ids: tuple[int, ...] = (),
    ) -> None:
        token_ids = prompt + (generated or [])
        self.pool[row, : len(token_ids)] = torch.tensor(token_ids, dtype=torch.int32)
        self.lengths[row] = len(token_ids)
        self.state.admit(Admission(row, f"r{row}", token_ids, len(prompt), params, seed, stop_ids))

    def step(self, logits: torch.Tensor, rows: list[int]) -> SampleOutput:
        """Sample *rows* from a copy of *logits* and put the tokens into the pool."""
        positions = [self.lengths[row] for row in rows]
        output = self.state.sample(logits.clone(), rows, positions)
        for row, token in zip(rows, output.token_ids.tolist(), strict=True):
            self.pool[row, self.lengths[row]] = token
            self.lengths[row] += 1
        return output

    def generate(self, logits: torch.Tensor, row: int, count: int) -> list[int]:
        """Sample *count* tokens of one row, all from the same logits [vocab]."""
        return [int(self.step(logits.unsqueeze(0), [row]).token_ids[0]) for _ in range(count)]


@pytest.fixture
def rows() -> Harness:
    return Rows


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Set the number of torch threads; the old number comes back after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)
