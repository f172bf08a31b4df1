"""Qwen3."""

from __future__ import annotations

from infer.modeling.families.family import DecoderFamily, decoder_spec, qwen_windows
from infer.modeling.families.hf_config import HFConfig
from infer_plugin_api.models import DecoderSpec


class Qwen3(DecoderFamily):
    """``Qwen3ForCausalLM``: RMS norms on each head's query and key; biases as in Llama."""

    def spec(self, config: HFConfig) -> DecoderSpec:
        bias = config.flag("attention_bias")
        return decoder_spec(
            config,
            head_size=128,
            windows=qwen_windows(config),
            qkv_bias=bias,
            output_bias=bias,
            qk_norm=True,
        )
