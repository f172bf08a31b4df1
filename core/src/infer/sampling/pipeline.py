"""What happens to logits before a token is drawn: penalties, biases and masks.

A stage serves the rows that asked for it and no others. What was generated is read from the token
pool, where sampled ids arrive on the device: nothing is counted as tokens come, and nothing has to
be undone when a request is preempted or a token turns out not to count.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from infer.sampling.parameters import index_tensor
from infer_plugin_api.execution import Admission


@dataclass(frozen=True)
class StageRows:
    """The rows of one step that take part in a stage, all lists of one length.

    slots: their places in the step's logits. positions: index of the token to be drawn.
    prompt_lengths: tokens before the first generated one.
    """

    slots: list[int]
    rows: list[int]
    positions: list[int]
    prompt_lengths: list[int]


class Stage(ABC):
    """One change of the logits. Rows of the batch are changed independently of each other."""

    def __init__(self, max_rows: int, vocab_size: int, token_ids: torch.Tensor) -> None:
        self.vocab_size = vocab_size
        self.token_ids = token_ids
        self.device = token_ids.device

    @abstractmethod
    def admit(self, admission: Admission) -> bool:
        """Take the row's parameters; return whether the row takes part."""

    def release(self, row: int) -> None:  # noqa: B027 (most stages keep nothing to drop)
        """Forget a row that takes part."""

    @abstractmethod
    def apply(self, logits: torch.Tensor, batch: StageRows) -> None:
        """Change float32 logits [S, vocab] in place."""

    def _device(self, numbers: list[int]) -> torch.Tensor:
        return index_tensor(numbers, self.device)

    def _valid(self, ids: tuple[int, ...]) -> list[int]:
        """Return the ids that have a logit; others can't be generated anyway."""
        return [token for token in dict.fromkeys(ids) if 0 <= token < self.vocab_size]
