"""What one plugin's module declares: all of it is sound, or an exception says what is not."""

from __future__ import annotations

import difflib
import inspect
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pluggy

from infer.plugins.registry import identity
from infer_plugin_api import (
    ArchitectureDescriptor,
    AttentionDescriptor,
    ExecutorDescriptor,
    LinearKernelDescriptor,
    LogitsProcessorDescriptor,
    ModelSourceDescriptor,
    OpDescriptor,
    PlatformDescriptor,
    PluginInfo,
    Provider,
    QuantizerDescriptor,
    SamplerDescriptor,
    SchedulingPolicyDescriptor,
    WeightFormatDescriptor,
    hookspecs,
)
from infer_plugin_api.markers import PROJECT

HOOKS: dict[str, type[Provider]] = {
    "infer_platforms": PlatformDescriptor,
    "infer_model_sources": ModelSourceDescriptor,
    "infer_weight_formats": WeightFormatDescriptor,
    "infer_model_architectures": ArchitectureDescriptor,
    "infer_quantizers": QuantizerDescriptor,
    "infer_attention_backends": AttentionDescriptor,
    "infer_linear_kernels": LinearKernelDescriptor,
    "infer_ops": OpDescriptor,
    "infer_samplers": SamplerDescriptor,
    "infer_logits_processors": LogitsProcessorDescriptor,
    "infer_scheduling_policies": SchedulingPolicyDescriptor,
    "infer_executors": ExecutorDescriptor,
}
"""The declaration hooks, with what each returns. All other hooks are events."""

_SPECIFIED = frozenset(
    name for name, value in vars(hookspecs).items() if hasattr(value, f"{PROJECT}_spec")
)

Listener = Callable[..., Any]


@dataclass(frozen=True)
class Declarations:
    """providers: in the order declared. listeners: (event hook, function taking ``event=``)."""

    providers: tuple[Provider, ...]
    listeners: tuple[tuple[str, Listener], ...]


def info_of(module: Any) -> PluginInfo:
    """Return what a plugin says of itself. Raises TypeError when it says nothing."""
    info = getattr(module, "infer_plugin", None)
    if not isinstance(info, PluginInfo):
        raise TypeError(
            "has no attribute infer_plugin = PluginInfo(api_version=...), found "
            f"{type(info).__name__}"
        )
    return info


def declarations_of(module: Any, name: str) -> Declarations:
    """Call a plugin's declaration hooks and collect its listeners.

    Raises what a hook raises, TypeError or ValueError for what it declares wrongly, and pluggy's
    PluginValidationError for a hook with unknown arguments.
    """
    manager = pluggy.PluginManager(PROJECT)
    manager.add_hookspecs(hookspecs)
    manager.register(module, name)
    _check_markers(module)
    providers: list[Provider] = []
    listeners: list[tuple[str, Listener]] = []
    for caller in manager.get_hookcallers(module) or ():
        if not caller.has_spec():
            _check_unknown(caller)
        elif caller.name in HOOKS:
            # Called one by one: pluggy would drop a hook's None without a word.
            for implementation in caller.get_hookimpls():
                providers += _checked(caller.name, implementation.function())
        else:
            listeners.append((caller.name, caller))
    _check_unique(providers)
    return Declarations(tuple(providers), tuple(listeners))


def _check_unknown(caller: pluggy.HookCaller) -> None:
    """Refuse hooks that do not exist, which are mostly misspelt or of a newer API."""
    if all(implementation.optionalhook for implementation in caller.get_hookimpls()):
        return
    near = difflib.get_close_matches(caller.name, _SPECIFIED, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise ValueError(f"implements {caller.name}, which is no hook of infer{hint}")


def _check_markers(module: Any) -> None:
    """Refuse a function that is named like a hook and would never be called."""
    for name in _SPECIFIED:
        function = inspect.getattr_static(module, name, None)
        if inspect.isfunction(function) and not hasattr(function, f"{PROJECT}_impl"):
            raise ValueError(f"defines {name} without @hookimpl")


def _checked(hook: str, answer: Any) -> list[Provider]:
    """Return a hook's descriptors. Raises TypeError or ValueError naming what is wrong."""
    wanted = HOOKS[hook]
    if not isinstance(answer, (list, tuple)):
        raise TypeError(
            f"{hook} returned {type(answer).__name__}, expected a list of {wanted.__name__}"
        )
    for item in answer:
        if not isinstance(item, wanted):
            what = type(item).__name__ if isinstance(item, Provider) else repr(item)
            raise TypeError(f"{hook} returned a {what}, expected {wanted.__name__}")
        if problems := item.problems():
            raise ValueError(f"{type(item).__name__} {item.name!r}: {'; '.join(problems)}")
    return list(answer)


def _check_unique(providers: list[Provider]) -> None:
    counts = Counter(identity(provider) for provider in providers)
    twice = [" ".join(filter(None, key)) for key, count in counts.items() if count > 1]
    if twice:
        raise ValueError(f"declares the same provider twice: {', '.join(twice)}")
