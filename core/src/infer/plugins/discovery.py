"""Finding plugins: metadata first, then the declaration modules, then the activation rules."""

from __future__ import annotations

import difflib
import importlib
import inspect
import logging
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pluggy
from importlib_metadata import Distribution, EntryPoint, distributions

from infer.config.errors import UserError
from infer.config.plugins import PluginActivation
from infer.plugins.events import EventRelay
from infer.plugins.registry import ACTIVE, PluginRecord, Registry, shared_names
from infer_plugin_api import ENTRY_POINT_GROUP, PluginInfo, Provider, hookspecs
from infer_plugin_api.descriptors import DESCRIPTORS
from infer_plugin_api.markers import PROJECT
from infer_plugin_api.version import incompatibility

log = logging.getLogger(__name__)

BUILTIN = "builtin"
_SLOW_IMPORT_SECONDS = 0.05
_EVENT_HOOKS = frozenset(
    name
    for name in vars(hookspecs)
    if name.startswith(("infer_engine_", "infer_request_"))
)


@dataclass(frozen=True)
class _Found:
    """An entry point or an object given by the caller, before anything of it is imported."""

    name: str
    target: Any
    distribution: str
    version: str


@dataclass(frozen=True)
class _Loaded:
    """A record, with its event listeners by hook when it is active."""

    record: PluginRecord
    info: PluginInfo | None = None
    listeners: tuple[tuple[str, Any], ...] = ()


def load_plugins(activation: PluginActivation) -> Registry:
    """Return the registry of this process. A broken plugin is reported and left out.

    Raises UserError when a plugin fails that the user named, or any with ``strict``.
    """
    found = list(_discover(activation))
    loaded = _settle([_load(item, activation) for item in found], activation)
    records = tuple(item.record for item in loaded)
    _report(records, activation)
    for what, owners in shared_names(record for record in records if record.state == ACTIVE):
        log.warning(
            "%s is declared by the plugins %s; write plugin:name to choose one",
            what,
            " and ".join(owners),
        )
    relay = EventRelay()
    for item in loaded:
        for hook, listener in item.listeners:
            relay.listen(hook, item.record.name, listener)
    return Registry(records, relay)


