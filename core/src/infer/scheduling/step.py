"""A step under construction."""

from __future__ import annotations

from infer.scheduling.request import Request
from infer_plugin_api.execution import Admission, BlockAppend, RowStep, StepPlan


class StepBuilder:
    """Collects what the next plan holds; a preempted request can be taken out again."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.rows: dict[Request, RowStep] = {}
        self._admissions: list[Admission] = []
        self._appends: list[BlockAppend] = []

    def admit(self, request: Request) -> None:
        """Give the request's row to it. An admitted request is never taken out of its step."""
        self._admissions.append(
            Admission(
                row=request.row,
                request_id=request.request_id,
                token_ids=list(request.token_ids),
                num_prompt_tokens=request.num_prompt_tokens,
                params=request.params,
                seed=request.seed,
                stop_ids=request.stop_ids,
            )
        )

    def append_blocks(self, request: Request, start: int) -> None:
        """Tell the worker all groups' blocks from table index *start* on."""
        tables = request.tables
        assert tables is not None
        for group, table in enumerate(tables.blocks):
            first = max(start, tables.first[group])
            if first < len(table):
                self._appends.append(BlockAppend(request.row, group, first, table[first:]))

    def place(self, request: Request, end: int) -> None:
        """Compute the request's positions up to *end*, sampling if that reaches its last token.

        Positions past its last token are drafts.
        """
        start, length = request.num_computed, request.length
        step = RowStep(request.row, start, end - start, end >= length)
        self.rows[request] = step
        self.budget -= end - start
        request.num_computed = end
        if end > length:
            request.drafting = True
        elif step.sample:
            request.num_pending += 1

    def remove(self, request: Request) -> None:
        """Undo ``place``; nothing happens if the request is not in this step."""
        step = self.rows.pop(request, None)
        if step is None:
            return
        self.budget += step.num_tokens
        request.num_computed = step.start
        if request.drafting:
            request.drafting = False
        elif step.sample:
            request.num_pending -= 1
        self._appends = [append for append in self._appends if append.row != step.row]

    def plan(self, step_id: int, releases: list[int]) -> tuple[StepPlan, list[Request]]:
        """Return the plan, rows with one token first, and the requests parallel to its rows."""
        ordered = [(r, step) for r, step in self.rows.items() if step.num_tokens == 1]
        if len(ordered) < len(self.rows):
            ordered += [(r, step) for r, step in self.rows.items() if step.num_tokens > 1]
        plan = StepPlan(
            step_id, releases, self._admissions, self._appends, [step for _, step in ordered]
        )
        return plan, [request for request, _ in ordered]
