"""The model runner: one step, in two calls."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import torch

from infer.execution.context import StepContext
from infer.execution.inputs import StepInputs, build_inputs
from infer.execution.rows import RowState
from infer.sampling.state import SampleOutput, SamplingState
from infer_plugin_api.execution import (
    LateInputs,
    StepPlan,
    StepResult,
    TokenLogprobs,
)
from infer_plugin_api.models import Model


@dataclass(frozen=True)
class _Forwarded:
    """A step between its two calls. hidden: [S, hidden size] of the rows to sample."""

    plan: StepPlan
    inputs: StepInputs
    hidden: torch.Tensor
    began: float


class ModelRunner:
    """Computes plans in order. Sampled ids go to the rows on the device and to the host later."""

    def __init__(
        self,
        model: Model,
        rows: RowState,
        sampling: SamplingState,
        step: StepContext,
        page_size: int,
    ) -> None:
        self.model = model
        self.rows = rows
        self.sampling = sampling
        self.step = step
        self.page_size = page_size
        self._forwarded: deque[_Forwarded] = deque()

    @torch.inference_mode()
    def forward(self, plan: StepPlan) -> None:
        """Queue the forward pass: releases, admissions and block appends first."""
        began = time.perf_counter()
        for row in plan.releases:
            self.sampling.release(row)
        self.rows.apply(plan)
        for admission in plan.admissions:
            self.sampling.admit(admission)
        inputs = build_inputs(plan, self.rows, self.page_size)
        self.step.begin(inputs.batches)
        hidden = self.model.forward(inputs.input_ids, inputs.positions, inputs.sampled)
        self._forwarded.append(_Forwarded(plan, inputs, hidden, began))

    @torch.inference_mode()
    def sample(self, late: LateInputs) -> Callable[[], StepResult]:
        """Draw the step's tokens and put them into the rows; return what fetches the result."""
        step = self._forwarded.popleft()
        if step.plan.step_id != late.step_id:
            raise RuntimeError(f"sampling step {late.step_id}, but {step.plan.step_id} is next")
        inputs = step.inputs
        output = None
        if inputs.slots:
            logits = self.model.logits(step.hidden)
            output = self.sampling.sample(logits, inputs.sampled_rows, inputs.sampled_positions)
            self._remember(inputs, output.token_ids)
        return lambda: _result(step, output)

    def _remember(self, inputs: StepInputs, token_ids: torch.Tensor) -> None:
        device = self.rows.device
        row = torch.tensor(inputs.sampled_rows, dtype=torch.int64).to(device, non_blocking=True)
        at = torch.tensor(inputs.sampled_positions, dtype=torch.int64)
        self.rows.token_ids[row, at.to(device, non_blocking=True)] = token_ids.int()


def _result(step: _Forwarded, output: SampleOutput | None) -> StepResult:
    token_ids: list[list[int]] = [[] for _ in step.plan.rows]
    logprobs: list[list[TokenLogprobs]] = []
    errors: dict[int, str] = {}
    if output is not None:
        for slot, token in zip(step.inputs.slots, output.token_ids.tolist(), strict=True):
            token_ids[slot] = [token]
        errors = output.errors
        if output.logprobs is not None:
            logprobs = [[] for _ in step.plan.rows]
            for slot, entry in zip(step.inputs.slots, output.logprobs.entries(), strict=True):
                if entry is not None:
                    logprobs[slot] = [entry]
    return StepResult(
        step.plan.step_id, token_ids, logprobs, errors, time.perf_counter() - step.began
    )
