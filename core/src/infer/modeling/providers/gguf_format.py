"""GGUF checkpoints: Hugging Face names and config, weights dequantized when read."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from infer.modeling.providers.gguf_blocks import DEQUANTIZE, Bytes
from infer.modeling.providers.gguf_config import config_of
from infer.modeling.providers.gguf_names import hugging_face_names
from infer.text.gguf import GGUFHead, GGUFTensor, read_head
from infer_plugin_api.errors import ModelError
from infer_plugin_api.weights import TensorInfo, WeightFormat, WeightReader

if TYPE_CHECKING:
    import torch

_PLAIN = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_QUERY, _KEY = ".self_attn.q_proj.", ".self_attn.k_proj."


class GGUFFormat(WeightFormat):
    """Low-bit blocks become float32; kernels that compute on them are a matter of other plugins."""

    def open(self, path: Path, config: Mapping[str, Any]) -> WeightReader:
        return GGUFReader(path, read_head(path))

    def config(self, path: Path) -> dict[str, Any] | None:
        return config_of(read_head(path), path)


class GGUFReader(WeightReader):
    """A memory-mapped file; ``read`` dequantizes one tensor."""

    def __init__(self, path: Path, head: GGUFHead) -> None:
        self._path = path
        self._tensors = hugging_face_names(head, path)
        self._data = np.memmap(path, dtype=np.uint8, mode="c")
        self._kinds = {name: self._kind(tensor) for name, tensor in self._tensors.items()}
        self._infos = {name: self._info(name, tensor) for name, tensor in self._tensors.items()}
        self._heads = _interleaved_heads(head)

    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._infos

    def read(self, name: str) -> torch.Tensor:
        shape, size = self._infos[name].shape, self._infos[name].nbytes
        offset = self._tensors[name].offset
        stored = self._data[offset : offset + size]
        for part, heads in self._heads.items():
            if part in name:
                stored = _half_split(stored.reshape(shape[0], -1), heads)
        return self._values(stored, name).view(shape)

    def _values(self, stored: Bytes, name: str) -> torch.Tensor:
        import gguf
        import torch

        kind = self._kinds[name]
        if kind in _PLAIN:
            return torch.from_numpy(stored.reshape(-1)).view(getattr(torch, _PLAIN[kind]))
        number = gguf.GGMLQuantizationType[kind]
        _, block_bytes = gguf.GGML_QUANT_SIZES[number]
        blocks = stored.reshape(-1, block_bytes)
        if kind in DEQUANTIZE:
            return torch.from_numpy(DEQUANTIZE[kind](blocks))
        try:
            return torch.from_numpy(gguf.quants.dequantize(blocks, number))
        except NotImplementedError as error:
            raise ModelError(
                f"{self._path}: {name} is stored as {kind}, which can't be dequantized"
            ) from error

    def _kind(self, tensor: GGUFTensor) -> str:
        import gguf

        try:
            return gguf.GGMLQuantizationType(tensor.kind).name
        except ValueError:
            raise ModelError(
                f"{self._path}: {tensor.name} has the unknown type {tensor.kind}"
            ) from None

    def _info(self, name: str, tensor: GGUFTensor) -> TensorInfo:
        import gguf

        number = gguf.GGMLQuantizationType[self._kinds[name]]
        weights, size = gguf.GGML_QUANT_SIZES[number]
        if not tensor.shape or tensor.shape[-1] % weights:
            raise ModelError(
                f"{self._path}: {tensor.name} of shape {list(tensor.shape)} is no whole number "
                f"of {number.name} blocks"
            )
        nbytes = math.prod(tensor.shape) // weights * size
        if tensor.offset + nbytes > len(self._data):
            raise ModelError(f"{self._path} is cut off: {tensor.name} ends beyond the file")
        return TensorInfo(tensor.shape, nbytes)


def _interleaved_heads(head: GGUFHead) -> dict[str, int]:
    """Return the heads of the projections whose rows llama.cpp reorders: those of Llama files."""
    if head.metadata["general.architecture"] != "llama":
        return {}
    heads = int(head.metadata["llama.attention.head_count"])
    kv_heads = int(head.metadata.get("llama.attention.head_count_kv", heads))
    return {_QUERY: heads, _KEY: kv_heads}


def _half_split(rows: Bytes, heads: int) -> Bytes:
    """Undo llama.cpp's order of rows, which rotates neighbours instead of halves of a head.

    rows: the stored bytes [rows, bytes of a row]; blocks never cross rows.
    """
    paired = rows.reshape(heads, rows.shape[0] // heads // 2, 2, rows.shape[1])
    return np.ascontiguousarray(paired.swapaxes(1, 2)).reshape(rows.shape)
