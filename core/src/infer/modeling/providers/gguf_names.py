"""GGUF's words and Hugging Face's for the same things."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infer_plugin_api.errors import ModelError

from infer.text.gguf import GGUFHead, GGUFTensor

_ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
}
_TOP = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
_NOT_WEIGHTS = ("rope_freqs.weight",)


def hugging_face_names(head: GGUFHead, path: Path) -> dict[str, GGUFTensor]:
    """Return the tensors by Hugging Face name. Raises ModelError for one it does not know."""
    named = {}
    for name, tensor in head.tensors.items():
        if name in _NOT_WEIGHTS:
            continue
        match = _BLOCK.fullmatch(name)
        stem, _, ending = name.rpartition(".")
        if match and match[2] in _LAYER:
            named[f"model.layers.{match[1]}.{_LAYER[match[2]]}.{match[3]}"] = tensor
        elif stem in _TOP:
            named[f"{_TOP[stem]}.{ending}"] = tensor
        else:
            raise ModelError(f"{path}: the tensor {name} belongs to no model that infer knows")
    return named


def config_of(head: GGUFHead, path: Path) -> dict[str, Any]:
    """Return a Hugging Face style config. Raises ModelError naming what is missing or unknown."""
    metadata = head.metadata
    kind = metadata.get("general.architecture")
    if kind not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise ModelError(f"{path} holds the architecture {kind!r}; known in GGUF: {known}")
    architecture, model_type = _ARCHITECTURES[kind]

    def value(key: str, default: Any = None) -> Any:
        found = metadata.get(f"{kind}.{key}", default)
        if found is None:
            raise ModelError(f"{path} has no metadata {kind}.{key}")
        return found

    heads, hidden = value("attention.head_count"), value("embedding_length")
    tokens = metadata.get("tokenizer.ggml.tokens") or ()
    rows = head.tensors["token_embd.weight"].shape[0] if "token_embd.weight" in head.tensors else 0
    head_size = value("attention.key_length", hidden // heads)
    return {
        "architectures": [architecture],
        "model_type": model_type,
        "vocab_size": rows or len(tokens),
        "hidden_size": hidden,
        "intermediate_size": value("feed_forward_length"),
        "num_hidden_layers": value("block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": value("attention.head_count_kv", heads),
        "head_dim": head_size,
        "rms_norm_eps": value("attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": value("context_length"),
        "rope_theta": value("rope.freq_base", 10000.0),
        "rope_scaling": _rope_scaling(metadata, kind, head),
        "tie_word_embeddings": "output.weight" not in head.tensors,
        "attention_bias": "blk.0.attn_q.bias" in head.tensors,
        "hidden_act": "silu",
        "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": metadata.get("tokenizer.ggml.eos_token_id"),
        "torch_dtype": "bfloat16",
    }


def _rope_scaling(metadata: Mapping[str, Any], kind: str, head: GGUFHead) -> dict[str, Any] | None:
    if "rope_freqs.weight" in head.tensors:
        raise ModelError(
            "this GGUF file stores rope frequencies (rope_freqs.weight), which are not supported; "
            "use the model's safetensors checkpoint"
        )
    scaling = metadata.get(f"{kind}.rope.scaling.type", "none")
    if scaling == "none":
        return None
    found = {
        "rope_type": scaling,
        "factor": metadata.get(f"{kind}.rope.scaling.factor"),
        "original_max_position_embeddings": metadata.get(
            f"{kind}.rope.scaling.original_context_length"
        ),
    }
    return {name: value for name, value in found.items() if value is not None}
