"""Importing one plugin's declaration module; whatever it does, the others go on."""

from __future__ import annotations

import importlib
import logging
import sys
import time
import traceback
from dataclasses import dataclass, replace
from typing import Any

from infer.plugins.declarations import Declarations, Listener, declarations_of, info_of
from infer.plugins.found import BUILTIN, Found
from infer.plugins.registry import ACTIVE, PluginRecord
from infer.plugins.wishes import Wishes
from infer_plugin_api import PluginInfo
from infer_plugin_api.version import incompatibility

log = logging.getLogger(__name__)

_SLOW_IMPORT_SECONDS = 0.05
_LONGEST_REASON = 400


@dataclass(frozen=True)
class Loaded:
    """A record, with what the plugin says of itself and its listeners when it is active."""

    record: PluginRecord
    info: PluginInfo | None = None
    listeners: tuple[tuple[str, Listener], ...] = ()

    def out(self, state: str, reason: str) -> Loaded:
        """Return this plugin left out: nothing of it is used."""
        record = replace(self.record, state=state, reason=reason, providers=(), events=())
        return replace(self, record=record, listeners=())


def load(found: Found, wishes: Wishes) -> Loaded:
    """Import one plugin's declarations, unless the operator left it out."""
    loaded = Loaded(_record(found))
    if found.problem:
        return loaded.out("conflict", found.problem)
    if reason := wishes.left_out(found.name):
        return loaded.out("disabled", reason)
    torch_before = "torch" in sys.modules
    try:
        loaded, declared = _declared(found, loaded, wishes)
    except (Exception, SystemExit) as error:
        failed = loaded.out("failed", _one_line(error))
        return replace(failed, record=replace(failed.record, traceback=traceback.format_exc()))
    _complain(loaded.record, torch_before)
    if declared is None:
        return loaded
    record = replace(
        loaded.record,
        providers=declared.providers,
        events=tuple(hook for hook, _ in declared.listeners),
    )
    return replace(loaded, record=record, listeners=declared.listeners)


def _declared(found: Found, loaded: Loaded, wishes: Wishes) -> tuple[Loaded, Declarations | None]:
    """Import and ask a plugin; no declarations when its version or the operator forbid it."""
    began = time.perf_counter()
    module = _import(found.target)
    seconds = time.perf_counter() - began
    info = info_of(module)
    record = replace(loaded.record, api_version=info.api_version, import_seconds=seconds)
    loaded = Loaded(record, info)
    if reason := incompatibility(info.api_version):
        return loaded.out("incompatible", reason), None
    if info.opt_in and found.name not in wishes.named:
        reason = f"has side effects; activate it with --plugin {found.name}"
        return loaded.out("opt-in", reason), None
    return loaded, declarations_of(module, found.name)


def _record(found: Found) -> PluginRecord:
    return PluginRecord(
        name=found.name,
        distribution=found.distribution,
        version=found.version,
        state=ACTIVE,
        reference=found.reference,
    )


def _import(target: Any) -> Any:
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    loaded: Any = importlib.import_module(module)
    for part in filter(None, attribute.split(".")):
        loaded = getattr(loaded, part)
    return loaded


def _complain(record: PluginRecord, torch_before: bool) -> None:
    """Name a plugin that makes every command slow."""
    if not torch_before and "torch" in sys.modules:
        log.warning("%s imports torch in its declaration module", record.origin)
    elif record.import_seconds > _SLOW_IMPORT_SECONDS and record.name != BUILTIN:
        milliseconds = record.import_seconds * 1e3
        log.warning("%s took %.0f ms to import its declarations", record.origin, milliseconds)


def _one_line(error: BaseException) -> str:
    text = " ".join(f"{type(error).__name__}: {error}".split())
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"
