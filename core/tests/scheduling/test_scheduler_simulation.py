"""Random lives of scheduler, KV cache and worker: whatever happens, the promises hold.

``--hypothesis-profile=acceptance`` runs 2,000 examples.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from scheduler_simulation import Simulation, World

from infer.kv_cache.capacity import blocks_needed
from infer.scheduling.request import Request
from infer_plugin_api.sampling import SamplingParams
from infer_plugin_api.scheduling import SchedulingPolicy

# A failing run is shrunk to its essence first, which takes minutes.
pytestmark = pytest.mark.timeout(900)

WINDOWS = [(None,), (None, 5), (None, 2), (4,), (1, None), (None, 7, 3), (None, None)]
STOP_ID, EOS_ID = 3, 4


class Chaos(SchedulingPolicy):
    """A third party's policy that makes no sense, but keeps to the interface."""

    def key(self, request: Any) -> int:
        return hash((request.arrival * 2654435761) % 97)

    def victim(self, running: Any) -> Any:
        return running[sum(request.num_computed_tokens for request in running) % len(running)]

    def preempts(self, waiting: Any, running: Any) -> bool:
        return (waiting.arrival + running.arrival) % 3 == 0


def tight_world(slack: int, **fields: Any) -> World:
    """A pool that holds about one request of full length, so that memory runs out."""
    world = World(**fields)
    needed = blocks_needed(world.groups(), world.block_size, world.max_model_len - 1)
    return replace(world, num_blocks=max(len(world.windows), needed + slack))


worlds = st.builds(
    tight_world,
    slack=st.integers(-4, 8),
    windows=st.sampled_from(WINDOWS),
    block_size=st.integers(1, 4),
    max_num_seqs=st.sampled_from([1, 2, 3, 4, 6]),
    max_num_batched_tokens=st.integers(1, 16),
    max_model_len=st.integers(12, 40),
    max_in_flight=st.sampled_from([1, 2, 2, 3]),
    lookahead=st.sampled_from([0, 0, 1, 2, 4]),
    draft_hits=st.integers(0, 10),
    vocab_size=st.just(8),
    caching=st.sampled_from([True, True, True, False]),
    policy=st.sampled_from(["fcfs", "priority", "priority", Chaos()]),
)


@dataclass(frozen=True)
class Job:
    """One arriving request; prompts share beginnings."""

    letter: int
    shared: int
    tail: list[int]
    max_tokens: int | None
    min_tokens: int
    priority: int
    salt: str
    stops: bool

    def arrive(self, simulation: Simulation) -> None:
        prompt = [self.letter] * self.shared + self.tail
        params = SamplingParams(max_tokens=self.max_tokens)
        probe = Request(request_id="", prompt_token_ids=prompt, params=params)
        if simulation.scheduler.cannot_fit(probe) is None:
            simulation.add(
                prompt,
                self.max_tokens,
                min_tokens=min(self.min_tokens, self.max_tokens or self.min_tokens),
                priority=self.priority,
                salt=self.salt,
                stop_ids=(STOP_ID, EOS_ID) if self.stops else (),
                eos_ids=(EOS_ID,) if self.stops else (),
            )


jobs = st.builds(
    Job,
    letter=st.sampled_from([0, 0, 0, 1]),
    shared=st.sampled_from([0, 0, 3, 8, 8, 12]),
    tail=st.lists(st.integers(0, 1), min_size=1, max_size=5),
    max_tokens=st.sampled_from([1, 4, 9, 16, 24, None]),
    min_tokens=st.integers(0, 3),
    priority=st.integers(0, 2),
    salt=st.sampled_from(["", "", "", "s"]),
    stops=st.booleans(),
)


class SchedulerMachine(RuleBasedStateMachine):
    """Arrivals, steps, results, aborts and failing rows in any order; then everything drains."""

    @initialize(world=worlds, burst=st.lists(jobs, min_size=4, max_size=8))
    def begin(self, world: World, burst: list[Job]) -> None:
        self.simulation = Simulation(world)
        self.arrive(burst)

    @rule(burst=st.lists(jobs, min_size=1, max_size=4))
    def arrive(self, burst: list[Job]) -> None:
        for job in burst:
            job.arrive(self.simulation)

    @rule()
    def schedule(self) -> None:
        self.simulation.schedule()

    @rule()
    def update(self) -> None:
        self.simulation.update()

    @rule(count=st.integers(2, 12))
    def run(self, count: int) -> None:
        for _ in range(count):
            self.simulation.round()

    @rule(pick=st.integers(0, 1000), failing=st.sampled_from([False, False, False, True]))
    def lose(self, pick: int, failing: bool) -> None:
        """A client leaves, or a logits processor will raise."""
        outcomes = self.simulation.outcomes.items()
        if unfinished := [known for known, outcome in outcomes if outcome.finish is None]:
            request_id = unfinished[pick % len(unfinished)]
            if failing:
                self.simulation.worker.failing.add(request_id)
            else:
                self.simulation.abort(request_id, "unknown")

    def teardown(self) -> None:
        if hasattr(self, "simulation"):
            self.simulation.drain()


SchedulerMachine.TestCase.settings = settings(
    max_examples=max(200, settings.default.max_examples),
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestSchedulerSimulation = SchedulerMachine.TestCase
