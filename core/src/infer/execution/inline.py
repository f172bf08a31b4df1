"""The inline executor: one worker on a thread of the engine's process."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from infer_plugin_api.execution import (
    Executor,
    LateInputs,
    StepPlan,
    StepResult,
    Worker,
    WorkerFactory,
    WorkerInfo,
)

T = TypeVar("T")


class InlineExecutor(Executor):
    """Everything the worker does happens on one thread, so the engine plans while it computes.

    A forward pass that fails is reported by the step's ``sample``.
    """

    def __init__(self, factory: WorkerFactory, world_size: int) -> None:
        super().__init__(factory, world_size)
        self._tasks: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._failed: dict[int, BaseException] = {}
        self._worker: Worker | None = None
        self._thread = threading.Thread(target=self._run, name="infer-worker", daemon=True)

    def start(self) -> WorkerInfo:
        self._thread.start()
        return self._call(self._load).result()

    def allocate(self, num_blocks: int) -> None:
        self._call(lambda: self._live().allocate(num_blocks)).result()

    def forward(self, plan: StepPlan) -> None:
        def step() -> None:
            try:
                self._live().forward(plan)
            except Exception as error:
                self._failed[plan.step_id] = error

        self._tasks.put(step)

    def sample(self, late: LateInputs) -> Future[StepResult]:
        def step() -> StepResult:
            if failure := self._failed.pop(late.step_id, None):
                raise failure
            return self._live().sample(late)()

        return self._call(step)

    def shutdown(self) -> None:
        self._tasks.put(None)
        if self._thread.is_alive():
            self._thread.join()

    def _load(self) -> WorkerInfo:
        self._worker = self.factory(0)
        return self._worker.load()

    def _live(self) -> Worker:
        if self._worker is None:
            raise RuntimeError("the executor has not been started")
        return self._worker

    def _call(self, function: Callable[[], T]) -> Future[T]:
        future: Future[Any] = Future()

        def task() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self._tasks.put(task)
        return future

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()
        if self._worker is not None:
            self._worker.close()
            self._worker = None
