"""The compiled kernels on disk: one file per processor, compiler version and kernel source."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from infer_numba.target import host_fingerprint

logger = logging.getLogger(__name__)

_MAGIC = b"infer-numba kernels 1\n"
_SOURCES = ("layout.py", "target.py", "kernels/*.py")


@dataclass(frozen=True)
class Kernels:
    """An object file and what its callers must know.

    names: the C functions in it. lanes: float32 elements of a vector.
    """

    code: bytes
    names: tuple[str, ...]
    lanes: int


def cache_folder() -> Path:
    """Return the folder for compiled kernels: below infer's cache folder. Not created."""
    base = os.environ.get("INFER_CACHE_DIR")
    if not base:
        base = os.path.join(os.environ.get("XDG_CACHE_HOME") or "~/.cache", "infer")
    return Path(base).expanduser() / "numba"


def entry_path() -> Path:
    """Return the file of this machine's kernels."""
    return cache_folder() / f"kernels-{_key()}.bin"


def has_entry() -> bool:
    """Say whether this machine's kernels are stored and whole."""
    return load_entry() is not None


def save_entry(kernels: Kernels) -> Path:
    """Write the file in one step, readable by its owner only. Raises OSError."""
    path = entry_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    description = {key: value for key, value in asdict(kernels).items() if key != "code"}
    body = json.dumps(description).encode() + b"\n" + kernels.code
    digest = hashlib.sha256(body).hexdigest().encode() + b"\n"
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".kernels-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_MAGIC + digest + body)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    return path


def load_entry() -> Kernels | None:
    """Return this machine's kernels, or None when there are none or the file can't be trusted."""
    path = entry_path()
    try:
        with path.open("rb") as file:
            foreign = _foreign(file.fileno())
            content = file.read()
    except FileNotFoundError:
        return None
    except OSError as error:
        logger.warning("compiled kernels %s can't be read: %s", path, error)
        return None
    if foreign:
        logger.warning("compiled kernels %s are ignored: %s", path, foreign)
        return None
    kernels = _parse(content)
    if kernels is None:
        logger.warning("compiled kernels %s are damaged and ignored; run `infer tune`", path)
    return kernels


def _parse(content: bytes) -> Kernels | None:
    magic, rest = content[: len(_MAGIC)], content[len(_MAGIC) :]
    digest, _, body = rest.partition(b"\n")
    if magic != _MAGIC or hashlib.sha256(body).hexdigest().encode() != digest:
        return None
    description, _, code = body.partition(b"\n")
    fields = json.loads(description)
    return Kernels(code=code, names=tuple(fields["names"]), lanes=fields["lanes"])


def _foreign(descriptor: int) -> str | None:
    """Say why the file may have been written by someone else, whose code we must not run."""
    if os.name != "posix":
        return None
    status = os.fstat(descriptor)
    if status.st_uid not in (os.getuid(), 0):
        return f"they belong to user {status.st_uid}"
    if status.st_mode & 0o022:
        return "others may write to them"
    return None


@lru_cache(maxsize=1)
def _source_digest() -> str:
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for pattern in _SOURCES:
        for path in sorted(folder.glob(pattern)):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


@lru_cache
def _version(distribution: str) -> str:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "missing"


def _key() -> str:
    parts = [_version("numba"), _version("llvmlite"), host_fingerprint(), _source_digest()]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
