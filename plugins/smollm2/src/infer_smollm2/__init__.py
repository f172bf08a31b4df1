"""SmolLM2-135M-Instruct, the default model of infer."""

from __future__ import annotations

from infer_plugin_api import API_VERSION, ModelSourceDescriptor, PluginInfo, hookimpl

infer_plugin = PluginInfo(api_version=API_VERSION)


@hookimpl
def infer_model_sources() -> list[ModelSourceDescriptor]:
    return [
        ModelSourceDescriptor(
            name="smollm2",
            implementation="infer_smollm2.source:SmolLM2Source",
            summary="SmolLM2-135M-Instruct, installed or fetched once (93 MB)",
            priority=50,
            default_model="smollm2",
        )
    ]
