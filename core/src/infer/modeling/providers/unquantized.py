"""Plain floating-point weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from infer_plugin_api.errors import ModelError
from infer_plugin_api.quant import UNQUANTIZED, LinearWeight, Quantizer

if TYPE_CHECKING:
    import torch

    from infer_plugin_api.weights import WeightReader

_PLAIN = ("torch.float64", "torch.float32", "torch.float16", "torch.bfloat16")


class Unquantized(Quantizer):
    """Reads each part of a joined matrix straight into its rows."""

    def configure(self, config: Mapping[str, Any]) -> None:
        if config:
            method = config.get("quant_method")
            raise ValueError(f"quantization_config.quant_method {method!r} is not plain weights")

    def load_linear(
        self, reader: WeightReader, names: tuple[str, ...], dtype: torch.dtype
    ) -> LinearWeight:
        import torch

        stored = reader.tensors()
        shapes = [stored[f"{name}.weight"].shape for name in names]
        columns = {shape[1:] for shape in shapes}
        if len(columns) > 1 or len(shapes[0]) != 2:
            raise ModelError(
                f"{' + '.join(names)}: weights of shape {', '.join(map(str, shapes))} "
                "can't be joined to one matrix"
            )
        matrix = torch.empty((sum(shape[0] for shape in shapes), shapes[0][1]), dtype=dtype)
        begin = 0
        for name, shape in zip(names, shapes, strict=True):
            matrix[begin : begin + shape[0]] = _plain(reader, f"{name}.weight")
            begin += shape[0]
        return LinearWeight(UNQUANTIZED, matrix, {})


def _plain(reader: WeightReader, name: str) -> torch.Tensor:
    tensor = reader.read(name)
    if str(tensor.dtype) not in _PLAIN:
        raise ModelError(
            f"{name} is stored as {str(tensor.dtype).removeprefix('torch.')}, which is no plain "
            "floating-point weight; a quantization plugin may read it (--quantization)"
        )
    return tensor
