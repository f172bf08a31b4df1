"""Llama, and the many models that share its architecture (SmolLM2, TinyLlama, ...)."""

from __future__ import annotations

from infer.modeling.families.family import DecoderFamily, decoder_spec
from infer.modeling.families.hf_config import HFConfig
from infer_plugin_api.models import DecoderSpec


class Llama(DecoderFamily):
    """``LlamaForCausalLM``: ``attention_bias`` covers all four attention projections."""

    def spec(self, config: HFConfig) -> DecoderSpec:
        bias = config.flag("attention_bias")
        return decoder_spec(
            config, qkv_bias=bias, output_bias=bias, mlp_bias=config.flag("mlp_bias")
        )
