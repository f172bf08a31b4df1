"""From a plan to the flat batch that the model computes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from infer.execution.rows import RowState
from infer_plugin_api.attention import AttentionBatch
from infer_plugin_api.execution import StepPlan


@dataclass(frozen=True)
class StepInputs:
    """One step on the device; T tokens, R requests, S of them sampled.

    input_ids, positions: int64 [T]. batches: one per KV group, block tables differ.
    sampled: int64 [S], the tokens whose hidden states are needed; sampled_rows and
    sampled_positions (of the token to be drawn) belong to them; slots: their index in plan.rows.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    batches: list[AttentionBatch]
    sampled: torch.Tensor
    sampled_rows: list[int]
    sampled_positions: list[int]
    slots: list[int]


def build_inputs(plan: StepPlan, rows: RowState, page_size: int) -> StepInputs:
    """Lay the plan's tokens out flat; rows with one token come first in the plan."""
    device = rows.device
    row = np.fromiter((step.row for step in plan.rows), np.int64, len(plan.rows))
    start = np.fromiter((step.start for step in plan.rows), np.int64, len(plan.rows))
    count = np.fromiter((step.num_tokens for step in plan.rows), np.int64, len(plan.rows))
    offsets = np.zeros(len(plan.rows) + 1, np.int64)
    np.cumsum(count, out=offsets[1:])
    token_request = np.repeat(np.arange(len(plan.rows)), count)
    positions_host = np.arange(offsets[-1]) - offsets[token_request] + start[token_request]

    positions = torch.from_numpy(positions_host).to(device, non_blocking=True)
    request_row = torch.from_numpy(row).to(device, non_blocking=True)
    token_row = torch.from_numpy(row[token_request]).to(device, non_blocking=True)
    input_ids = rows.token_ids[token_row, positions].long()
    lengths = (start + count).astype(np.int32)
    width = (int(lengths.max()) - 1) // page_size + 1
    slots = [index for index, step in enumerate(plan.rows) if step.sample]
    batches = []
    for table in rows.block_tables:
        block = table[token_row, positions // page_size].long()
        batches.append(
            AttentionBatch(
                num_decodes=int((count == 1).sum()),
                query_start=torch.from_numpy(offsets.astype(np.int32)).to(device),
                seq_lens=torch.from_numpy(lengths).to(device),
                block_table=table[:, :width].index_select(0, request_row),
                slot_mapping=block * page_size + positions % page_size,
                query_start_host=offsets.tolist(),
                seq_lens_host=lengths.tolist(),
            )
        )
    return StepInputs(
        input_ids=input_ids,
        positions=positions,
        batches=batches,
        sampled=torch.from_numpy(offsets[1:][slots] - 1).to(device, non_blocking=True),
        sampled_rows=[plan.rows[index].row for index in slots],
        sampled_positions=[plan.rows[index].start + plan.rows[index].num_tokens for index in slots],
        slots=slots,
    )
