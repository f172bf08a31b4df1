"""Plain floating-point weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infer_plugin_api.quant import UNQUANTIZED, LinearWeight, Quantizer

if TYPE_CHECKING:
    import torch
    from infer_plugin_api.weights import WeightReader


class Unquantized(Quantizer):
    """Reads each part of a joined matrix straight into its rows."""

    def configure(self, config: Mapping[str, Any]) -> None:
        if config:
            raise ValueError(f"quantization_config {dict(config)} does not describe plain weights")

    def load_linear(
        self, reader: WeightReader, names: tuple[str, ...], dtype: torch.dtype
    ) -> LinearWeight:
        parts = [reader.read(f"{name}.weight") for name in names]
        if len(parts) == 1:
            return LinearWeight(UNQUANTIZED, parts[0].to(dtype), {})
        rows = sum(part.shape[0] for part in parts)
        matrix = parts[0].new_empty((rows, *parts[0].shape[1:]), dtype=dtype)
        begin = 0
        for part in parts:
            matrix[begin : begin + part.shape[0]] = part
            begin += part.shape[0]
        return LinearWeight(UNQUANTIZED, matrix, {})