def _discover(activation: PluginActivation) -> Iterator[_Found]:
    """Yield core's plugin, then the installed ones by name, then the caller's objects."""
    installed = {}
    for entry_point, distribution in _entry_points():
        found = _Found(entry_point.name, entry_point, *_identity(distribution))
        installed.setdefault((found.name, found.distribution), found)
    ordered = sorted(installed.values(), key=lambda item: (item.name != BUILTIN, item.name))
    if not any(item.name == BUILTIN for item in ordered):
        yield _Found(BUILTIN, "infer.plugins.builtin", "infer-core", "unknown")
    yield from ordered
    names = {item.name for item in ordered}
    for extra in activation.extra:
        if isinstance(extra, str) and extra in names:
            continue
        name = extra if isinstance(extra, str) else getattr(extra, "__name__", type(extra).__name__)
        yield _Found(name, extra, "given by the caller", "-")
    known = names | {extra for extra in activation.extra if isinstance(extra, str)}
    for wanted in (*activation.enable, *(activation.only or ())):
        if wanted not in known:
            near = difflib.get_close_matches(wanted, known, 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            installed_names = ", ".join(sorted(names)) or "none"
            raise UserError(
                f"plugin {wanted!r} is not installed; installed: {installed_names}{hint}"
            )


def _entry_points() -> Iterator[tuple[EntryPoint, Distribution]]:
    """Yield our group's entry points; a distribution with unreadable metadata is skipped."""
    seen: set[str] = set()
    for distribution in distributions():
        try:
            name = distribution.metadata["Name"]
            entry_points = list(distribution.entry_points.select(group=ENTRY_POINT_GROUP))
        except Exception as error:
            log.debug("metadata of %s can't be read: %s", distribution, error)
            continue
        if not entry_points or name in seen:
            continue
        seen.add(name)
        for entry_point in entry_points:
            yield entry_point, distribution


def _identity(distribution: Distribution) -> tuple[str, str]:
    return distribution.metadata["Name"], distribution.version


def _load(found: _Found, activation: PluginActivation) -> _Loaded:
    """Import one plugin's declarations, unless the operator left it out."""
    base = PluginRecord(
        name=found.name, distribution=found.distribution, version=found.version, state=ACTIVE
    )
    if reason := _left_out(found, activation):
        return _Loaded(replace(base, state="disabled", reason=reason))
    began = time.perf_counter()
    torch_before = "torch" in sys.modules
    try:
        module = _import(found.target)
        seconds = time.perf_counter() - began
        info = _info_of(module)
        base = replace(base, api_version=info.api_version, import_seconds=seconds)
        if reason := incompatibility(info.api_version):
            return _Loaded(replace(base, state="incompatible", reason=reason), info)
        if info.opt_in and not _named(found, activation):
            reason = f"has side effects; activate it with --plugin {found.name}"
            return _Loaded(replace(base, state="opt-in", reason=reason), info)
        providers, listeners = _declarations(module, found.name)
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        return _Loaded(
            replace(base, state="failed", reason=reason, traceback=traceback.format_exc())
        )
    if not torch_before and "torch" in sys.modules:
        log.warning("%s imports torch in its declaration module", base.origin)
    elif seconds > _SLOW_IMPORT_SECONDS and found.name != BUILTIN:
        log.warning("%s took %.0f ms to import its declarations", base.origin, seconds * 1e3)
    return _Loaded(replace(base, providers=providers), info, listeners)


def _left_out(found: _Found, activation: PluginActivation) -> str:
    """Say why the operator does not want this plugin; empty when they do."""
    if found.name == BUILTIN:
        return ""
    if found.name in activation.disable:
        return "disabled by the operator"
    if _named(found, activation):
        return ""
    if activation.only is not None:
        return "not in the list of active plugins"
    if not activation.autoload:
        return "autoload is off and nobody named it"
    return ""


def _named(found: _Found, activation: PluginActivation) -> bool:
    """Whether the operator named this plugin or the caller gave it as an object."""
    named = (*activation.enable, *(activation.only or ()), *activation.extra)
    return any(item is found.target or item == found.name for item in named)


def _import(target: Any) -> Any:
    if isinstance(target, EntryPoint):
        return target.load()
    if not isinstance(target, str):
        return target
    module, _, attribute = target.partition(":")
    loaded: Any = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded


def _info_of(module: Any) -> PluginInfo:
    info = getattr(module, "infer_plugin", None)
    if not isinstance(info, PluginInfo):
        raise TypeError(
            "has no attribute infer_plugin = PluginInfo(api_version=...), found "
            f"{type(info).__name__}"
        )
    return info


def _declarations(
    module: Any, name: str
) -> tuple[tuple[Provider, ...], tuple[tuple[str, Any], ...]]:
    """Call every declaration hook; all of them succeed, or the plugin contributes nothing."""
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(module, name)
    _check_hook_names(manager, module)
    providers: list[Provider] = []
    listeners = []
    for caller in manager.get_hookcallers(module) or ():
        if caller.name in _EVENT_HOOKS:
            listeners.append((caller.name, caller))
            continue
        for answer in caller():
            providers.extend(_checked(caller.name, answer))
    names = [(item.slot, getattr(item, "op", ""), item.name) for item in providers]
    if twice := sorted({str(item) for item in names if names.count(item) > 1}):
        raise ValueError(f"declares the same provider twice: {', '.join(twice)}")
    return tuple(providers), tuple(listeners)


def _check_hook_names(manager: pluggy.PluginManager, module: Any) -> None:
    """Refuse implementations of hooks that do not exist, which are mostly misspelt."""
    known = {name for name in vars(hookspecs) if name.startswith("infer_")}
    for name, value in inspect.getmembers(module, callable):
        if hasattr(value, f"{PROJECT}_impl") and name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ValueError(f"implements {name}, which is no hook of infer{hint}")


def _checked(hook: str, answer: Any) -> list[Provider]:
    """Return a hook's descriptors. Raises TypeError or ValueError naming what is wrong."""
    if not isinstance(answer, (list, tuple)):
        raise TypeError(f"{hook} returned {type(answer).__name__}, expected a list of descriptors")
    for item in answer:
        if not isinstance(item, DESCRIPTORS):
            raise TypeError(f"{hook} returned {item!r}, which is no descriptor")
        if _HOOK_OF_SLOT.get(type(item).__name__) != hook:
            raise TypeError(f"{hook} returned a {type(item).__name__}")
        if problems := item.problems():
            raise ValueError(f"{type(item).__name__} {item.name!r}: {'; '.join(problems)}")
    return list(answer)


_HOOK_OF_SLOT = {
    "PlatformDescriptor": "infer_platforms",
    "ModelSourceDescriptor": "infer_model_sources",
    "WeightFormatDescriptor": "infer_weight_formats",
    "ArchitectureDescriptor": "infer_model_architectures",
    "QuantizerDescriptor": "infer_quantizers",
    "AttentionDescriptor": "infer_attention_backends",
    "LinearKernelDescriptor": "infer_linear_kernels",
    "OpDescriptor": "infer_ops",
    "SamplerDescriptor": "infer_samplers",
    "LogitsProcessorDescriptor": "infer_logits_processors",
    "SchedulingPolicyDescriptor": "infer_scheduling_policies",
    "ExecutorDescriptor": "infer_executors",
}


def _settle(loaded: list[_Loaded], activation: PluginActivation) -> list[_Loaded]:
    """Apply what plugins say of each other: equal names, requires, conflicts."""
    counts: dict[str, list[str]] = {}
    for item in loaded:
        counts.setdefault(item.record.name, []).append(item.record.distribution)
    settled = [
        _fail(item, "conflict", f"the name is used by {' and '.join(counts[item.record.name])}")
        if len(counts[item.record.name]) > 1 and item.record.state == ACTIVE
        else item
        for item in loaded
    ]
    for _ in settled:
        active = {item.record.name for item in settled if item.record.state == ACTIVE}
        changed = [_against(item, active) for item in settled]
        if changed == settled:
            break
        settled = changed
    return settled


def _against(item: _Loaded, active: set[str]) -> _Loaded:
    if item.record.state != ACTIVE or item.info is None:
        return item
    if absent := [name for name in item.info.requires if name not in active]:
        return _fail(item, "failed", f"requires the plugin {absent[0]!r}, which is not active")
    if clash := [name for name in item.info.conflicts if name in active]:
        return _fail(item, "conflict", f"can't be active beside the plugin {clash[0]!r}")
    return item


def _fail(item: _Loaded, state: str, reason: str) -> _Loaded:
    record = replace(item.record, state=state, reason=reason, providers=())
    return replace(item, record=record, listeners=())


def _report(records: tuple[PluginRecord, ...], activation: PluginActivation) -> None:
    """Log one line per broken plugin; raise for those that the user named, or for any if strict."""
    for record in records:
        if record.state not in ("failed", "incompatible", "conflict"):
            continue
        message = f"{record.origin} is left out: {record.reason}"
        named = record.name in (*activation.enable, *(activation.only or ()), *activation.extra)
        if activation.strict or named:
            raise UserError(message)
        log.warning("%s", message)
