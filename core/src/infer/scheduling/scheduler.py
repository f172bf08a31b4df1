"""The scheduler: continuous batching with chunked prefill, preemption and plans in flight."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence

from infer.kv_cache.manager import KVCacheManager
from infer.kv_cache.tables import BlockTables, Match
from infer.scheduling.config import SchedulerConfig, SchedulerStats, Update
from infer.scheduling.ranked import RankedList
from infer.scheduling.request import NO_ROW, Request
from infer.scheduling.results import apply_result
from infer.scheduling.rows import RowPool
from infer.scheduling.step import StepBuilder
from infer_plugin_api.execution import StepPlan, StepResult
from infer_plugin_api.scheduling import SchedulingPolicy

_WATERMARK = 0.01


class Scheduler:
    """Plans steps for the requests it was given.

    A step holds, in this order while the token budget lasts: the running request that ranks
    first, the other running requests that decode, running prefills, then admissions. Waiting
    requests are admitted strictly by rank (the policy's key, then arrival; taken once, when the
    request is added); none overtakes another. A waiting request that ranks before every running
    one comes before all of them.

    Memory: a running request that finds no free block preempts others, as the policy chooses;
    preempted requests lose their blocks and row and are admitted again later with what they had
    generated, unchanged. The first in rank is never chosen. Admission leaves 1 % of the pool
    free, and what running prefills still need, so that it does not cause the next preemption.
    A waiting request may displace running ones that rank behind it where the policy's
    ``preempts`` says so, for a slot or for memory, if that can help at all.

    Async: up to ``max_in_flight`` plans are out. A sampled id that is not known yet is a
    placeholder: its position is planned, its block is not hashed. Rows and blocks that a plan in
    flight names are not given to others before it has retired. A row whose drafts are being
    verified is not planned again until the result is known, since its next position is not.

    Progress: let D be ``max_in_flight``, S ``max_num_seqs`` and W a request's prompt plus
    max_tokens. Count rounds: one ``schedule()``, then ``update()`` of the oldest plan when D are
    in flight or nothing was planned. With the built-in policies a request finishes within the sum
    of (D + 1) * (W + S + 3) over itself and the unfinished requests that rank before it, counted
    from the last arrival of such a request: at any time the first of them gets at least one token
    computed, or waits for steps in flight only. With any other policy the sum runs over all
    unfinished requests, times their number.
    """

    def __init__(
        self, config: SchedulerConfig, cache: KVCacheManager, policy: SchedulingPolicy
    ) -> None:
        self.config = config
        self.cache = cache
        self.policy = policy
        self._requests: dict[str, Request] = {}
        self._waiting = RankedList()
        self._running = RankedList()
        self._rows = RowPool(config.max_num_seqs)
        self._in_flight: deque[tuple[StepPlan, list[Request]]] = deque()
        self._watermark = int(cache.num_blocks * _WATERMARK)
        self._arrivals = 0
        self._issued = 0
        self._retired = 0
        self._preemptions = 0
        self._last_plan: tuple[int, int, int] = (0, 0, 0)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_in_flight(self) -> int:
        """Plans whose results are awaited."""
        return len(self._in_flight)

    @property
    def has_unfinished(self) -> bool:
        """Whether any request waits or runs; results of finished ones may still be in flight."""
        return bool(self._requests)

    def stats(self) -> SchedulerStats:
        tokens, prefills, decodes = self._last_plan
        return SchedulerStats(
            running=len(self._running),
            waiting=len(self._waiting),
            kv_blocks_used=self.cache.num_used,
            kv_blocks_total=self.cache.num_blocks,
            prefix_queries=self.cache.prefix_queries,
            prefix_hits=self.cache.prefix_hits,
            preemptions=self._preemptions,
            steps=self._issued,
            step_tokens=tokens,
            prefill_requests=prefills,
            decode_requests=decodes,
        )

    def cannot_fit(self, request: Request) -> str | None:
        """Say why *request* can never run here; None when it can."""
        prompt, limit = request.num_prompt_tokens, self.config.max_model_len
        if prompt == 0:
            return "the prompt has no tokens; at least one is needed"
        if prompt >= limit:
            return (
                f"the prompt has {prompt} tokens; with room for one more token the model's "
                f"length of {limit} allows at most {limit - 1}"
            )
        needed = self.cache.blocks_needed(self._max_length(request) - 1)
        if needed > self.cache.num_blocks:
            return (
                f"prompt and answer need {needed} KV cache blocks of {self.cache.block_size} "
                f"tokens, but the cache has {self.cache.num_blocks}; shorten the prompt or "
                "max_tokens, or give the cache more memory"
            )
        return None

    def add(self, request: Request) -> None:
        """Queue a request. Raises ValueError when its id is taken or it can never run."""
        if request.request_id in self._requests:
            raise ValueError(f"request id {request.request_id!r} is in use already")
        if reason := self.cannot_fit(request):
            raise ValueError(f"request {request.request_id!r}: {reason}")
        self._arrivals += 1
        request.arrival = self._arrivals
        request.max_length = self._max_length(request)
        request.rank = (self.policy.key(request), request.arrival)
        request.chain = self.cache.chain(request.cache_salt)
        self._requests[request.request_id] = request
        self._waiting.add(request)

    def abort(self, request_ids: Iterable[str]) -> list[Update]:
        """End requests at once; ids that are unknown or finished are ignored."""
        updates = []
        for request_id in request_ids:
            request = self._requests.get(request_id)
            if request is not None:
                self._finish(request)
                cached = request.num_cached_tokens or 0
                updates.append(Update(request_id, [], None, "abort", num_cached_tokens=cached))
        return updates

    def schedule(self) -> StepPlan | None:
        """Plan the next step; None when there is nothing to compute before a result arrives."""
        if len(self._in_flight) >= self.config.max_in_flight:
            return None
        step = StepBuilder(self.config.max_num_batched_tokens)
        self._admit(step, overtaking=True)
        if self._continue(step):
            self._admit(step, overtaking=False)
        if step.rows:
            return self._issue(step)
        if self._requests and not self._in_flight:
            raise RuntimeError(
                f"{len(self._running)} running and {len(self._waiting)} waiting requests, "
                f"{self.cache.available} of {self.cache.num_blocks} blocks available, but nothing "
                "can be scheduled: this is a bug in the scheduler"
            )
        return None

    def update(self, plan: StepPlan, result: StepResult) -> list[Update]:
        """Take in the result of *plan*, the oldest in flight; return the requests' news."""
        expected, requests = self._in_flight[0] if self._in_flight else (None, [])
        if expected is not plan or result.step_id != plan.step_id:
            raise RuntimeError(f"result of step {result.step_id} arrived out of order")
        self._in_flight.popleft()
        self._retired = plan.step_id
        self.cache.retire(plan.step_id)
        self._rows.retire(plan.step_id)
        updates = []
        for index, request in enumerate(requests):
            if request.finished:
                continue
            update = apply_result(request, plan.rows[index], result, index)
            if update is not None:
                self._commit(request)
                if update.finish_reason is not None:
                    self._finish(request)
                updates.append(update)
        return updates

    # One step

    def _continue(self, step: StepBuilder) -> bool:
        """Place running requests; False when one of them was left without memory."""
        running = self._running.requests
        if not running:
            return True
        active = [r for r in running if not r.drafting and r not in step.rows]
        decodes = [r for r in active if r.decoding]
        prefills = [r for r in active if not r.decoding]
        left = len(decodes)
        served = True
        if prefills and prefills[0] is running[0]:
            served &= self._place(prefills.pop(0), step, max(1, step.budget - left))
        for request in decodes:
            left -= 1
            served &= self._place(request, step, max(1, step.budget - left))
        for request in prefills:
            served &= self._place(request, step, step.budget)
        return served

    def _place(self, request: Request, step: StepBuilder, limit: int) -> bool:
        """Give *request* up to *limit* tokens of the step; False when there is no memory for it."""
        tables = request.tables
        length = request.length
        if tables is None or step.budget < 1 or length >= request.max_length:
            return True
        start = request.num_computed
        end = min(length, start + limit)
        if self.config.lookahead and length - start == 1 and start >= request.num_prompt_tokens:
            end = min(length + self.config.lookahead, start + limit, request.max_length - 1)
        if self.cache.has_sliding:
            self.cache.slide(tables, start, request.last_step)
        if end > tables.capacity:
            reach = self._reach(request, tables, step)
            if reach <= start:
                return False
            end = min(end, reach)
            first = self.cache.extend(tables, end)
            step.append_blocks(request, first)
        step.place(request, end)
        return True

    def _reach(self, request: Request, tables: BlockTables, step: StepBuilder) -> int:
        """Return how long *tables* can become, preempting others if it could not grow at all."""
        needed = len(self.cache.groups)
        while (reach := self.cache.reach(tables)) <= request.num_computed:
            if self.cache.available + self.cache.num_leaving >= needed:
                return reach
            others = [r for r in self._running.requests[1:] if r.tables is not None]
            helping = [r for r in others if self.cache.reclaimable(_tables([r]))] or others
            if not helping:
                return reach
            victim = self.policy.victim(helping)
            self._preempt(_among(victim, helping), step)
            if victim is request:
                return request.num_computed
        return reach

    def _admit(self, step: StepBuilder, *, overtaking: bool) -> None:
        """Admit by rank while rows, memory and budget last.

        overtaking: only those that rank before every running request.
        """
        while self._waiting and step.budget > 0:
            request = self._waiting.first
            first = self._running.first if self._running else None
            if overtaking and (first is None or first in step.rows or request.rank > first.rank):
                return
            if request.last_step > self._retired or not self._find_row(request, step):
                return
            match = self.cache.match(request.chain, request.token_ids)
            if not self._find_memory(request, match, step):
                return
            decodes = sum(r.decoding for r in self._running.requests) if overtaking else 0
            self._start(request, match, step)
            self._place(request, step, max(1, step.budget - decodes))

    def _start(self, request: Request, match: Match, step: StepBuilder) -> None:
        self._waiting.remove(request)
        self._running.add(request)
        request.row = self._rows.take()
        request.tables = self.cache.open(match, request.max_length)
        request.num_computed = match.num_tokens
        if request.num_cached_tokens is None:
            request.num_cached_tokens = match.num_tokens
            self.cache.count_query(request.num_prompt_tokens, match.num_tokens)
        step.admit(request)
        step.append_blocks(request, 0)

    def _issue(self, step: StepBuilder) -> StepPlan:
        self._issued += 1
        plan, requests = step.plan(self._issued, self._rows.take_releases())
        decodes = 0
        for request, row in step.rows.items():
            request.last_step = self._issued
            self._commit(request)
            decodes += row.start >= request.num_prompt_tokens
        self._in_flight.append((plan, requests))
        used = self.config.max_num_batched_tokens - step.budget
        self._last_plan = (used, len(requests) - decodes, decodes)
        return plan

    def _commit(self, request: Request) -> None:
        """Let others find the request's full blocks, as far as computed and known."""
        tables = request.tables
        if tables is not None:
            known = min(request.num_computed, len(request.token_ids))
            self.cache.commit(tables, request.chain, request.token_ids, known)

    # Rows and memory for a waiting request

    def _find_row(self, request: Request, step: StepBuilder) -> bool:
        if self._rows.num_free == 0 and self._rows.num_leaving == 0:
            victims = self._displaceable(request)
            if victims:
                self._preempt(_among(self.policy.victim(victims), victims), step)
        return self._rows.num_free > 0

    def _find_memory(self, request: Request, match: Match, step: StepBuilder) -> bool:
        """Whether *request* can start now; displaces others if that would let it start."""
        while (short := self._shortage(request, match, self._running.requests)) > 0:
            leaving = self.cache.num_leaving
            if short <= leaving:
                return False
            victims = self._displaceable(request)
            if not victims:
                return False
            others = [r for r in self._running.requests if r not in victims]
            freed = self.cache.reclaimable(_tables(victims)) + leaving
            if self._shortage(request, match, others) > freed:
                return False
            self._preempt(_among(self.policy.victim(victims), victims), step)
        return True

    def _shortage(self, request: Request, match: Match, running: Sequence[Request]) -> int:
        """Return how many more blocks *request* needs to start beside *running*."""
        total, chunk = self.cache.num_blocks, self.config.max_num_batched_tokens
        matched = match.held()
        idle = self.cache.idle(match)
        needed = self.cache.blocks_needed(request.length + 1, chunk)
        needed = max(needed - len(matched), len(self.cache.groups)) + idle
        if not running:
            return min(needed, total) - self.cache.available
        promised = 0
        for other in running:
            if not other.decoding and other.tables is not None:
                most = self.cache.blocks_needed(other.length + 1, chunk)
                promised += max(0, most - other.tables.num_blocks)
        return needed + promised + self._watermark - self.cache.available

    def _displaceable(self, request: Request) -> list[Request]:
        return [
            other
            for other in self._running.requests
            if other.rank > request.rank and self.policy.preempts(request, other)
        ]

    def _preempt(self, request: Request, step: StepBuilder) -> None:
        """Put a running request back; it computes everything again, in known ids."""
        step.remove(request)
        self._leave(request)
        self._running.remove(request)
        self._waiting.add(request)
        request.num_computed = 0
        request.num_preemptions += 1
        self._preemptions += 1

    def _finish(self, request: Request) -> None:
        request.finished = True
        del self._requests[request.request_id]
        if request.tables is None:
            self._waiting.remove(request)
        else:
            self._leave(request)
            self._running.remove(request)

    def _leave(self, request: Request) -> None:
        """Give back row and blocks, once no step in flight names them."""
        assert request.tables is not None
        self.cache.close(request.tables, request.last_step)
        self._rows.give(request.row, request.last_step)
        request.tables = None
        request.row = NO_ROW

    def _max_length(self, request: Request) -> int:
        limit = self.config.max_model_len
        if request.params.max_tokens is None:
            return limit
        return min(limit, request.num_prompt_tokens + request.params.max_tokens)


def _tables(requests: Iterable[Request]) -> list[BlockTables]:
    return [request.tables for request in requests if request.tables is not None]


def _among(victim: object, candidates: list[Request]) -> Request:
    """Return the policy's choice, which must be one of the candidates."""
    for request in candidates:
        if request is victim:
            return request
    raise RuntimeError("the scheduling policy chose a victim that is not a candidate")
