"""The implementation; imported when the first request names it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from infer_plugin_api.sampling import LogitsProcessor

if TYPE_CHECKING:
    import torch

SIZE = 3


class NoRepeat(LogitsProcessor):
    """Rules out every token that would repeat a run of three tokens of the answer."""

    def apply(self, output_token_ids: Sequence[int], logits: torch.Tensor) -> None:
        ids = list(output_token_ids)
        last = ids[len(ids) - SIZE + 1 :]
        runs = (ids[at : at + SIZE] for at in range(len(ids) - SIZE + 1))
        if banned := [run[-1] for run in runs if run[:-1] == last]:
            logits[banned] = -math.inf
