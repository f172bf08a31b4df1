"""What was found: a record per plugin, and the providers of every slot."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from infer.config.errors import UserError
from infer.plugins.events import EventRelay
from infer_plugin_api.descriptors import ArchitectureDescriptor, Provider

ACTIVE = "active"
BROKEN = ("failed", "incompatible", "conflict")


@dataclass(frozen=True, kw_only=True)
class PluginRecord:
    """One entry point and what became of it.

    state: "active", "failed", "incompatible", "disabled", "opt-in" or "conflict".
    reason: one line, empty when active. import_seconds: of its declaration module.
    reference: what was imported, empty for an object. events: event hooks that it listens to.
    """

    name: str
    distribution: str
    version: str
    state: str
    reason: str = ""
    traceback: str = ""
    api_version: str = ""
    reference: str = ""
    providers: tuple[Provider, ...] = ()
    events: tuple[str, ...] = ()
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
        return tuple(_by_priority(found))

    def find(self, slot: str, name: str) -> Registered:
        """Return the provider that a user calls *name* or ``plugin:name``.

        Raises UserError when there is none, or more than one of that name.
        """
        candidates = self.providers(slot)
        matches = [item for item in candidates if name in (item.name, item.qualified)]
        if len(matches) == 1:
            return matches[0]
        what = slot.replace("_", " ")
        if matches:
            owners = " or ".join(sorted({item.qualified for item in matches}))
            raise UserError(f"{what} {name!r} is declared by several plugins; write {owners}")
        known = _shortest_names(candidates)
        near = difflib.get_close_matches(name, known, 1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        installed = ", ".join(known) or "none"
        raise UserError(f"unknown {what} {name!r}; installed: {installed}{hint}{self._left_out()}")

    def _left_out(self) -> str:
        """Name the plugins that failed: what is looked for may be in one of them."""
        names = [record.name for record in self.records if record.state in BROKEN]
        return f"; broken, see `infer plugins`: {', '.join(names)}" if names else ""

    def missing(self, registered: Registered) -> str | None:
        """Say what a provider needs and lacks here, a module or its preparation, or None."""
        return self.missing_module(registered) or self._unprepared(registered)

    def missing_module(self, registered: Registered) -> str | None:
        """Say which module a provider needs and this Python lacks, or None."""
        for module in registered.descriptor.requires_modules:
            if not _installed(module):
                hint = registered.descriptor.install_hint
                return f"module {module!r} is not installed" + (f"; {hint}" if hint else "")
        return None

    def _unprepared(self, registered: Registered) -> str | None:
        reference = registered.descriptor.is_prepared
        if not reference:
            return None
        try:
            ready = resolve(reference)()
        except Exception as error:
            return f"not ready: {reference} failed: {type(error).__name__}: {error}"
        return None if ready else "not ready: run `infer tune`"

    def load(self, registered: Registered) -> Any:
        """Import a provider's implementation.

        Raises UserError naming the plugin, its distribution and the cause.
        """
        try:
            return resolve(registered.descriptor.implementation)
        except Exception as error:
            origin = self.record(registered.plugin).origin
            raise UserError(
                f"{origin}: {registered.descriptor.slot} {registered.name!r} can't be loaded from "
                f"{registered.descriptor.implementation}: {type(error).__name__}: {error}"
            ) from error

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


def resolve(reference: str) -> Any:
    """Import ``"package.module:attribute"``."""
    module_name, _, attribute = reference.partition(":")
    found: Any = importlib.import_module(module_name)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found


def identity(provider: Provider) -> tuple[str, str, str]:
    """What must be unique: the name within the slot, within the op for fused ops."""
    return provider.slot, getattr(provider, "op", ""), provider.name


def collisions(records: Iterable[PluginRecord]) -> list[str]:
    """Say what several plugins declare under one name, with the owners."""
    names: dict[tuple[str, str, str], list[str]] = {}
    families: dict[str, list[Registered]] = {}
    for record in records:
        for provider in record.providers:
            names.setdefault(identity(provider), []).append(record.name)
            for served in getattr(provider, "architectures", ()):
                families.setdefault(served, []).append(Registered(record.name, provider))
    lines = [
        f"{slot.replace('_', ' ')} {name!r}{f' of op {op}' if op else ''} is declared by the "
        f"plugins {' and '.join(plugins)}; write plugin:name to choose one"
        for (slot, op, name), plugins in names.items()
        if len(plugins) > 1
    ]
    for served, owners in families.items():
        if len({owner.plugin for owner in owners}) > 1:
            ranked = [owner.qualified for owner in _by_priority(owners)]
            lines.append(
                f"the architecture {served} is served by {' and '.join(ranked)}; "
                f"{ranked[0]} is used, for its priority or because it was found first"
            )
    return lines


def _by_priority(found: Iterable[Registered]) -> list[Registered]:
    return sorted(found, key=lambda item: -item.descriptor.priority)


def _shortest_names(candidates: Iterable[Registered]) -> list[str]:
    """Return what a user may write for each candidate: its name, or qualified if that is shared."""
    owners: dict[str, set[str]] = {}
    for item in candidates:
        owners.setdefault(item.name, set()).add(item.qualified)
    return sorted(
        written
        for name, qualified in owners.items()
        for written in ([name] if len(qualified) == 1 else qualified)
    )


def _installed(module: str) -> bool:
    """Whether a module could be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        return False
