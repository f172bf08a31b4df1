"""What providers prepare ahead of time, and what they are until then."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from infer.config.plugins import PluginActivation
from infer.plugins.discovery import load_plugins
from infer.plugins.prepare import prepare_providers
from infer.plugins.registry import Registry
from infer.plugins.selection import select
from infer_plugin_api import OpDescriptor, PluginInfo, hookimpl

WORK = "slow_to_prepare"


class Plugin:
    """Two ops that share one preparation."""

    infer_plugin = PluginInfo(api_version="1.0")

    def __init__(self, *, prepare: str = "prepare", requires: tuple[str, ...] = ()) -> None:
        self.prepare, self.requires = prepare, requires

    @hookimpl
    def infer_ops(self) -> list[OpDescriptor]:
        return [
            OpDescriptor(
                name="slow",
                op=op,
                implementation=f"{WORK}:Implementation",
                priority=1000,
                requires_modules=self.requires,
                prepare=f"{WORK}:{self.prepare}",
                is_prepared=f"{WORK}:is_prepared",
            )
            for op in ("rms_norm", "silu_mul")
        ]


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType(WORK)
    module.calls = []
    module.Implementation = object
    module.prepare = module.calls.append
    module.is_prepared = lambda: bool(module.calls)
    monkeypatch.setitem(sys.modules, WORK, module)
    return module


def registry_with(plugin: Plugin) -> Registry:
    return load_plugins(PluginActivation(only=(), extra=(plugin,)))


def chosen(registry: Registry, op: str = "rms_norm") -> str:
    def refusal(candidate):
        return None if candidate.descriptor.op == op else "another op"

    return select(registry, "op", None, refusal).chosen.qualified


def reason(registry: Registry) -> str | None:
    provider = next(item for item in registry.providers("op") if item.name == "slow")
    return registry.missing(provider)


def test_unprepared_provider_is_not_chosen_and_says_what_to_do(work: ModuleType) -> None:
    registry = registry_with(Plugin())
    assert chosen(registry) == "builtin:torch"
    assert reason(registry) == "not ready: run `infer tune`"
    assert not work.calls


def test_shared_preparation_runs_once_and_makes_its_providers_ready(work: ModuleType) -> None:
    registry = registry_with(Plugin())
    (done,) = prepare_providers(registry, lambda line: None)
    assert done.providers == ("op rms_norm", "op silu_mul")
    assert not done.error
    assert len(work.calls) == 1
    assert chosen(registry).endswith(":slow")


def test_force_reaches_the_plugin(work: ModuleType) -> None:
    prepare_providers(registry_with(Plugin()), lambda line: None, force=True)
    assert work.calls[0].force


def test_failing_preparation_is_reported_with_its_plugin(work: ModuleType) -> None:
    (done,) = prepare_providers(
        registry_with(Plugin(prepare="no_such_function")), lambda line: None
    )
    assert "no_such_function failed: AttributeError" in done.error
    assert "plugin" in done.error


def test_provider_that_lacks_a_module_is_passed_over(work: ModuleType) -> None:
    lines: list[str] = []
    plugin = Plugin(requires=("no_such_module",))
    assert prepare_providers(registry_with(plugin), lines.append) == []
    assert "module 'no_such_module' is not installed" in lines[0]


def test_broken_check_counts_as_not_ready(work: ModuleType) -> None:
    del work.is_prepared
    registry = registry_with(Plugin())
    assert chosen(registry) == "builtin:torch"
    assert "AttributeError" in str(reason(registry))
