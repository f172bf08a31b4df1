"""GGUF checkpoints: Hugging Face names and config, weights dequantized when read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from infer_plugin_api.errors import ModelError
from infer_plugin_api.weights import TensorInfo, WeightFormat, WeightReader

from infer.modeling.providers.gguf_names import config_of, hugging_face_names
from infer.text.gguf import GGUFHead, GGUFTensor, read_head

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

_QUERY, _KEY = "self_attn.q_proj.", "self_attn.k_proj."


class GGUFFormat(WeightFormat):
    """Low-bit blocks become float32; kernels that compute on them are a matter of other plugins."""

    def open(self, path: Path, config: Mapping[str, Any]) -> WeightReader:
        return GGUFReader(path, read_head(path))

    def config(self, path: Path) -> dict[str, Any] | None:
        return config_of(read_head(path), path)


class GGUFReader(WeightReader):
    """A memory-mapped file; ``read`` dequantizes one tensor."""

    def __init__(self, path: Path, head: GGUFHead) -> None:
        import gguf

        self._path = path
        self._gguf = gguf
        self._tensors = hugging_face_names(head, path)
        self._data = np.memmap(path, dtype=np.uint8, mode="r")
        architecture = head.metadata["general.architecture"]
        self._heads: dict[str, int] = {}
        if architecture == "llama":
            heads = int(head.metadata["llama.attention.head_count"])
            kv_heads = int(head.metadata.get("llama.attention.head_count_kv", heads))
            self._heads = {_QUERY: heads, _KEY: kv_heads}

    def tensors(self) -> Mapping[str, TensorInfo]:
        return {
            name: TensorInfo(tensor.shape, self._nbytes(tensor))
            for name, tensor in self._tensors.items()
        }

    def read(self, name: str) -> torch.Tensor:
        import torch

        tensor = self._tensors[name]
        values = self._values(tensor)
        for part, heads in self._heads.items():
            if part in name:
                values = _half_split(values, heads)
        return torch.from_numpy(np.ascontiguousarray(values))

    def _values(self, tensor: GGUFTensor) -> NDArray[np.float32]:
        end = tensor.offset + self._nbytes(tensor)
        if end > len(self._data):
            raise ModelError(f"{self._path} is cut off: {tensor.name} ends beyond the file")
        kind = self._gguf.GGMLQuantizationType(tensor.kind)
        stored = self._gguf.quant_shape_to_byte_shape(tensor.shape, kind)
        raw = self._data[tensor.offset : end].reshape(stored)
        if kind == self._gguf.GGMLQuantizationType.F32:
            return raw.view(np.float32).reshape(tensor.shape)
        if kind == self._gguf.GGMLQuantizationType.F16:
            return raw.view(np.float16).reshape(tensor.shape).astype(np.float32)
        try:
            values: NDArray[np.float32] = self._gguf.quants.dequantize(raw, kind)
        except NotImplementedError as error:
            raise ModelError(
                f"{self._path}: {tensor.name} is stored as {kind.name}, which can't be dequantized"
            ) from error
        return values

    def _nbytes(self, tensor: GGUFTensor) -> int:
        try:
            kind = self._gguf.GGMLQuantizationType(tensor.kind)
        except ValueError:
            raise ModelError(
                f"{self._path}: {tensor.name} has the unknown type {tensor.kind}"
            ) from None
        block, size = self._gguf.GGML_QUANT_SIZES[kind]
        count = 1
        for length in tensor.shape:
            count *= length
        return int(count // block * size)


def _half_split(values: NDArray[np.float32], heads: int) -> NDArray[np.float32]:
    """Undo llama.cpp's order of rows, which rotates neighbours instead of halves of a head."""
    rows = values.shape[0]
    paired = values.reshape(heads, rows // heads // 2, 2, *values.shape[1:])
    return paired.swapaxes(1, 2).reshape(values.shape)
