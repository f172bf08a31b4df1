"""EngineCore: requests in, token ids out, one step at a time."""

from __future__ import annotations

import hashlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from dataclasses import dataclass

from infer.config.engine import EngineConfig
from infer.config.environment import env_flag
from infer.config.errors import EngineError
from infer.engine.messages import EngineInfo, EngineRequest, EngineStats, StepOutputs, TokenOutput
from infer.engine.resolve import Resolved, capacity, resolve
from infer.engine.threads import compute_threads
from infer.kv_cache.manager import KVCacheManager
from infer.modeling.files import ModelFiles
from infer.plugins.plan import plan_of
from infer.plugins.registry import Registry
from infer.scheduling.config import SchedulerConfig, Update
from infer.scheduling.request import Request
from infer.scheduling.scheduler import Scheduler
from infer_plugin_api.events import EngineEvent, RequestEvent
from infer_plugin_api.execution import Executor, LateInputs, StepPlan, StepResult
from infer_plugin_api.kv import block_bytes

log = logging.getLogger(__name__)

Progress = Callable[[int, int], None]
_MAX_IN_FLIGHT = 2
_DEFAULT_EXECUTOR = "builtin:inline"
_DEFAULT_POLICY = "builtin:fcfs"


@dataclass
class _Track:
    """What the engine remembers of an open request beside the scheduler."""

    prompt_tokens: int
    output_tokens: int = 0
    cached_tokens: int = 0
    first_scheduled: float = 0.0


