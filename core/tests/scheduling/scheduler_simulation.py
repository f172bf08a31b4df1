"""Scheduler, KV cache and a simulated worker together, checked after every move."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from simulated_worker import SimulatedWorker, answer

from infer.kv_cache.manager import KVCacheManager
from infer.scheduling.config import SchedulerConfig, Update
from infer.scheduling.policies import FCFS, Priority
from infer.scheduling.request import Request
from infer.scheduling.scheduler import Scheduler
from infer_plugin_api.execution import StepPlan, StepResult
from infer_plugin_api.kv import KVGroup, KVSpec
from infer_plugin_api.sampling import SamplingParams
from infer_plugin_api.scheduling import SchedulingPolicy


@dataclass(frozen=True, kw_only=True)
class World:
    """What a simulation is made of. windows: one KV group each, None is full attention."""

    windows: tuple[int | None, ...] = (None,)
    num_blocks: int = 64
    block_size: int = 4
    max_num_seqs: int = 4
    max_num_batched_tokens: int = 16
    max_model_len: int = 128
    max_in_flight: int = 2
    lookahead: int = 0
    draft_hits: int = 6
    vocab_size: int = 50
    caching: bool = True
    policy: SchedulingPolicy | str = "fcfs"

    def groups(self) -> tuple[KVGroup, ...]:
        return tuple(
            KVGroup(
                spec=KVSpec(
                    num_kv_heads=1 + index,
                    head_size=8,
                    dtype="float32",
                    kind="full" if window is None else "sliding",
                    window=window,
                ),
                layers=(index,),
            )
            for index, window in enumerate(self.windows)
        )


@dataclass
class Outcome:
    """What became of one request."""

    request: Request
    token_ids: list[int]
    finish: Update | None = None
    deadline: int = 0


class Simulation:
    """Drives the scheduler as an engine does; every broken promise raises AssertionError."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cache = KVCacheManager(
            world.groups(), world.num_blocks, world.block_size, world.caching, b"model"
        )
        config = SchedulerConfig(
            max_num_seqs=world.max_num_seqs,
            max_num_batched_tokens=world.max_num_batched_tokens,
            max_model_len=world.max_model_len,
            max_in_flight=world.max_in_flight,
            lookahead=world.lookahead,
        )
        policy = world.policy
        if isinstance(policy, str):
            policy = {"fcfs": FCFS, "priority": Priority}[policy]()
        self.scheduler = Scheduler(config, self.cache, policy)
        self.worker = SimulatedWorker(
            world.windows,
            world.block_size,
            world.num_blocks,
            world.max_num_seqs,
            world.vocab_size,
            world.draft_hits,
        )
        self.in_flight: deque[tuple[StepPlan, StepResult, dict[int, set[int]]]] = deque()
        self.outcomes: dict[str, Outcome] = {}
        self.plans: list[StepPlan] = []
        self.rounds = 0

    # Moves

    def add(
        self,
        prompt: list[int],
        max_tokens: int | None = 8,
        *,
        request_id: str = "",
        stop_ids: tuple[int, ...] = (),
        eos_ids: tuple[int, ...] = (),
        min_tokens: int = 0,
        priority: int = 0,
        salt: str = "",
    ) -> str:
        request = Request(
            request_id=request_id or f"r{len(self.outcomes)}",
            prompt_token_ids=prompt,
            params=SamplingParams(max_tokens=max_tokens, min_tokens=min_tokens, priority=priority),
            stop_ids=stop_ids,
            eos_ids=eos_ids,
            cache_salt=salt,
        )
        self.worker.salts[request.request_id] = salt
        self.scheduler.add(request)
        self.outcomes[request.request_id] = Outcome(request, [])
        self._set_deadlines()
        return request.request_id

    def abort_after_one_step(self, prompt: list[int]) -> None:
        request_id = self.add(prompt)
        self.schedule()
        self.update()
        self.abort(request_id)

    def schedule(self) -> StepPlan | None:
        """Plan a step and let the worker execute it; its result stays in flight."""
        room = len(self.in_flight) < self.world.max_in_flight
        plan = self.scheduler.schedule()
        if plan is None:
            return None
        assert room, "a plan was issued with max_in_flight plans out"
        self._check_plan(plan)
        result = self.worker.execute(plan)
        named = {step.row: self.worker.named_blocks(step) for step in plan.rows}
        self._check_writes(plan)
        self.in_flight.append((plan, result, named))
        self.plans.append(plan)
        self.check()
        return plan

    def update(self) -> list[Update]:
        """Hand the oldest result to the scheduler."""
        if not self.in_flight:
            return []
        plan, result, _ = self.in_flight.popleft()
        return self._take(self.scheduler.update(plan, result))

    def abort(self, *request_ids: str) -> list[Update]:
        return self._take(self.scheduler.abort(request_ids))

    def round(self) -> list[Update]:
        """One round of the scheduler's progress promise."""
        self.rounds += 1
        plan = self.schedule()
        if plan is None or len(self.in_flight) == self.world.max_in_flight:
            return self.update()
        return []

    def drain(self) -> None:
        """Run until every request has finished, within the promised number of rounds."""
        while self.scheduler.has_unfinished:
            self.round()
            for outcome in self.outcomes.values():
                assert outcome.finish or self.rounds <= outcome.deadline, (
                    f"{outcome.request.request_id} is unfinished after {self.rounds} rounds; "
                    f"{outcome.deadline} were promised"
                )
        while self.in_flight:
            self.update()
        assert self.cache.num_used == 0, f"{self.cache.num_used} blocks leaked"
        assert self.scheduler._rows.num_free == self.world.max_num_seqs, "a row leaked"
        assert (self.scheduler.num_running, self.scheduler.num_waiting) == (0, 0)

    # Checks

    def check(self) -> None:
        self.cache.check()
        scheduler = self.scheduler
        assert scheduler.num_running <= self.world.max_num_seqs
        owners = self.cache._pool.owners
        for _, _, named in self.in_flight:
            for blocks in named.values():
                assert all(owners[block] > 0 for block in blocks), (
                    "a block was freed that a step in flight names"
                )

    def expected(self, request_id: str) -> list[int]:
        request = self.outcomes[request_id].request
        params = request.params
        limit = self.world.max_model_len - request.num_prompt_tokens
        most = limit if params.max_tokens is None else min(limit, params.max_tokens)
        return answer(
            request.prompt_token_ids,
            self.world.vocab_size,
            request.stop_ids,
            params.min_tokens,
            most,
        )

    def expected_of(self, prompt: list[int], count: int) -> list[int]:
        """What the model generates after *prompt* when nothing stops it."""
        return answer(prompt, self.world.vocab_size, (), 0, count)

    def _check_plan(self, plan: StepPlan) -> None:
        world = self.world
        assert plan.num_tokens > 0, "an empty plan"
        assert plan.num_tokens <= world.max_num_batched_tokens, "budget exceeded"
        lone = [step.num_tokens == 1 for step in plan.rows]
        assert lone == sorted(lone, reverse=True), "rows with one token must come first"
        rows = [step.row for step in plan.rows]
        assert len(set(rows)) == len(rows)
        for step in plan.rows:
            assert step.start + step.num_tokens < world.max_model_len
        taken = {admission.row for admission in plan.admissions} | set(plan.releases)
        for earlier, _, _ in self.in_flight:
            assert not taken & {step.row for step in earlier.rows}, (
                "a row changed hands while a step in flight names it"
            )

    def _check_writes(self, plan: StepPlan) -> None:
        """No slot of this step may be read or written by an earlier one for another row."""
        size = self.world.block_size
        for step in plan.rows:
            first, last = step.start // size, (step.start + step.num_tokens - 1) // size
            for table in self.worker.rows[step.row].tables:
                written = {table[index] for index in range(first, last + 1)}
                for _, _, named in self.in_flight:
                    for row, blocks in named.items():
                        assert row == step.row or not written & blocks, (
                            "a block is written that a step in flight names for another row"
                        )

    def _take(self, updates: list[Update]) -> list[Update]:
        for update in updates:
            outcome = self.outcomes[update.request_id]
            assert outcome.finish is None, "news of a finished request"
            outcome.token_ids += update.token_ids
            expected = self.expected(update.request_id)
            assert outcome.token_ids == expected[: len(outcome.token_ids)]
            assert update.num_cached_tokens < outcome.request.num_prompt_tokens
            assert update.num_cached_tokens % self.world.block_size == 0
            if update.finish_reason is not None:
                outcome.finish = update
                self._check_finish(outcome, update, expected)
        self.check()
        return updates

    def _check_finish(self, outcome: Outcome, update: Update, expected: list[int]) -> None:
        request = outcome.request
        if update.finish_reason in ("stop", "length"):
            assert outcome.token_ids == expected
            stopped = expected[-1] in request.stop_ids
            assert update.finish_reason == ("stop" if stopped else "length")
            if stopped and expected[-1] not in request.eos_ids:
                assert update.stop_reason == expected[-1]
            else:
                assert update.stop_reason is None

    def _set_deadlines(self) -> None:
        """The scheduler's promise, for all unfinished requests from now on."""
        depth, seqs = self.world.max_in_flight, self.world.max_num_seqs
        unfinished = [o for o in self.outcomes.values() if o.finish is None]
        unfinished.sort(key=lambda o: o.request.rank)
        builtin = isinstance(self.scheduler.policy, (FCFS, Priority))
        newest = max(unfinished, key=lambda o: o.request.arrival).request.rank
        rounds = [(depth + 1) * (o.request.max_length + seqs + 3) for o in unfinished]
        total = 0
        for outcome, share in zip(unfinished, rounds, strict=True):
            total += share
            if not builtin:
                outcome.deadline = self.rounds + len(unfinished) * sum(rounds)
            elif outcome.request.rank >= newest:
                outcome.deadline = self.rounds + total
