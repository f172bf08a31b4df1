"""Servers that many tests ask, one per model and set of flags."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.chain_model import chain_model
from tests.models import tiny_model
from tests.server.running import Served, served

Serve = Callable[..., Served]


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return the folder of a chain model, or of ``tiny``, a random Llama; made once."""
    folder = tmp_path_factory.mktemp("models")

    def make(name: str) -> Path:
        path = folder / name
        if path.is_dir():
            return path
        return tiny_model(path) if name == "tiny" else chain_model(name, folder)

    return make


@pytest.fixture(scope="session")
def shared_server(models: Callable[[str], Path]) -> Iterator[Serve]:
    """Return a running server for a model and flags; the same for the same."""
    running: dict[tuple[str, ...], Served] = {}
    with ExitStack() as stack:

        def get(name: str, *flags: str) -> Served:
            key = (name, *flags)
            if key not in running:
                running[key] = stack.enter_context(served(models(name), *flags))
            return running[key]

        yield get


@pytest.fixture
def alphabet(shared_server: Serve) -> Served:
    """Says ABC DEF G HI J KLM NOP, a chunk a token, then ends."""
    return shared_server("alphabet")


@pytest.fixture
def coin(shared_server: Serve) -> Served:
    """Says H with probability 0.75 and T with 0.25, for ever."""
    return shared_server("coin")


@pytest.fixture
def emoji(shared_server: Serve) -> Served:
    """Says "ok 🙂 café end" with characters cut over tokens."""
    return shared_server("emoji")


@pytest.fixture
def eosinside(shared_server: Serve) -> Served:
    """Says "yes no done", then its second end-of-sequence id."""
    return shared_server("eosinside")


@pytest.fixture
def loop(shared_server: Serve) -> Served:
    """Says "one two three four " for ever."""
    return shared_server("loop")


@pytest.fixture(scope="session")
def smollm2(smollm2_path: Path) -> Iterator[Served]:
    """SmolLM2-135M-Instruct in float32."""
    with served(smollm2_path, "--dtype", "float32") as running:
        yield running


@pytest.fixture(scope="session")
def smollm2_bfloat16(smollm2_path: Path) -> Iterator[Served]:
    """The same in bfloat16."""
    with served(smollm2_path, "--dtype", "bfloat16") as running:
        yield running
