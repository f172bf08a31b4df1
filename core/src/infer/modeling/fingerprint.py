"""A fingerprint of model files that changes when they do, without reading the weights."""

from __future__ import annotations

import hashlib
from pathlib import Path

_READ_WHOLE = (".json", ".jinja")
_HEAD_BYTES = 1 << 16


def fingerprint(path: Path) -> str:
    """Return SHA-256 over names, sizes and content of small files, and of the heads of large ones.

    A large file also counts with its time of change: equal heads may hide other weights.
    """
    digest = hashlib.sha256()
    files = sorted(item for item in path.iterdir() if item.is_file()) if path.is_dir() else [path]
    for file in files:
        status = file.stat()
        digest.update(f"{file.name}\0{status.st_size}\0".encode())
        whole = file.suffix in _READ_WHOLE
        with file.open("rb") as data:
            digest.update(data.read() if whole else data.read(_HEAD_BYTES))
        if not whole:
            digest.update(str(status.st_mtime_ns).encode())
    return digest.hexdigest()
