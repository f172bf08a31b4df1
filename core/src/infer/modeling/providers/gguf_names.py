"""Names of tensors: GGUF's and Hugging Face's for the same things."""

from __future__ import annotations

import re
from pathlib import Path

from infer.text.gguf import GGUFHead, GGUFTensor
from infer_plugin_api.errors import ModelError

ROPE_FACTORS = "rope_freqs.weight"
"""No weight: what Llama 3.1's rope scaling divides each frequency by."""

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


def hugging_face_names(head: GGUFHead, path: Path) -> dict[str, GGUFTensor]:
    """Return the tensors by Hugging Face name. Raises ModelError for one it does not know."""
    named = {}
    for name, tensor in head.tensors.items():
        if name == ROPE_FACTORS:
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
