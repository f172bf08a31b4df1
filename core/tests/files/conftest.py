"""The registry, a model folder, and GGUF files made to order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from infer.config.plugins import PluginActivation
from infer.plugins.discovery import load_plugins
from infer.plugins.registry import Registry
from infer_plugin_api.sources import SourceContext
from tests.chain_model import chain_model

from .gguf_files import GGUFWriter, write_gguf


@pytest.fixture(scope="session")
def registry() -> Registry:
    """Core's own providers, and whatever plugins are installed."""
    return load_plugins(PluginActivation())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A chain model with two end tokens (LOAD-07)."""
    return chain_model("eosinside", tmp_path)


@pytest.fixture
def gguf_file(tmp_path: Path) -> GGUFWriter:
    """Call it like ``gguf_files.write_gguf``, without the path."""

    def write(*arguments: Any, name: str = "model.gguf", **options: Any) -> Path:
        return write_gguf(tmp_path / name, *arguments, **options)

    return write


@pytest.fixture
def source_context(tmp_path: Path) -> Callable[..., SourceContext]:
    """Make the context that model sources get."""

    def make(*, offline: bool = True, revision: str | None = None) -> SourceContext:
        return SourceContext(
            cache_dir=tmp_path / "cache",
            offline=offline,
            revision=revision,
            announce=lambda line: None,
        )

    return make
