"""The kernels, compiled once for the session into a cache folder of these tests only."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infer_numba.library import library
from infer_numba.prepare import prepare
from infer_plugin_api.prepare import PrepareContext


@pytest.fixture(scope="session")
def compiled_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with this machine's kernels."""
    folder = tmp_path_factory.mktemp("infer-cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("INFER_CACHE_DIR", str(folder))
        prepare(PrepareContext(announce=lambda line: None))
    return folder


@pytest.fixture(autouse=True)
def _cache(compiled_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFER_CACHE_DIR", str(compiled_cache))


@pytest.fixture
def fresh_library() -> Iterator[None]:
    """Let the test load the kernels anew, and whoever comes after it too."""
    library.cache_clear()
    yield
    library.cache_clear()
