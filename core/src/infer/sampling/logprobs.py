"""Log-probabilities of sampled tokens, from the model's own distribution."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from infer.sampling.parameters import index_tensor
from infer.sampling.ranking import leading
from infer_plugin_api.execution import TokenLogprobs


@dataclass(frozen=True)
class LogprobTensors:
    """Log-probabilities of the A rows of a step that asked for them, on the device.

    slots: their places among the step's num_slots sampled rows; counts: alternatives each wants.
    chosen: float32 [A]; ranks: int64 [A], 1 for the most likely token; top_ids: int64 [A, K] and
    top_logprobs: float32 [A, K], K the largest count.
    """

    num_slots: int
    slots: list[int]
    counts: list[int]
    chosen: torch.Tensor
    ranks: torch.Tensor
    top_ids: torch.Tensor
    top_logprobs: torch.Tensor

    def entries(self) -> list[TokenLogprobs | None]:
        """Wait for the device; return one entry per sampled row, None where none was asked for."""
        found: list[TokenLogprobs | None] = [None] * self.num_slots
        columns = (self.chosen, self.ranks, self.top_ids, self.top_logprobs)
        lists = [column.tolist() for column in columns]
        for slot, count, logprob, rank, ids, logprobs in zip(
            self.slots, self.counts, *lists, strict=True
        ):
            found[slot] = TokenLogprobs(logprob, rank, ids[:count], logprobs[:count])
        return found


class RawLogprobs:
    """The distributions of the rows that ask, taken before anything changes the logits."""

    def __init__(self, logits: torch.Tensor, slots: list[int], counts: list[int]) -> None:
        self._num_slots = logits.shape[0]
        self._slots = slots
        self._counts = counts
        self._index = index_tensor(slots, logits.device)
        self._logprobs = torch.log_softmax(logits.index_select(0, self._index), dim=-1)

    def of(self, token_ids: torch.Tensor) -> LogprobTensors:
        """Return the log-probabilities of what was sampled: int64 [S], all rows of the step."""
        logprobs = self._logprobs
        tokens = token_ids.index_select(0, self._index).unsqueeze(1)
        chosen = logprobs.gather(1, tokens)
        top_logprobs, top_ids = leading(logprobs, min(max(self._counts), logprobs.shape[-1]))
        return LogprobTensors(
            num_slots=self._num_slots,
            slots=self._slots,
            counts=self._counts,
            chosen=chosen.squeeze(1),
            ranks=(logprobs > chosen).sum(dim=-1) + 1,
            top_ids=top_ids,
            top_logprobs=top_logprobs,
        )
