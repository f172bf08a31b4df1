"""Qwen2 and Qwen2.5."""

from __future__ import annotations

from infer.modeling.families.family import DecoderFamily, decoder_spec, qwen_windows
from infer.modeling.families.hf_config import HFConfig
from infer_plugin_api.models import DecoderSpec


class Qwen2(DecoderFamily):
    """``Qwen2ForCausalLM``: query, key and value always have biases, the output never."""

    def spec(self, config: HFConfig) -> DecoderSpec:
        return decoder_spec(config, windows=qwen_windows(config), qkv_bias=True)
