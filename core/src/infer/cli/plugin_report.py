"""Plugins and providers as tables for people and as data for programs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable
from typing import Any

from infer.cli.console import table
from infer.plugins.registry import ACTIVE, PluginRecord, Registered, Registry
from infer_plugin_api import API_VERSION, DESCRIPTORS, Provider

SCHEMA = 1
SLOTS = tuple(descriptor.slot for descriptor in DESCRIPTORS)
_COMMON = frozenset(field.name for field in dataclasses.fields(Provider))


def plugin_table(records: Iterable[PluginRecord]) -> str:
    """Return one row per plugin; what is not active says why."""
    rows = [("PLUGIN", "VERSION", "STATE", "SOURCE", "PROVIDES")]
    rows += [
        (
            record.name,
            record.version,
            record.state,
            record.distribution,
            _provides(record) if record.state == ACTIVE else record.reason,
        )
        for record in records
    ]
    return table(rows)


def provider_table(registry: Registry, slots: Iterable[str]) -> str:
    """Return one row per provider of the active plugins, by slot, as selection would try them."""
    rows = [("SLOT", "NAME", "PLUGIN", "PRIORITY", "SUMMARY")]
    rows += [
        (
            _slot(provider),
            provider.name,
            provider.plugin,
            str(provider.descriptor.priority),
            registry.missing(provider) or provider.descriptor.summary,
        )
        for slot in slots
        for provider in sorted(registry.providers(slot), key=_slot)
    ]
    return table(rows)


def record_text(registry: Registry, record: PluginRecord) -> str:
    """Describe one plugin with all its providers, or with what is wrong with it."""
    rows = [
        ("plugin", record.name),
        ("state", record.state + (f": {record.reason}" if record.reason else "")),
        ("distribution", f"{record.distribution} {record.version}"),
        ("entry point", record.reference or "an object"),
        ("API version", record.api_version or "not known"),
        ("import", f"{record.import_seconds * 1e3:.1f} ms"),
    ]
    if record.events:
        rows.append(("listens to", ", ".join(record.events)))
    parts = [table(rows)]
    parts += [
        provider_text(registry, Registered(record.name, provider)) for provider in record.providers
    ]
    return "\n\n".join(parts) + (f"\n\n{record.traceback.rstrip()}" if record.traceback else "")


def provider_text(registry: Registry, provider: Registered) -> str:
    """Describe one provider: its descriptor's fields, and whether it can be used."""
    rows = [
        (_slot(provider), f"{provider.qualified}: {provider.descriptor.summary}"),
        ("  state", registry.missing(provider) or "ready"),
        ("  implementation", provider.descriptor.implementation),
        ("  priority", str(provider.descriptor.priority)),
    ]
    if provider.descriptor.requires_modules:
        rows.append(("  requires modules", ", ".join(provider.descriptor.requires_modules)))
    rows += [
        (f"  {name.replace('_', ' ')}", _value(value))
        for name, value in _own_fields(provider.descriptor).items()
        if name != "op"
    ]
    return table(rows)


def overview(registry: Registry, slots: tuple[str, ...]) -> dict[str, Any]:
    """Return everything as data; ``schema`` changes when a field changes its meaning."""
    plugins = [record_data(registry, record, slots) for record in registry.records]
    return {"schema": SCHEMA, "api_version": API_VERSION, "plugins": plugins}


def record_data(registry: Registry, record: PluginRecord, slots: tuple[str, ...]) -> dict[str, Any]:
    """Return one plugin as data, with its providers in *slots*."""
    return {
        "name": record.name,
        "version": record.version,
        "state": record.state,
        "reason": record.reason,
        "source": record.distribution,
        "entry_point": record.reference,
        "api_version": record.api_version,
        "import_seconds": round(record.import_seconds, 6),
        "events": list(record.events),
        "traceback": record.traceback,
        "providers": [
            provider_data(registry, Registered(record.name, provider))
            for provider in record.providers
            if provider.slot in slots
        ],
    }


def provider_data(registry: Registry, provider: Registered) -> dict[str, Any]:
    """Return one provider as data; ``missing`` is null when it can be used."""
    descriptor = provider.descriptor
    return {
        "slot": descriptor.slot,
        "name": descriptor.name,
        "qualified": provider.qualified,
        "summary": descriptor.summary,
        "priority": descriptor.priority,
        "implementation": descriptor.implementation,
        "missing": registry.missing(provider),
        **_own_fields(descriptor),
    }


def _provides(record: PluginRecord) -> str:
    """Return a count by slot, e.g. ``attention, op (5)``."""
    counts = Counter(provider.slot.replace("_", " ") for provider in record.providers)
    parts = [f"{slot} ({count})" if count > 1 else slot for slot, count in counts.items()]
    if record.events:
        parts.append(f"events ({len(record.events)})" if len(record.events) > 1 else "events")
    return ", ".join(parts) or "nothing"


def _own_fields(descriptor: Provider) -> dict[str, Any]:
    """Return what only this kind of descriptor has."""
    return {
        field.name: getattr(descriptor, field.name)
        for field in dataclasses.fields(descriptor)
        if field.name not in _COMMON
    }


def _slot(provider: Registered) -> str:
    op = getattr(provider.descriptor, "op", "")
    return f"op {op}" if op else provider.descriptor.slot


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, tuple):
        return ", ".join(map(str, value)) or "any"
    return str(value)
