"""The head of a GGUF file: metadata and the table of tensors, without the data.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md (versions 2 and 3, little endian).
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from infer_plugin_api.errors import ModelError

_MAGIC = b"GGUF"
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    7: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}
_U32, _U64 = _SCALARS[4], _SCALARS[10]
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
    except OSError as error:
        raise ModelError(f"{path} can't be read: {error.strerror}") from error
    except (struct.error, ValueError) as error:
        raise ModelError(f"{path} is no readable GGUF file: {error}") from error


def _parse(data: mmap.mmap) -> GGUFHead:
    reader = _Reader(data)
    if reader.take(4) != _MAGIC:
        raise ValueError("it does not begin with 'GGUF'")
    version = reader.scalar(_U32)
    if version not in (2, 3):
        raise ValueError(f"version {version}, known are 2 and 3")
    tensor_count, value_count = reader.count(), reader.count()
    metadata = {}
    for _ in range(value_count):
        key = reader.text()
        metadata[key] = reader.value(reader.scalar(_U32))
    infos = [_tensor_info(reader) for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1:
        raise ValueError(f"general.alignment {alignment!r} is no positive integer")
    base = -(-reader.position // alignment) * alignment
    tensors = {
        name: GGUFTensor(name, shape, kind, base + offset) for name, shape, kind, offset in infos
    }
    return GGUFHead(metadata, tensors)


def _tensor_info(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    name = reader.text()
    dimensions = [reader.scalar(_U64) for _ in range(reader.scalar(_U32))]
    return name, tuple(reversed(dimensions)), reader.scalar(_U32), reader.scalar(_U64)


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

    def scalar(self, kind: struct.Struct) -> Any:
        return kind.unpack(self.take(kind.size))[0]

    def count(self) -> int:
        number = int(self.scalar(_U64))
        if number > _MAX_COUNT:
            raise ValueError(f"a count of {number} can't be right")
        return number

    def text(self) -> str:
        return self.texts(1)[0]

    def texts(self, count: int) -> list[str]:
        """Read *count* strings; a vocabulary has hundreds of thousands, so this loop is tight."""
        data, position, found = self.data, self.position, []
        unpack, size = _U64.unpack_from, len(data)
        for _ in range(count):
            begin = position + 8
            position = begin + unpack(data, position)[0]
            if position > size:
                raise ValueError("it ends before its head does")
            found.append(data[begin:position].decode("utf-8", "surrogateescape"))
        self.position = position
        return found

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _ARRAY:
            return self.array()
        return self.scalar(_scalar(kind))

    def array(self) -> list[Any]:
        kind, count = self.scalar(_U32), self.count()
        if kind == _STRING:
            return self.texts(count)
        code = _scalar(kind)
        return [value for (value,) in code.iter_unpack(self.take(count * code.size))]


def _scalar(kind: int) -> struct.Struct:
    if kind not in _SCALARS:
        raise ValueError(f"it has a value of the unknown type {kind}")
    return _SCALARS[kind]
