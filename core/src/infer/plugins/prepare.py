"""Running what providers prepare ahead of time: compiling, tuning."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from infer.plugins.registry import Registered, Registry, resolve
from infer_plugin_api.descriptors import DESCRIPTORS
from infer_plugin_api.prepare import PrepareContext


@dataclass(frozen=True)
class Preparation:
    """One ``prepare`` function and what came of it.

    providers: "slot name" of those that share it. error: empty when it succeeded.
    """

    plugin: str
    providers: tuple[str, ...]
    seconds: float
    error: str = ""


def prepare_providers(
    registry: Registry, announce: Callable[[str], None], *, force: bool = False
) -> list[Preparation]:
    """Call every active plugin's ``prepare`` functions, each once; a failure doesn't stop others.

    Providers that lack a module are passed over, with the reason announced.
    """
    context = PrepareContext(announce=announce, force=force)
    done = []
    for (plugin, reference), members in _by_function(registry, announce).items():
        start, error = time.perf_counter(), ""
        try:
            resolve(reference)(context)
        except Exception as failure:
            origin = registry.record(plugin).origin
            error = f"{origin}: {reference} failed: {type(failure).__name__}: {failure}"
        names = tuple(_label(member) for member in members)
        done.append(Preparation(plugin, names, time.perf_counter() - start, error))
    return done


def _by_function(
    registry: Registry, announce: Callable[[str], None]
) -> dict[tuple[str, str], list[Registered]]:
    found: dict[tuple[str, str], list[Registered]] = {}
    for kind in DESCRIPTORS:
        for provider in registry.providers(kind.slot):
            reference = provider.descriptor.prepare
            if not reference:
                continue
            if reason := registry.missing_module(provider):
                announce(f"{provider.plugin}: {_label(provider)} is passed over: {reason}")
                continue
            found.setdefault((provider.plugin, reference), []).append(provider)
    return found


def _label(provider: Registered) -> str:
    op = getattr(provider.descriptor, "op", "")
    return f"{provider.descriptor.slot} {op or provider.name}"
