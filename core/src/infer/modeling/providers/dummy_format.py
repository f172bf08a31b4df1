"""Random weights: measure a model's shape without having its checkpoint."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from infer_plugin_api.errors import ModelError
from infer_plugin_api.weights import TensorInfo, WeightFormat, WeightReader

if TYPE_CHECKING:
    import torch

_STD = 0.02


class DummyFormat(WeightFormat):
    """Weights of the decoder family, normal with a standard deviation of 0.02, norms of one."""

    def open(self, path: Path, config: Mapping[str, Any]) -> WeightReader:
        return DummyReader(config)


class DummyReader(WeightReader):
    """A tensor depends on its name only, so every rank makes the same one.

    Raises ModelError when the config lacks a size.
    """

    def __init__(self, config: Mapping[str, Any]) -> None:
        try:
            shapes = dict(_shapes(config))
        except KeyError as error:
            raise ModelError(
                f"dummy weights need {error.args[0]}, which the config has not"
            ) from error
        self._infos = {
            name: TensorInfo(shape, 4 * math.prod(shape)) for name, shape in shapes.items()
        }

    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._infos

    def read(self, name: str) -> torch.Tensor:
        import torch

        shape = self._infos[name].shape
        if name.endswith("norm.weight"):
            return torch.ones(shape)
        seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little")
        generator = torch.Generator().manual_seed(seed)
        return torch.empty(shape).normal_(0, _STD, generator=generator)


def _shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield everything that a model of the family may ask for; biases that it lacks go unread."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head = config.get("head_dim") or hidden // heads
    linears = {
        "self_attn.q_proj": (heads * head, hidden),
        "self_attn.k_proj": (kv_heads * head, hidden),
        "self_attn.v_proj": (kv_heads * head, hidden),
        "self_attn.o_proj": (hidden, heads * head),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    yield "model.embed_tokens.weight", (config["vocab_size"], hidden)
    for layer in range(config["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for name, shape in linears.items():
            yield f"{prefix}{name}.weight", shape
            yield f"{prefix}{name}.bias", shape[:1]
        for name in ("input_layernorm", "post_attention_layernorm"):
            yield f"{prefix}{name}.weight", (hidden,)
        for name in ("self_attn.q_norm", "self_attn.k_norm"):
            yield f"{prefix}{name}.weight", (head,)
    yield "model.norm.weight", (hidden,)
    yield "lm_head.weight", (config["vocab_size"], hidden)
