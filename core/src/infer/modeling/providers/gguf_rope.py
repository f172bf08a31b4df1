"""Llama 3.1's rope scaling, which GGUF files keep as a table instead of its parameters."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from infer.modeling.providers.gguf_names import ROPE_FACTORS
from infer.text.gguf import GGUFTensor
from infer_plugin_api.errors import ModelError

_LOW, _HIGH = 1.0, 4.0
_ORIGINAL_LENGTHS = (8192, 4096, 16384, 32768)
_F32 = 0


def llama3_scaling(path: Path, tensor: GGUFTensor, theta: float, head_size: int) -> dict[str, Any]:
    """Return the ``rope_scaling`` whose factors are those of the table.

    The table divides the frequencies; the greatest value is the factor itself. Raises ModelError
    when no known set of parameters gives the same values.
    """
    if tensor.kind != _F32 or tensor.shape != (head_size // 2,):
        raise ModelError(f"{path}: {ROPE_FACTORS} is no table of {head_size // 2} float32 values")
    stored = np.fromfile(path, np.float32, count=head_size // 2, offset=tensor.offset)
    factor = float(stored.max(initial=1.0))
    for original in _ORIGINAL_LENGTHS:
        if stored.shape == (head_size // 2,) and np.allclose(
            stored, _factors(theta, head_size, factor, original), rtol=1e-4
        ):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": _LOW,
                "high_freq_factor": _HIGH,
                "original_max_position_embeddings": original,
            }
    raise ModelError(
        f"{path}: the values of {ROPE_FACTORS} are not those of Llama 3's rope scaling; "
        "use the model's safetensors checkpoint"
    )


def _factors(theta: float, size: int, factor: float, original: int) -> list[float]:
    """What Llama 3 divides each frequency by: 1 for short waves, *factor* for long ones."""
    found = []
    for index in range(0, size, 2):
        wave = 2 * math.pi * theta ** (index / size)
        share = (original / wave - _LOW) / (_HIGH - _LOW)
        share = min(max(share, 0.0), 1.0)
        found.append(1 / ((1 - share) / factor + share))
    return found
