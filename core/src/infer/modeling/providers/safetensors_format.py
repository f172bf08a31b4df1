"""safetensors checkpoints: one file, or shards with an index."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infer_plugin_api.errors import ModelError
from infer_plugin_api.weights import TensorInfo, WeightFormat, WeightReader

if TYPE_CHECKING:
    import torch

_SINGLE = "model.safetensors"
_INDEX = "model.safetensors.index.json"


class SafetensorsFormat(WeightFormat):
    """The index alone says which tensor comes from which shard; other files are not looked at."""

    def open(self, path: Path, config: Mapping[str, Any]) -> WeightReader:
        return SafetensorsReader(_places(path))


def _places(folder: Path) -> dict[str, Path]:
    """Return the file of every tensor. Raises ModelError when files are missing."""
    index = folder / _INDEX
    if index.is_file():
        try:
            weight_map = json.loads(index.read_text())["weight_map"]
        except (ValueError, KeyError) as error:
            raise ModelError(f"{index} is no index of shards: {error}") from error
        places = {name: folder / file for name, file in weight_map.items()}
        for file in sorted(set(places.values())):
            if file.parent != folder or not file.is_file():
                raise ModelError(f"{index} names {file.name}, which is not in {folder}")
        return places
    single = folder / _SINGLE
    files = [single] if single.is_file() else sorted(folder.glob("*.safetensors"))
    if not files:
        raise ModelError(f"{folder} has no .safetensors file")
    if len(files) > 1:
        raise ModelError(
            f"{folder} has {len(files)} .safetensors files but no {_INDEX} that orders them"
        )
    return {name: files[0] for name in _keys(files[0])}


def _keys(file: Path) -> list[str]:
    return list(_open(file).keys())


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
                raise ModelError(f"the index says that {file.name} holds {name}; it does not")

    def tensors(self) -> Mapping[str, TensorInfo]:
        return {name: self._info(name) for name in self._places}

    def _info(self, name: str) -> TensorInfo:
        part = self._files[self._places[name]].get_slice(name)
        shape = tuple(part.get_shape())
        count = 1
        for size in shape:
            count *= size
        return TensorInfo(shape, count * _BYTES.get(part.get_dtype(), 2))

    def read(self, name: str) -> torch.Tensor:
        tensor: torch.Tensor = self._files[self._places[name]].get_tensor(name)
        return tensor

    def close(self) -> None:
        self._files.clear()


_BYTES = {"F64": 8, "I64": 8, "F32": 4, "I32": 4, "F8_E4M3": 1, "F8_E5M2": 1, "I8": 1, "U8": 1}
