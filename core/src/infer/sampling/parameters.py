"""Truncation and randomness parameters of every row, ready to be gathered into a batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from infer.sampling.uniform import signed_seed
from infer_plugin_api.execution import Admission
from infer_plugin_api.sampling import SamplingBatch


@dataclass(frozen=True)
class _Flags:
    """What a row needs of the sampler, known on the host."""

    greedy: bool
    top_k: bool
    top_p: bool
    min_p: bool


_UNUSED = _Flags(greedy=True, top_k=False, top_p=False, min_p=False)


class RowParameters:
    """Tables on the device: floats [3, rows] and integers [3, rows], one column per row.

    Consecutive steps mostly sample the same rows, so the last gathered batch is kept and only its
    positions are replaced.
    """

    def __init__(self, max_rows: int, vocab_size: int, device: torch.device) -> None:
        self.vocab_size = vocab_size
        self.device = device
        self._floats = torch.zeros(3, max_rows, dtype=torch.float32, device=device)
        self._integers = torch.zeros(3, max_rows, dtype=torch.int64, device=device)
        self._flags = [_UNUSED] * max_rows
        self._last_rows: list[int] | None = None
        self._last: tuple[torch.Tensor, ...] = ()
        self._last_flags: dict[str, bool] = {}

    def admit(self, admission: Admission) -> None:
        """Write one row's parameters. A greedy row's truncation is off: argmax needs none."""
        params, row = admission.params, admission.row
        greedy = params.greedy
        top_k = self.vocab_size
        if not greedy and 0 < params.top_k < self.vocab_size:
            top_k = params.top_k
        temperature, top_p, min_p = (
            (1.0, 1.0, 0.0) if greedy else (params.temperature, params.top_p, params.min_p)
        )
        floats = torch.tensor([temperature, top_p, min_p], dtype=torch.float32)
        integers = torch.tensor([top_k, signed_seed(admission.seed), int(greedy)])
        self._floats[:, row] = floats.to(self.device, non_blocking=True)
        self._integers[:, row] = integers.to(self.device, non_blocking=True)
        self._flags[row] = _Flags(
            greedy=greedy,
            top_k=top_k < self.vocab_size,
            top_p=float(floats[1]) < 1.0,
            min_p=float(floats[2]) > 0.0,
        )
        self._last_rows = None

    def all_greedy(self, rows: list[int]) -> bool:
        flags = self._flags
        return all(flags[row].greedy for row in rows)

    def batch(self, rows: list[int], positions: list[int]) -> SamplingBatch:
        """Gather the parameters of *rows*; positions are those of the tokens to be drawn."""
        if rows != self._last_rows:
            self._gather(rows)
        temperature, top_p, min_p, top_k, seeds, greedy = self._last
        return SamplingBatch(
            temperature=temperature,
            top_p=top_p,
            min_p=min_p,
            top_k=top_k,
            seeds=seeds,
            positions=index_tensor(positions, self.device),
            greedy=greedy,
            **self._last_flags,
        )

    def _gather(self, rows: list[int]) -> None:
        index = index_tensor(rows, self.device)
        top_k, seeds, greedy = self._integers.index_select(1, index).unbind()
        self._last = (*self._floats.index_select(1, index).unbind(), top_k, seeds, greedy.bool())
        self._last_rows = list(rows)
        flags = [self._flags[row] for row in rows]
        self._last_flags = {
            "all_greedy": all(flag.greedy for flag in flags),
            "any_greedy": any(flag.greedy for flag in flags),
            "any_top_k": any(flag.top_k for flag in flags),
            "any_top_p": any(flag.top_p for flag in flags),
            "any_min_p": any(flag.min_p for flag in flags),
        }


def index_tensor(numbers: list[int], device: torch.device) -> torch.Tensor:
    """Return *numbers* as int64 on *device*, without waiting for it."""
    return torch.tensor(numbers, dtype=torch.int64).to(device, non_blocking=True)
