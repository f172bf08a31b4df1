"""The inline executor runs tasks in order on one thread and reports what fails."""

from __future__ import annotations

import threading
from concurrent.futures import TimeoutError as FutureTimeout

import pytest

from infer.execution.inline import InlineExecutor
from infer_plugin_api.execution import LateInputs, StepPlan, StepResult, WorkerInfo


class Recorder:
    """A worker that notes its calls and the threads they came on."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.threads: set[str] = set()
        self.fail_forward = False

    def note(self, call: str) -> None:
        self.calls.append(call)
        self.threads.add(threading.current_thread().name)

    def load(self) -> WorkerInfo:
        self.note("load")
        return WorkerInfo(1, 2, 3, 0.0, {})

    def allocate(self, num_blocks: int) -> None:
        self.note(f"allocate {num_blocks}")

    def forward(self, plan: StepPlan) -> None:
        self.note(f"forward {plan.step_id}")
        if self.fail_forward:
            raise RuntimeError("out of order")

    def sample(self, late: LateInputs):
        self.note(f"sample {late.step_id}")
        return lambda: StepResult(late.step_id, [])

    def close(self) -> None:
        self.note("close")


def plan(step_id: int) -> StepPlan:
    return StepPlan(step_id, [], [], [], [])


@pytest.fixture
def worker():
    return Recorder()


@pytest.fixture
def executor(worker):
    executor = InlineExecutor(lambda rank: worker, 1)
    yield executor
    executor.shutdown()


def test_calls_arrive_in_order_on_one_other_thread(executor, worker):
    assert executor.start().available_bytes == 2
    executor.allocate(7)
    futures = []
    for step in (1, 2):
        executor.forward(plan(step))
        futures.append(executor.sample(LateInputs(step)))
    assert [future.result(5).step_id for future in futures] == [1, 2]
    assert worker.calls == [
        "load",
        "allocate 7",
        "forward 1",
        "sample 1",
        "forward 2",
        "sample 2",
    ]
    assert worker.threads == {"infer-worker"}


def test_a_failing_forward_fails_the_steps_future(executor, worker):
    executor.start()
    worker.fail_forward = True
    executor.forward(plan(1))
    with pytest.raises(RuntimeError, match="out of order"):
        executor.sample(LateInputs(1)).result(5)


def test_a_worker_that_cannot_be_made_fails_start():
    def broken(rank: int):
        raise ValueError("no device")

    executor = InlineExecutor(broken, 1)
    with pytest.raises(ValueError, match="no device"):
        executor.start()
    executor.shutdown()


def test_shutdown_closes_the_worker_and_may_be_called_twice(worker):
    executor = InlineExecutor(lambda rank: worker, 1)
    executor.start()
    executor.shutdown()
    executor.shutdown()
    assert worker.calls[-1] == "close"
    with pytest.raises(FutureTimeout):
        executor.sample(LateInputs(1)).result(0.05)
