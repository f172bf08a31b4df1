"""The plugin plan: what the launcher resolved and every other process must find again."""

from __future__ import annotations

import msgspec

from infer.config.errors import UserError
from infer.config.plugins import PluginActivation
from infer.plugins.registry import ACTIVE, Registry


class PlannedPlugin(msgspec.Struct, frozen=True):
    name: str
    distribution: str
    version: str
    api_version: str


class PluginPlan(msgspec.Struct, frozen=True):
    """activation: what a process needs to load the plugins; plugins: what it must get."""

    activation: PluginActivation
    plugins: tuple[PlannedPlugin, ...]


def plan_of(registry: Registry, activation: PluginActivation) -> PluginPlan:
    """Return the plan of the active plugins."""
    return PluginPlan(activation, _active(registry))


def portable(plan: PluginPlan) -> PluginPlan:
    """Return *plan* if it can go to another process. Raises UserError for a plugin object."""
    for item in plan.activation.extra:
        if not isinstance(item, str):
            raise UserError(
                f"the plugin object {item!r} can't go to another process; give its name or "
                '"module:attr", or use the engine in this process (LLM with the inline executor)'
            )
    return plan


def mismatch(plan: PluginPlan, registry: Registry) -> list[str]:
    """Say how this process's plugins differ from the plan; empty when they are the same."""
    wanted = {plugin.name: plugin for plugin in plan.plugins}
    found = {plugin.name: plugin for plugin in _active(registry)}
    differences = [f"{name} is missing" for name in wanted if name not in found]
    differences += [f"{name} is not in the plan" for name in found if name not in wanted]
    differences += [
        f"{name} is {found[name].distribution} {found[name].version} "
        f"(API {found[name].api_version}), the plan has {plugin.distribution} {plugin.version} "
        f"(API {plugin.api_version})"
        for name, plugin in wanted.items()
        if name in found and found[name] != plugin
    ]
    return differences


def _active(registry: Registry) -> tuple[PlannedPlugin, ...]:
    return tuple(
        PlannedPlugin(record.name, record.distribution, record.version, record.api_version)
        for record in registry.records
        if record.state == ACTIVE
    )
