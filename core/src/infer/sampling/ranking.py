"""The largest entries of each row, in one exact order."""

from __future__ import annotations

import numpy as np
import torch

_INDEX_BITS = 32
_INDEX_MASK = (1 << _INDEX_BITS) - 1


def leading(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the *count* largest of each row of float32 [S, N]: values and int64 indices.

    Both are [S, count], largest first, equal values by ascending index. The result for a smaller
    count is a prefix of that for a larger one, and a row's result depends on that row only.

    Value and index are packed into one integer, so that no two keys are equal and any sorting
    algorithm gives the same order.
    """
    size = values.shape[-1]
    last = size - 1
    bits = values.contiguous().view(torch.int32)
    # Integers compare as the floats do once the magnitude bits of negative ones are flipped.
    ordered = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    keys = ordered.long().bitwise_left_shift_(_INDEX_BITS)
    keys.bitwise_or_(torch.arange(last, -1, -1, device=values.device))
    top = _largest(keys, count)
    indices = last - (top & _INDEX_MASK)
    return values.gather(-1, indices), indices


def _largest(keys: torch.Tensor, count: int) -> torch.Tensor:
    if count == 0:
        return keys[:, :0]
    if keys.device.type != "cpu":
        return keys.topk(count, dim=-1).values
    # numpy's vectorized partition and sort take a tenth of the time of torch's on the CPU.
    array = keys.numpy()
    if count < array.shape[-1]:
        array.partition(array.shape[-1] - count, axis=-1)
        array = array[:, -count:]
    descending = np.sort(array, axis=-1)[:, ::-1]
    return torch.from_numpy(descending.copy())
