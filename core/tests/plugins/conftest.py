"""A site folder on this process's path, and the registry that results."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infer.config.plugins import PluginActivation
from infer.plugins.discovery import load_plugins
from infer.plugins.registry import Registry
from tests.plugin_site import Site

Load = Callable[..., Registry]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path / "site")
    monkeypatch.syspath_prepend(made.folder)
    yield made
    made.forget()


@pytest.fixture
def load() -> Load:
    """Load the plugins; keyword arguments are fields of PluginActivation."""

    def do(**fields: Any) -> Registry:
        return load_plugins(PluginActivation(**fields))

    return do


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """Return the warnings logged so far."""
    return lambda: [
        record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING
    ]
