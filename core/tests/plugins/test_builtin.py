"""Core's own providers."""

from __future__ import annotations

import subprocess
import sys

import pytest

from infer.config.plugins import PluginActivation
from infer.plugins.discovery import load_plugins
from infer.plugins.registry import Registered
from infer_plugin_api import DESCRIPTORS, OpDescriptor

REGISTRY = load_plugins(PluginActivation(only=()))
PROVIDERS = [provider for kind in DESCRIPTORS for provider in REGISTRY.providers(kind.slot)]


def label(provider: Registered) -> str:
    op = getattr(provider.descriptor, "op", "")
    return "-".join(filter(None, (provider.descriptor.slot, op, provider.name)))


@pytest.mark.parametrize("provider", PROVIDERS, ids=label)
def test_every_implementation_can_be_imported(provider: Registered) -> None:
    assert REGISTRY.missing(provider) is None
    assert isinstance(REGISTRY.load(provider), type)


@pytest.mark.parametrize("provider", PROVIDERS, ids=label)
def test_every_provider_has_a_summary_that_fits_a_line(provider: Registered) -> None:
    assert 0 < len(provider.descriptor.summary) < 80


def test_core_alone_has_all_that_serving_needs() -> None:
    slots = {provider.descriptor.slot for provider in PROVIDERS}
    assert slots == {kind.slot for kind in DESCRIPTORS} - {"logits_processor"}
    ops = {p.descriptor.op for p in PROVIDERS if isinstance(p.descriptor, OpDescriptor)}
    assert ops == {"rms_norm", "add_rms_norm", "silu_mul", "rope_store_kv", "greedy_sample"}


def test_loading_core_and_every_installed_declaration_imports_no_torch() -> None:
    code = (
        "import sys\n"
        "from infer.config.plugins import PluginActivation\n"
        "from infer.plugins.discovery import load_plugins\n"
        "load_plugins(PluginActivation(strict=True))\n"
        "print(*{'torch', 'numpy', 'transformers'} & set(sys.modules))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == []
