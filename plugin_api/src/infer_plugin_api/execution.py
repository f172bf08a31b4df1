"""Step plans, their results, and the executors that carry them to workers.

A request that is running has one permanent *row* in each worker's state, from admission to
release. A plan names rows; token ids that the workers sampled never travel back to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Protocol

from infer_plugin_api.sampling import SamplingParams


@dataclass(frozen=True)
class Admission:
    """A request takes a row. Its earlier occupant was released in an earlier plan or this one.

    token_ids: the prompt, and after a preemption also what was generated before.
    num_prompt_tokens: how many of them are the prompt. seed: of the request's random stream.
    stop_ids: ids that end the request; masked while fewer than min_tokens were generated.
    """

    row: int
    request_id: str
    token_ids: list[int]
    num_prompt_tokens: int
    params: SamplingParams
    seed: int
    stop_ids: tuple[int, ...] = ()


@dataclass(frozen=True)
class BlockAppend:
    """Blocks for a row's table in one KV group, from index *start* on."""

    row: int
    group: int
    start: int
    blocks: list[int]


@dataclass(frozen=True)
class RowStep:
    """What one row computes: positions start ... start + num_tokens - 1.

    sample: draw the token that follows the last of these positions.
    """

    row: int
    start: int
    num_tokens: int
    sample: bool


@dataclass(frozen=True)
class StepPlan:
    """One step. Applied in this order: releases, admissions, block appends, rows."""

    step_id: int
    releases: list[int]
    admissions: list[Admission]
    appends: list[BlockAppend]
    rows: list[RowStep]

    @property
    def num_tokens(self) -> int:
        return sum(row.num_tokens for row in self.rows)


@dataclass(frozen=True)
class LateInputs:
    """What sampling needs and forward does not: it may be computed while forward runs."""

    step_id: int


@dataclass(frozen=True)
class TokenLogprobs:
    """Log-probabilities of one sampled token and of the most likely alternatives.

    Taken from the model's distribution before temperature, penalties and truncation.
    rank: 1 for the most likely token.
    """

    logprob: float
    rank: int
    top_ids: list[int]
    top_logprobs: list[float]


@dataclass(frozen=True)
class StepResult:
    """token_ids[i] holds what rows[i] of the plan sampled; empty where it did not sample.

    logprobs is parallel to token_ids, or empty when no row asked for any.
    errors: row -> reason, for rows whose request failed (a logits processor raised).
    """

    step_id: int
    token_ids: list[list[int]]
    logprobs: list[list[TokenLogprobs]] = field(default_factory=list)
    errors: dict[int, str] = field(default_factory=dict)
    seconds: float = 0.0


@dataclass(frozen=True)
class WorkerInfo:
    """What a worker found when it loaded its model.

    block_bytes: of one KV block over all layers. available_bytes: what the cache may take.
    providers: slot (and bucket) -> ``plugin:name`` that was chosen, for reports.
    """

    block_bytes: int
    available_bytes: int
    weight_bytes: int
    load_seconds: float
    providers: dict[str, str]


class Worker(Protocol):
    """What an executor drives; core's worker factory makes it. One thread calls all of it.

    ``sample`` queues the device's work and returns a function that waits for it and fetches the
    result; that function may be called from another thread, so that the next ``forward`` need not
    wait for the transfer.
    """

    def load(self) -> WorkerInfo: ...
    def allocate(self, num_blocks: int) -> None: ...
    def forward(self, plan: StepPlan) -> None: ...
    def sample(self, late: LateInputs) -> Callable[[], StepResult]: ...
    def close(self) -> None: ...


class WorkerFactory(Protocol):
    """Picklable; called where the worker shall live."""

    def __call__(self, rank: int) -> Worker: ...


class Executor(ABC):
    """Runs plans in order on one or more workers. Made in the engine's process.

    ``forward`` and ``sample`` return at once; up to two steps are in flight.
    """

    def __init__(self, factory: WorkerFactory, world_size: int) -> None:
        self.factory = factory
        self.world_size = world_size

    @abstractmethod
    def start(self) -> WorkerInfo:
        """Make the workers, load the model; return the smallest memory figures of all ranks."""

    @abstractmethod
    def allocate(self, num_blocks: int) -> None:
        """Make the KV pool on all workers."""

    @abstractmethod
    def forward(self, plan: StepPlan) -> None:
        """Queue the forward pass of *plan*."""

    @abstractmethod
    def sample(self, late: LateInputs) -> Future[StepResult]:
        """Queue sampling of the plan with the same step_id; a failed step fails the future."""

    @abstractmethod
    def shutdown(self) -> None:
        """End the workers; queued steps are dropped. May be called twice."""
