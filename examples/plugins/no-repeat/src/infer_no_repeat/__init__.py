"""No three tokens twice in an answer, for requests that ask for it."""

from __future__ import annotations

from infer_plugin_api import LogitsProcessorDescriptor, PluginInfo, hookimpl

infer_plugin = PluginInfo(api_version="1.0")


@hookimpl
def infer_logits_processors() -> list[LogitsProcessorDescriptor]:
    return [
        LogitsProcessorDescriptor(
            name="no-repeat",
            implementation="infer_no_repeat.processor:NoRepeat",
            summary="no three tokens twice in an answer",
            needs_token_ids_on_host=True,
        )
    ]