class EngineCore:
    """Scheduler, cache and executor of one model. One thread calls all of it.

    Raises UserError or ModelError when it can't be built from what the user asked for.
    """

    def __init__(
        self,
        config: EngineConfig,
        files: ModelFiles,
        registry: Registry,
        progress: Progress | None = None,
    ) -> None:
        self.files = files
        self.registry = registry
        self.executor, resolved, self.info = _start(config, files, registry, progress)
        self.scheduler = _scheduler(resolved, self.info, files, registry)
        self._check = env_flag("INFER_CHECK")
        self._flight: deque[tuple[StepPlan, Future[StepResult]]] = deque()
        self._tracks: dict[str, _Track] = {}
        self._news: list[TokenOutput] = []
        self._step_seconds = 0.0
        self._closed = False
        registry.events.emit(
            "infer_engine_started",
            event=EngineEvent(model=files.name, detail={"kv_blocks": str(self.info.num_blocks)}),
        )

    def add(self, request: EngineRequest) -> None:
        """Take a request. One that can never run is answered with an error at the next step."""
        entry = Request(
            request_id=request.request_id,
            prompt_token_ids=request.prompt_token_ids,
            params=request.params,
            seed=request.seed,
            stop_ids=request.stop_ids,
            eos_ids=request.eos_ids,
            cache_salt=request.cache_salt,
        )
        if reason := self.scheduler.cannot_fit(entry):
            self._news.append(
                TokenOutput(request.request_id, [], finish_reason="error", error=reason)
            )
            return
        self.scheduler.add(entry)
        self._tracks[request.request_id] = _Track(len(request.prompt_token_ids))
        self._tell("infer_request_received", request.request_id)

    def abort(self, request_ids: Iterable[str]) -> None:
        """End requests now; unknown or finished ones are ignored."""
        self._news += self._outputs(self.scheduler.abort(request_ids))

    def has_work(self) -> bool:
        """Whether ``step`` has something to do or to report."""
        return bool(self._flight or self._news or self.scheduler.has_unfinished)

    def step(self) -> StepOutputs:
        """Plan ahead, wait for the oldest step, return what is new.

        Raises EngineError when a step fails: the state of the worker is unknown then.
        """
        self._plan_ahead()
        if self._flight:
            plan, future = self._flight.popleft()
            self._news += self._outputs(self._finish(plan, future))
        news, self._news = self._news, []
        if self._check and not self._flight and not self.scheduler.has_unfinished:
            self.scheduler.cache.check()
        return StepOutputs(news, self._stats())

    def close(self) -> None:
        """End the worker and tell the listeners. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self.executor.shutdown()
        self.registry.events.emit(
            "infer_engine_stopped", event=EngineEvent(model=self.files.name, detail={})
        )
        self.registry.events.close()

    def _plan_ahead(self) -> None:
        """Issue plans until two are in flight: one is computed while we wait for the other."""
        while len(self._flight) < _MAX_IN_FLIGHT:
            plan = self.scheduler.schedule()
            if plan is None:
                return
            now = time.time()
            for admission in plan.admissions:
                self._admitted(admission.request_id, now)
            self.executor.forward(plan)
            self._flight.append((plan, self.executor.sample(LateInputs(plan.step_id))))

    def _admitted(self, request_id: str, now: float) -> None:
        track = self._tracks.get(request_id)
        if track is not None and not track.first_scheduled:
            track.first_scheduled = now
            self._tell("infer_request_scheduled", request_id)

    def _finish(self, plan: StepPlan, future: Future[StepResult]) -> list[Update]:
        try:
            result = future.result()
        except Exception as error:
            log.exception("step %d failed", plan.step_id)
            raise EngineError(
                f"step {plan.step_id} failed: {type(error).__name__}: {error}"
            ) from error
        self._step_seconds = result.seconds
        return self.scheduler.update(plan, result)

    def _outputs(self, updates: Iterable[Update]) -> list[TokenOutput]:
        return [self._output(update) for update in updates]

    def _output(self, update: Update) -> TokenOutput:
        track = self._tracks[update.request_id]
        first = not track.output_tokens and bool(update.token_ids)
        track.output_tokens += len(update.token_ids)
        track.cached_tokens = update.num_cached_tokens
        if first:
            self._tell("infer_request_first_token", update.request_id)
        if update.finish_reason:
            self._tell("infer_request_finished", update.request_id, update.finish_reason)
            del self._tracks[update.request_id]
        return TokenOutput(
            request_id=update.request_id,
            token_ids=update.token_ids,
            logprobs=update.logprobs,
            finish_reason=update.finish_reason,
            stop_reason=update.stop_reason,
            error=update.error,
            num_cached_tokens=update.num_cached_tokens,
            first_scheduled=track.first_scheduled if first else 0.0,
        )

    def _tell(self, hook: str, request_id: str, finish_reason: str = "") -> None:
        if not self.registry.events.listens(hook):
            return
        track = self._tracks[request_id]
        event = RequestEvent(
            request_id=request_id,
            time=time.monotonic(),
            num_prompt_tokens=track.prompt_tokens,
            num_output_tokens=track.output_tokens,
            num_cached_tokens=track.cached_tokens,
            finish_reason=finish_reason,
        )
        self.registry.events.emit(hook, event=event)

    def _stats(self) -> EngineStats:
        stats = self.scheduler.stats()
        return EngineStats(
            running=stats.running,
            waiting=stats.waiting,
            kv_blocks_used=stats.kv_blocks_used,
            kv_blocks_total=stats.kv_blocks_total,
            prefix_queries=stats.prefix_queries,
            prefix_hits=stats.prefix_hits,
            preemptions=stats.preemptions,
            steps=stats.steps,
            step_seconds=self._step_seconds,
            step_tokens=stats.step_tokens,
            prefill_requests=stats.prefill_requests,
            decode_requests=stats.decode_requests,
        )


def _start(
    config: EngineConfig, files: ModelFiles, registry: Registry, progress: Progress | None
) -> tuple[Executor, Resolved, EngineInfo]:
    """Start the executor, load the model and size the KV pool."""
    from infer.execution.factory import WorkerSpec
    from infer.execution.platforms.choose import choose_platform

    architecture = registry.architecture(files.architecture)
    assert architecture is not None, "find_model has checked it"
    model = registry.load(architecture)().info(files.config)
    chosen, platform = choose_platform(registry, config.device)
    resolved = resolve(config, model, platform, chosen.name)
    spec = WorkerSpec(
        config=resolved.config,
        files=files,
        plan=plan_of(registry, config.plugins),
        threads=compute_threads(config.cpu_threads),
        registry=registry,
        progress=progress,
    )
    name = config.distributed_executor_backend or _DEFAULT_EXECUTOR
    executor: Executor = registry.load(registry.find("executor", name))(spec, 1)
    try:
        worker = executor.start()
        size = capacity(resolved, config.max_model_len, worker.block_bytes, worker.available_bytes)
        executor.allocate(size.num_blocks)
    except BaseException:
        executor.shutdown()
        raise
    info = EngineInfo(
        model=files.name,
        architecture=model.architecture,
        vocab_size=model.vocab_size,
        max_model_len=size.max_model_len,
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        num_blocks=size.num_blocks,
        block_size=config.block_size,
        block_bytes=block_bytes(resolved.groups, config.block_size),
        dtype=resolved.config.dtype,
        device=chosen.name,
        weight_bytes=worker.weight_bytes,
        load_seconds=worker.load_seconds,
        providers=worker.providers,
    )
    return executor, resolved, info


def _scheduler(
    resolved: Resolved, info: EngineInfo, files: ModelFiles, registry: Registry
) -> Scheduler:
    config = resolved.config
    what = f"{files.fingerprint}|{config.dtype}|{config.kv_cache_dtype}|{config.revision}"
    cache = KVCacheManager(
        resolved.groups,
        info.num_blocks,
        config.block_size,
        config.enable_prefix_caching,
        hashlib.sha256(what.encode()).digest(),
    )
    policy = registry.instance("scheduling_policy", config.scheduling_policy or _DEFAULT_POLICY)
    limits = SchedulerConfig(
        max_num_seqs=config.max_num_seqs,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=info.max_model_len,
        max_in_flight=_MAX_IN_FLIGHT,
    )
    return Scheduler(limits, cache, policy)
