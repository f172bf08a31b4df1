"""What was found: a record per plugin, and the providers of every slot."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from infer.config.errors import UserError
from infer.plugins.events import EventRelay
from infer_plugin_api.descriptors import ArchitectureDescriptor, OpDescriptor, Provider

ACTIVE = "active"


@dataclass(frozen=True, kw_only=True)
class PluginRecord:
    """One entry point and what became of it.

    state: "active", "failed", "incompatible", "disabled", "opt-in" or "conflict".
    reason: one line, empty when active. import_seconds: of its declaration module.
    """

    name: str
    distribution: str
    version: str
    state: str
    reason: str = ""
    traceback: str = ""
    api_version: str = ""
    providers: tuple[Provider, ...] = ()
    import_seconds: float = 0.0

    @property
    def origin(self) -> str:
        """The plugin with the distribution it came from, for messages."""
        return f"plugin {self.name!r} ({self.distribution} {self.version})"


@dataclass(frozen=True)
class Registered:
    """A provider and the plugin that declared it."""

    plugin: str
    descriptor: Provider

    @property
    def name(self) -> str:
        return self.descriptor.name

    @property
    def qualified(self) -> str:
        return f"{self.plugin}:{self.descriptor.name}"


@dataclass(frozen=True)
class Registry:
    """Every plugin's record, and the active ones' providers."""

    records: tuple[PluginRecord, ...]
    events: EventRelay = field(default_factory=EventRelay)

    def record(self, name: str) -> PluginRecord:
        """Return the record of a plugin. Raises UserError listing the known names."""
        for record in self.records:
            if record.name == name:
                return record
        known = ", ".join(record.name for record in self.records)
        raise UserError(f"no plugin named {name!r} is installed; installed: {known}")

    def providers(self, slot: str) -> tuple[Registered, ...]:
        """Return a slot's providers, the highest priority first, then in order of discovery."""
        found = [
            Registered(record.name, provider)
            for record in self.records
            if record.state == ACTIVE
            for provider in record.providers
            if provider.slot == slot
        ]
        return tuple(sorted(found, key=lambda item: -item.descriptor.priority))

    def find(self, slot: str, name: str) -> Registered:
        """Return the provider that a user calls *name* or ``plugin:name``.

        Raises UserError when there is none, or more than one of that name.
        """
        candidates = self.providers(slot)
        matches = [item for item in candidates if name in (item.name, item.qualified)]
        if len(matches) == 1:
            return matches[0]
        what = slot.replace("_", " ")
        if not matches:
            known = ", ".join(sorted({item.name for item in candidates})) or "none"
            raise UserError(f"unknown {what} {name!r}; installed: {known}")
        owners = " or ".join(sorted(item.qualified for item in matches))
        raise UserError(f"{what} {name!r} is declared by several plugins; write {owners}")

    def missing(self, registered: Registered) -> str | None:
        """Say which module a provider needs and this Python lacks, or None."""
        for module in registered.descriptor.requires_modules:
            if importlib.util.find_spec(module) is None:
                hint = registered.descriptor.install_hint
                return f"module {module!r} is not installed" + (f"; {hint}" if hint else "")
        return None

    def load(self, registered: Registered) -> Any:
        """Import a provider's implementation.

        Raises UserError naming the plugin, its distribution and the cause.
        """
        module_name, _, attribute = registered.descriptor.implementation.partition(":")
        try:
            found: Any = importlib.import_module(module_name)
            for part in attribute.split("."):
                found = getattr(found, part)
        except Exception as error:
            origin = self.record(registered.plugin).origin
            raise UserError(
                f"{origin}: {registered.descriptor.slot} {registered.name!r} can't be loaded from "
                f"{registered.descriptor.implementation}: {type(error).__name__}: {error}"
            ) from error
        return found

    def instance(self, slot: str, name: str) -> Any:
        """Load a provider by name and make it without arguments."""
        return self.load(self.find(slot, name))()

    def architecture(self, name: str) -> Registered | None:
        """Return the family that serves an architecture name of a config, or None."""
        for candidate in self.providers("architecture"):
            descriptor = candidate.descriptor
            if isinstance(descriptor, ArchitectureDescriptor) and name in descriptor.architectures:
                return candidate
        return None


def identity(provider: Provider) -> tuple[str, str, str]:
    """What must be unique: the name within the slot, within the op for fused ops."""
    return provider.slot, getattr(provider, "op", ""), provider.name


def shared_names(records: Iterable[PluginRecord]) -> list[tuple[str, list[str]]]:
    """Return what several active plugins declare under one name, with the owners."""
    owners: dict[tuple[str, str, str], list[str]] = {}
    for record in records:
        for provider in record.providers:
            owners.setdefault(identity(provider), []).append(record.name)
    return [
        (f"{slot} {name!r}" + (f" of op {op}" if op else ""), plugins)
        for (slot, op, name), plugins in owners.items()
        if len(plugins) > 1 and slot != OpDescriptor.slot
    ]
