"""Everything a plugin of infer needs.

A plugin is a distribution with an entry point and a declaration module::

    [project.entry-points."infer.plugins"]
    mine = "infer_mine"

    # infer_mine/__init__.py
    from infer_plugin_api import LogitsProcessorDescriptor, PluginInfo, hookimpl

    infer_plugin = PluginInfo(api_version="1.0")

    @hookimpl
    def infer_logits_processors():
        return [LogitsProcessorDescriptor(name="mine", implementation="infer_mine.impl:Mine")]

The declaration module may import the standard library and this package only.
"""

from __future__ import annotations

from infer_plugin_api.descriptors import (
    DESCRIPTORS,
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
)
from infer_plugin_api.markers import ENTRY_POINT_GROUP, hookimpl, hookspec
from infer_plugin_api.version import API_VERSION, __version__

__all__ = [
    "API_VERSION",
    "DESCRIPTORS",
    "ENTRY_POINT_GROUP",
    "ArchitectureDescriptor",
    "AttentionDescriptor",
    "ExecutorDescriptor",
    "LinearKernelDescriptor",
    "LogitsProcessorDescriptor",
    "ModelSourceDescriptor",
    "OpDescriptor",
    "PlatformDescriptor",
    "PluginInfo",
    "Provider",
    "QuantizerDescriptor",
    "SamplerDescriptor",
    "SchedulingPolicyDescriptor",
    "WeightFormatDescriptor",
    "__version__",
    "hookimpl",
    "hookspec",
]
