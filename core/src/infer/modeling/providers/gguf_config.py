"""A Hugging Face style config from a GGUF file's metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from infer.modeling.providers.gguf_names import ROPE_FACTORS
from infer.modeling.providers.gguf_rope import llama3_scaling
from infer.text.gguf import GGUFHead
from infer_plugin_api.errors import ModelError

_ARCHITECTURES = {
    "llama": ("LlamaForCausalLM", "llama"),
    "qwen2": ("Qwen2ForCausalLM", "qwen2"),
    "qwen3": ("Qwen3ForCausalLM", "qwen3"),
}
_FLOATS = {0: "float32", 1: "float16"}
_SPLIT_COUNT = "split.count"


def config_of(head: GGUFHead, path: Path) -> dict[str, Any]:
    """Return a Hugging Face style config. Raises ModelError naming what is missing or unknown.

    Mistral's files call themselves llama and get Llama's architecture, which computes the same.
    """
    kind = head.metadata.get("general.architecture")
    if kind not in _ARCHITECTURES:
        known = ", ".join(_ARCHITECTURES)
        raise ModelError(f"{path} holds the architecture {kind!r}; known in GGUF: {known}")
    if head.metadata.get(_SPLIT_COUNT, 1) > 1:
        raise ModelError(
            f"{path} is one of {head.metadata[_SPLIT_COUNT]} parts; "
            "join them with llama-gguf-split --merge"
        )
    return _Fields(head, path, kind).config()


class _Fields:
    """The metadata of one architecture, with errors that name the key."""

    def __init__(self, head: GGUFHead, path: Path, kind: str) -> None:
        self._head = head
        self._path = path
        self._kind = kind

    def config(self) -> dict[str, Any]:
        architecture, model_type = _ARCHITECTURES[self._kind]
        tensors, metadata = self._head.tensors, self._head.metadata
        heads, hidden = self._integer("attention.head_count"), self._integer("embedding_length")
        head_size = self._integer("attention.key_length", hidden // heads)
        return {
            "architectures": [architecture],
            "model_type": model_type,
            "vocab_size": self._vocab_size(),
            "hidden_size": hidden,
            "intermediate_size": self._integer("feed_forward_length"),
            "num_hidden_layers": self._integer("block_count"),
            "num_attention_heads": heads,
            "num_key_value_heads": self._integer("attention.head_count_kv", heads),
            "head_dim": head_size,
            "rms_norm_eps": self._number("attention.layer_norm_rms_epsilon"),
            "max_position_embeddings": self._integer("context_length"),
            "rope_theta": self._number("rope.freq_base", 10000.0),
            "rope_scaling": self._rope_scaling(head_size),
            "partial_rotary_factor": self._integer("rope.dimension_count", head_size) / head_size,
            "tie_word_embeddings": "output.weight" not in tensors,
            "attention_bias": "blk.0.attn_q.bias" in tensors,
            "hidden_act": "silu",
            "bos_token_id": metadata.get("tokenizer.ggml.bos_token_id"),
            "eos_token_id": self._end_ids() or None,
            "torch_dtype": self._dtype(),
        }

    def _integer(self, key: str, default: int | None = None) -> int:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ModelError(
                f"{self._path}: {self._kind}.{key} is {value!r}, expected a positive integer"
            )
        return value

    def _number(self, key: str, default: float | None = None) -> float:
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise ModelError(
                f"{self._path}: {self._kind}.{key} is {value!r}, expected a positive number"
            )
        return value

    def _value(self, key: str, default: Any) -> Any:
        found = self._head.metadata.get(f"{self._kind}.{key}", default)
        if found is None:
            raise ModelError(f"{self._path} has no metadata {self._kind}.{key}")
        return found

    def _vocab_size(self) -> int:
        embedding = self._head.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise ModelError(f"{self._path} has no matrix token_embd.weight")
        return embedding.shape[0]

    def _end_ids(self) -> list[int]:
        """Ids of the end of a text, of a turn and of a message."""
        keys = (f"tokenizer.ggml.{name}_token_id" for name in ("eos", "eot", "eom"))
        found = (self._head.metadata.get(key) for key in keys)
        return list(dict.fromkeys(value for value in found if value is not None))

    def _dtype(self) -> str:
        """The type of float weights; low-bit ones keep what bfloat16 can hold."""
        weight = self._head.tensors.get("blk.0.attn_q.weight")
        return _FLOATS.get(weight.kind, "bfloat16") if weight else "bfloat16"

    def _rope_scaling(self, head_size: int) -> dict[str, Any] | None:
        if ROPE_FACTORS in self._head.tensors:
            theta = self._number("rope.freq_base", 10000.0)
            return llama3_scaling(self._path, self._head.tensors[ROPE_FACTORS], theta, head_size)
        kind = self._head.metadata.get(f"{self._kind}.rope.scaling.type", "none")
        if kind == "none":
            return None
        keys = {
            "factor": "factor",
            "original_max_position_embeddings": "original_context_length",
            "attention_factor": "attn_factor",
        }
        found = {
            name: value
            for name, key in keys.items()
            if (value := self._head.metadata.get(f"{self._kind}.rope.scaling.{key}")) is not None
        }
        return {"rope_type": kind, **found}
