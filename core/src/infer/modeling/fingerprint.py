"""A fingerprint of model files that changes when they do, without reading the weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

from infer_plugin_api.errors import ModelError

_READ_WHOLE = frozenset({".json", ".jinja"})
_WEIGHTS = frozenset({".safetensors", ".gguf", ".model"})
_HEAD_BYTES = 1 << 16


def fingerprint(path: Path) -> str:
    """Return SHA-256 over names, sizes and content of small files, and of the heads of large ones.

    A large file also counts with its time of change: equal heads may hide other weights. Files
    that are no part of a model are not looked at. Raises ModelError when one can't be read.
    """
    digest = hashlib.sha256()
    try:
        for file in _files(path):
            status = file.stat()
            digest.update(f"{file.name}\0{status.st_size}\0".encode())
            whole = file.suffix in _READ_WHOLE
            with file.open("rb") as data:
                digest.update(data.read() if whole else data.read(_HEAD_BYTES))
            if not whole:
                digest.update(str(status.st_mtime_ns).encode())
    except OSError as error:
        raise ModelError(f"{error.filename} can't be read: {error.strerror}") from error
    return digest.hexdigest()


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    wanted = _READ_WHOLE | _WEIGHTS
    return sorted(item for item in path.iterdir() if item.suffix in wanted and item.is_file())
