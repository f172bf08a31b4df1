"""Penalties on tokens that were seen, and biases."""

from __future__ import annotations

import torch

from infer.sampling.pipeline import Stage, StageRows
from infer_plugin_api.execution import Admission


class RepetitionPenalty(Stage):
    """Divides positive and multiplies negative logits of prompt and generated tokens.

    Keskar et al., "CTRL", 2019, section 4.1.
    """

    def __init__(self, max_rows: int, vocab_size: int, token_ids: torch.Tensor) -> None:
        super().__init__(max_rows, vocab_size, token_ids)
        self._penalties = torch.ones(max_rows, dtype=torch.float32, device=self.device)

    def admit(self, admission: Admission) -> bool:
        self._penalties[admission.row] = admission.params.repetition_penalty
        return admission.params.repetition_penalty != 1.0

    def apply(self, logits: torch.Tensor, batch: StageRows) -> None:
        slots, rows = self._device(batch.slots), self._device(batch.rows)
        start, end = torch.zeros_like(rows), self._device(batch.positions)
        seen, _ = span(self.token_ids, rows, start, end, max(batch.positions))
        penalty = self._penalties.index_select(0, rows).unsqueeze(1)
        index = slots.unsqueeze(1), seen
        found = logits[index]
        # An id that occurs twice is written twice, with the same value.
        logits[index] = torch.where(found > 0, found / penalty, found * penalty)


class OutputPenalties(Stage):
    """presence_penalty and frequency_penalty over generated tokens, as OpenAI defines them."""

    def __init__(self, max_rows: int, vocab_size: int, token_ids: torch.Tensor) -> None:
        super().__init__(max_rows, vocab_size, token_ids)
        self._penalties = torch.zeros(2, max_rows, dtype=torch.float32, device=self.device)

    def admit(self, admission: Admission) -> bool:
        params = admission.params
        pair = torch.tensor([params.presence_penalty, params.frequency_penalty])
        self._penalties[:, admission.row] = pair.to(self.device, non_blocking=True)
        return bool(params.presence_penalty or params.frequency_penalty)

    def apply(self, logits: torch.Tensor, batch: StageRows) -> None:
        longest = max(
            end - start for end, start in zip(batch.positions, batch.prompt_lengths, strict=True)
        )
        if longest == 0:
            return
        slots, rows = self._device(batch.slots), self._device(batch.rows)
        start, end = self._device(batch.prompt_lengths), self._device(batch.positions)
        seen, real = span(self.token_ids, rows, start, end, longest)
        presence, frequency = self._penalties.index_select(1, rows).unsqueeze(2)
        index = slots.unsqueeze(1).expand_as(seen), seen
        # Written once per id however often it occurs; the frequency adds up per occurrence.
        has_any = real[:, :1]
        logits[index] = logits[index] - presence * has_any
        logits.index_put_(index, -frequency * real, accumulate=True)


class LogitBias(Stage):
    """Adds a number to the logits of given tokens."""

    def __init__(self, max_rows: int, vocab_size: int, token_ids: torch.Tensor) -> None:
        super().__init__(max_rows, vocab_size, token_ids)
        self._biases: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}

    def admit(self, admission: Admission) -> bool:
        bias = admission.params.logit_bias
        ids = self._valid(tuple(bias))
        if ids:
            values = torch.tensor([bias[token] for token in ids], dtype=torch.float32)
            self._biases[admission.row] = self._device(ids), values.to(self.device)
        return bool(ids)

    def release(self, row: int) -> None:
        del self._biases[row]

    def apply(self, logits: torch.Tensor, batch: StageRows) -> None:
        for slot, row in zip(batch.slots, batch.rows, strict=True):
            ids, values = self._biases[row]
            logits[slot].index_add_(0, ids, values)


def span(
    token_ids: torch.Tensor,
    rows: torch.Tensor,
    start: torch.Tensor,
    end: torch.Tensor,
    longest: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return each row's ids from *start* up to *end* as int64 [S, longest], and which are real.

    Shorter rows are filled with their first id, so that writing by id stays within the row's own;
    a row with no id at all gets some id and no real entry.
    """
    offsets = torch.arange(longest, device=token_ids.device)
    columns = start.unsqueeze(1) + offsets
    real = columns < end.unsqueeze(1)
    columns = torch.where(real, columns, start.unsqueeze(1)).clamp_(max=token_ids.shape[1] - 1)
    return token_ids[rows.unsqueeze(1), columns].long(), real
