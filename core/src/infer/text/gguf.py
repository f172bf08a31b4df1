"""The head of a GGUF file: metadata and the table of tensors, without the data.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little endian).
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infer_plugin_api.errors import ModelError

_MAGIC = b"GGUF"
_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING, _ARRAY = 8, 9
_DEFAULT_ALIGNMENT = 32
_MAX_COUNT = 1 << 28


@dataclass(frozen=True)
class GGUFTensor:
    """A tensor's place in the file. shape is in row-major order, as torch counts it.

    kind: number of its ggml type. offset: bytes from the beginning of the file.
    """

    name: str
    shape: tuple[int, ...]
    kind: int
    offset: int


@dataclass(frozen=True)
class GGUFHead:
    """metadata: values by key, arrays as lists. tensors: by the file's own names."""

    metadata: dict[str, Any]
    tensors: dict[str, GGUFTensor]


def read_head(path: Path) -> GGUFHead:
    """Read metadata and tensor table. Raises ModelError naming the file and the fault."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _parse(data)
    except (struct.error, UnicodeDecodeError, ValueError, KeyError, IndexError) as error:
        raise ModelError(f"{path} is no readable GGUF file: {error}") from error
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error.strerror}") from error


def _parse(data: mmap.mmap) -> GGUFHead:
    reader = _Reader(data)
    if reader.take(4) != _MAGIC:
        raise ValueError("it does not begin with 'GGUF'")
    version = reader.scalar("I")
    if version not in (2, 3):
        raise ValueError(f"version {version}, known are 2 and 3")
    tensor_count, value_count = reader.count(), reader.count()
    metadata = {}
    for _ in range(value_count):
        key = reader.text()
        metadata[key] = reader.value(reader.scalar("I"))
    infos = [_tensor_info(reader) for _ in range(tensor_count)]
    alignment = int(metadata.get("general.alignment", _DEFAULT_ALIGNMENT))
    base = -(-reader.position // alignment) * alignment
    tensors = {
        name: GGUFTensor(name, shape, kind, base + offset) for name, shape, kind, offset in infos
    }
    return GGUFHead(metadata, tensors)


def _tensor_info(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    name = reader.text()
    dimensions = [reader.scalar("Q") for _ in range(reader.scalar("I"))]
    return name, tuple(reversed(dimensions)), reader.scalar("I"), reader.scalar("Q")


class _Reader:
    """A cursor over the mapped file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data = data
        self.position = 0

    def take(self, count: int) -> bytes:
        end = self.position + count
        if end > len(self.data):
            raise ValueError("it ends before its head does")
        taken = self.data[self.position : end]
        self.position = end
        return taken

    def scalar(self, code: str) -> Any:
        size = struct.calcsize("<" + code)
        return struct.unpack("<" + code, self.take(size))[0]

    def count(self) -> int:
        number = int(self.scalar("Q"))
        if number > _MAX_COUNT:
            raise ValueError(f"a count of {number} can't be right")
        return number

    def text(self) -> str:
        return self.take(self.count()).decode("utf-8", errors="surrogateescape")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array()
        return self.scalar(_SCALARS[kind])

    def array(self) -> list[Any]:
        kind, count = self.scalar("I"), self.count()
        if code := _SCALARS.get(kind):
            size = struct.calcsize("<" + code)
            return list(struct.unpack(f"<{count}{code}", self.take(count * size)))
        read: Callable[[], Any] = self.text if kind == _STRING else self.array
        return [read() for _ in range(count)]
