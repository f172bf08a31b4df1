"""safetensors checkpoints: one file, or shards with an index."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infer_plugin_api.errors import ModelError
from infer_plugin_api.weights import TensorInfo, WeightFormat, WeightReader

if TYPE_CHECKING:
    import torch

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"
_BITS = {"F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "BF16": 16, "F16": 16}
_BITS |= {"I16": 16, "U16": 16, "F8_E4M3": 8, "F8_E5M2": 8, "I8": 8, "U8": 8, "BOOL": 8}


class SafetensorsFormat(WeightFormat):
    """The index alone says which tensor comes from which shard; other files are not looked at."""

    def open(self, path: Path, config: Mapping[str, Any]) -> WeightReader:
        index = path / _INDEX
        if index.is_file():
            return SafetensorsReader(_indexed(index))
        file = _single(path)
        return SafetensorsReader(dict.fromkeys(_open(file).keys(), file))


def _indexed(index: Path) -> dict[str, Path]:
    """Return the file of every tensor. Raises ModelError when the index or a file is wrong."""
    folder = index.parent
    try:
        weight_map = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        places = {str(name): folder / file for name, file in weight_map.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"{index} is no index of shards: {error!r}") from error
    for file in sorted(set(places.values())):
        if file.parent != folder or not file.is_file():
            raise ModelError(f"{index} names {file.name}, which is not in {folder}")
    return places


def _single(folder: Path) -> Path:
    if (folder / _SINGLE).is_file():
        return folder / _SINGLE
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelError(f"{folder} has no .safetensors file")
    if len(files) > 1:
        raise ModelError(
            f"{folder} has {len(files)} .safetensors files but no {_INDEX} that orders them"
        )
    return files[0]


def _open(file: Path) -> Any:
    from safetensors import SafetensorError, safe_open

    try:
        return safe_open(str(file), framework="pt", device="cpu")
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{file} is no readable safetensors file: {error}") from error


class SafetensorsReader(WeightReader):
    """Memory-mapped; a tensor that is read is a view of the file."""

    def __init__(self, places: Mapping[str, Path]) -> None:
        self._files = {file: _open(file) for file in dict.fromkeys(places.values())}
        self._places = places
        stored = {file: frozenset(opened.keys()) for file, opened in self._files.items()}
        for name, file in places.items():
            if name not in stored[file]:
                raise ModelError(f"the index says that {file} holds {name}; it does not")

    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._infos

    @cached_property
    def _infos(self) -> dict[str, TensorInfo]:
        return {name: self._info(name) for name in self._places}

    def _info(self, name: str) -> TensorInfo:
        part = self._files[self._places[name]].get_slice(name)
        shape = tuple(part.get_shape())
        return TensorInfo(shape, math.prod(shape) * _BITS.get(part.get_dtype(), 16) // 8)

    def read(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._files[self._places[name]].get_tensor(name)
        return tensor

    def close(self) -> None:
        self._files.clear()
