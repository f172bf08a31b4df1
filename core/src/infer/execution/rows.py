"""Permanent request rows: what a worker knows of every running request."""

from __future__ import annotations

import numpy as np
import torch

from infer_plugin_api.execution import StepPlan


class RowState:
    """Token ids and block tables by row, on the device.

    A row belongs to one request from its admission to its release. A batch is a list of rows, so
    requests that join or leave move nothing. On the CPU host and device arrays are the same memory.

    token_ids: int32 [rows, max_model_len + 1]; sampled ids are written here by the worker itself,
    so that the next step can read them before the host knows them.
    block_tables: per KV group int32 [rows, max_blocks].
    """

    def __init__(
        self, max_rows: int, max_model_len: int, page_size: int, groups: int, device: torch.device
    ) -> None:
        self.device = device
        self.max_blocks = -(-max_model_len // page_size)
        self.token_ids = torch.zeros(max_rows, max_model_len + 1, dtype=torch.int32, device=device)
        tables = [
            torch.zeros(max_rows, self.max_blocks, dtype=torch.int32, device=device)
            for _ in range(groups)
        ]
        self.block_tables = tables
        self._mirror = [table.numpy() if device.type == "cpu" else None for table in tables]

    def apply(self, plan: StepPlan) -> None:
        """Write what *plan* admits and appends; must run before its rows are computed."""
        for admission in plan.admissions:
            ids = torch.from_numpy(np.asarray(admission.token_ids, dtype=np.int32))
            self.token_ids[admission.row, : len(ids)] = ids.to(self.device, non_blocking=True)
        for append in plan.appends:
            end = append.start + len(append.blocks)
            mirror = self._mirror[append.group]
            if mirror is not None:
                mirror[append.row, append.start : end] = append.blocks
            else:
                blocks = torch.tensor(append.blocks, dtype=torch.int32)
                table = self.block_tables[append.group]
                table[append.row, append.start : end] = blocks.to(self.device, non_blocking=True)
