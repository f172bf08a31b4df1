"""Chain models, which say a script, and what the engine's rooms make of their files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from infer.config.engine import EngineConfig
from infer.engine.input_processor import InputProcessor
from infer.modeling.files import ModelFiles, find_model
from infer.plugins.discovery import load_plugins
from infer.plugins.registry import Registry
from infer.text.tokenizer import Tokenizer
from tests.chain_model import chain_model

VOCABULARY = 512
LENGTH = 64

MakeInputs = Callable[..., InputProcessor]


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a chain model by name; each is made once."""
    folder = tmp_path_factory.mktemp("chains")

    def get(name: str) -> Path:
        path = folder / name
        return path if path.is_dir() else chain_model(name, folder)

    return get


@pytest.fixture
def small(chain: Callable[[str], Path]) -> Callable[..., EngineConfig]:
    """Return the configuration of a small float32 engine for a chain model."""

    def config(name: str, **fields: object) -> EngineConfig:
        values = {"dtype": "float32", "kv_cache_memory_bytes": 2**24, "cpu_threads": 1}
        return EngineConfig(model=str(chain(name)), **(values | fields))  # type: ignore[arg-type]

    return config


@pytest.fixture
def registry(small: Callable[..., EngineConfig]) -> Registry:
    return load_plugins(small("alphabet").plugins)


@pytest.fixture
def alphabet_files(small: Callable[..., EngineConfig], registry: Registry) -> ModelFiles:
    return find_model(small("alphabet"), registry, lambda line: None)


@pytest.fixture
def make_inputs(
    small: Callable[..., EngineConfig], registry: Registry, alphabet_files: ModelFiles
) -> MakeInputs:
    """Make an InputProcessor of the alphabet model; keyword arguments are fields of the config."""

    def make(**fields: object) -> InputProcessor:
        return InputProcessor(
            Tokenizer.load(alphabet_files.tokenizer_dir),
            alphabet_files,
            registry,
            small("alphabet", **fields),
            vocab_size=VOCABULARY,
            max_model_len=LENGTH,
        )

    return make


@pytest.fixture
def inputs(make_inputs: MakeInputs) -> InputProcessor:
    return make_inputs()
