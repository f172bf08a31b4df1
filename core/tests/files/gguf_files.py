"""Small GGUF files as llama.cpp would write them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

GGUFWriter = Callable[..., Path]
"""What the fixture ``gguf_file`` is."""

HIDDEN, INNER, HEADS, KV_HEADS, HEAD, VOCAB, LAYERS = 64, 96, 4, 2, 16, 48, 2


def weights(*, biases: bool = False, norms: bool = False) -> dict[str, np.ndarray]:
    """Random tensors of the tiny model by Hugging Face name; tied, so there is no head."""
    draw = np.random.default_rng(0)

    def matrix(*shape: int) -> np.ndarray:
        return draw.normal(0, 0.2, shape).astype(np.float32)

    found = {
        "model.embed_tokens.weight": matrix(VOCAB, HIDDEN),
        "model.norm.weight": matrix(HIDDEN),
    }
    shapes = {
        "self_attn.q_proj": (HEADS * HEAD, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * HEAD, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD),
        "mlp.gate_proj": (INNER, HIDDEN),
        "mlp.up_proj": (INNER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INNER),
    }
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        found |= {f"{prefix}{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        for name in ("input_layernorm", "post_attention_layernorm"):
            found[f"{prefix}{name}.weight"] = matrix(HIDDEN)
        for name in ("q_proj", "k_proj", "v_proj") if biases else ():
            size = shapes[f"self_attn.{name}"][0]
            found[f"{prefix}self_attn.{name}.bias"] = matrix(size)
        for name in ("q_norm", "k_norm") if norms else ():
            found[f"{prefix}self_attn.{name}.weight"] = matrix(HEAD)
    return found


GGUF_NAMES = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_name(name: str) -> str:
    stem, _, ending = name.rpartition(".")
    if stem.startswith("model.layers."):
        _, _, layer, part = stem.split(".", 3)
        return f"blk.{layer}.{GGUF_NAMES[part]}.{ending}"
    return f"{GGUF_NAMES[stem]}.{ending}"


def interleaved(values: np.ndarray, heads: int) -> np.ndarray:
    """Order rows as llama.cpp's converter does: the halves of a head take turns."""
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)


def write_gguf(
    path: Path,
    tensors: Mapping[str, np.ndarray],
    *,
    kind: str = "llama",
    stored: str = "F32",
    values: Mapping[str, Any] | None = None,
    extra: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """Write tensors (by Hugging Face name) and metadata to *path*; return it."""
    writer = gguf.GGUFWriter(path, kind)
    fields: dict[str, Any] = {
        "block_count": LAYERS,
        "context_length": 512,
        "embedding_length": HIDDEN,
        "feed_forward_length": INNER,
        "attention.head_count": HEADS,
        "attention.head_count_kv": KV_HEADS,
        "attention.layer_norm_rms_epsilon": 1e-6,
    }
    for key, value in ({f"{kind}.{k}": v for k, v in fields.items()} | dict(values or {})).items():
        _add(writer, key, value)
    for hf_name, tensor in tensors.items():
        if kind == "llama" and ".q_proj." in hf_name:
            tensor = interleaved(tensor, HEADS)
        if kind == "llama" and ".k_proj." in hf_name:
            tensor = interleaved(tensor, KV_HEADS)
        _add_tensor(writer, gguf_name(hf_name), tensor, stored)
    for own_name, tensor in (extra or {}).items():
        writer.add_tensor(own_name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add(writer: gguf.GGUFWriter, key: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)


def _add_tensor(writer: gguf.GGUFWriter, name: str, tensor: np.ndarray, stored: str) -> None:
    """Low-bit types are for matrices; norms and biases stay float32."""
    kind = gguf.GGMLQuantizationType[stored if tensor.ndim > 1 else "F32"]
    writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
