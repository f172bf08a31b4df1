"""Mistral."""

from __future__ import annotations

from infer.modeling.families.family import DecoderFamily, decoder_spec
from infer.modeling.families.hf_config import HFConfig
from infer_plugin_api.models import DecoderSpec


class Mistral(DecoderFamily):
    """``MistralForCausalLM``: one window for all layers.

    ``sliding_window`` null means none, absent means 4096 as in transformers.
    """

    def spec(self, config: HFConfig) -> DecoderSpec:
        null = "sliding_window" in config and config.get("sliding_window") is None
        window = None if null else config.integer("sliding_window", 4096)
        return decoder_spec(config, windows=(window,) * config.integer("num_hidden_layers"))
