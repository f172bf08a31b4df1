"""The decoder family: one module that reads a DecoderSpec."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch.nn import functional

from infer_plugin_api.attention import AttentionSpec

if TYPE_CHECKING:
    from infer_plugin_api.linear import LinearFn
    from infer_plugin_api.models import AttentionFn, DecoderSpec, ModelContext

NormFn = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]


@dataclass(frozen=True)
class _Layer:
    """One layer's weights and methods; q_norm and k_norm are None without QK norm."""

    input_norm: torch.Tensor
    qkv: LinearFn
    q_norm: torch.Tensor | None
    k_norm: torch.Tensor | None
    attention: AttentionFn
    output: LinearFn
    post_attention_norm: torch.Tensor
    gate_up: LinearFn
    down: LinearFn


class Decoder:
    """A pre-norm transformer decoder: attention and gated MLP with residuals.

    Residuals are summed in float32 whatever the dtype of activations. What follows the last
    attention is computed for the wanted tokens only.

    Implements :class:`infer_plugin_api.models.Model`.
    """

    def __init__(self, spec: DecoderSpec, context: ModelContext) -> None:
        self.spec = spec
        self.dtype = context.dtype
        self.rms_norm = context.op("rms_norm")
        self.add_rms_norm = context.op("add_rms_norm")
        self.silu_mul = context.op("silu_mul")
        self.sizes = [
            spec.num_heads * spec.head_size,
            spec.num_kv_heads * spec.head_size,
            spec.num_kv_heads * spec.head_size,
        ]
        names = spec.names
        self.embedding = context.embedding(names.embedding, (spec.vocab_size, spec.hidden_size))
        self.layers = [_load_layer(spec, context, index) for index in range(spec.num_layers)]
        self.final_norm = context.parameter(names.final_norm, (spec.hidden_size,))
        if spec.tie_embeddings:
            self.lm_head = context.tied_linear(self.embedding)
        else:
            self.lm_head = context.linear(
                (names.lm_head,), spec.hidden_size, spec.vocab_size, bias=False
            )

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, wanted: torch.Tensor
    ) -> torch.Tensor:
        eps = self.spec.norm_eps
        residual = functional.embedding(input_ids, self.embedding).float()
        x = self.rms_norm(residual, self.layers[0].input_norm, eps)
        following = [layer.input_norm for layer in self.layers[1:]] + [self.final_norm]
        for layer, next_norm in zip(self.layers, following, strict=True):
            x = self._attend(layer, x, positions)
            if layer is self.layers[-1] and len(wanted) < len(x):
                x, residual = x.index_select(0, wanted), residual.index_select(0, wanted)
            x = self.add_rms_norm(layer.output(x), residual, layer.post_attention_norm, eps)
            x = layer.down(self.silu_mul(layer.gate_up(x)))
            x = self.add_rms_norm(x, residual, next_norm, eps)
        hidden: torch.Tensor = x
        return hidden

    def _attend(self, layer: _Layer, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        head_size = self.spec.head_size
        packed = torch.split(layer.qkv(x), self.sizes, dim=-1)
        query, key, value = (part.view(len(part), -1, head_size) for part in packed)
        if layer.q_norm is not None and layer.k_norm is not None:
            query = self.rms_norm(query, layer.q_norm, self.spec.norm_eps)
            key = self.rms_norm(key, layer.k_norm, self.spec.norm_eps)
        return layer.attention(query, key, value, positions)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        logits = self.lm_head(hidden).float()
        cap = self.spec.final_soft_cap
        return logits if cap is None else torch.tanh(logits / cap) * cap


def _load_layer(spec: DecoderSpec, context: ModelContext, index: int) -> _Layer:
    def named(*names: str) -> tuple[str, ...]:
        return tuple(name.format(layer=index) for name in names)

    def norm(name: str, size: int) -> torch.Tensor:
        return context.parameter(name.format(layer=index), (size,))

    names, hidden, inner = spec.names, spec.hidden_size, spec.intermediate_size
    query, key = spec.num_heads * spec.head_size, spec.num_kv_heads * spec.head_size
    attention = AttentionSpec(
        num_heads=spec.num_heads,
        num_kv_heads=spec.num_kv_heads,
        head_size=spec.head_size,
        scale=spec.attention_scale,
        window=spec.windows[index],
        soft_cap=spec.soft_cap,
    )
    return _Layer(
        input_norm=norm(names.input_norm, hidden),
        qkv=context.linear(named(*names.qkv), hidden, query + 2 * key, bias=spec.qkv_bias),
        q_norm=norm(names.q_norm, spec.head_size) if spec.qk_norm else None,
        k_norm=norm(names.k_norm, spec.head_size) if spec.qk_norm else None,
        attention=context.attention(index, attention, spec.rope),
        output=context.linear(named(*names.output), query, hidden, bias=spec.output_bias),
        post_attention_norm=norm(names.post_attention_norm, hidden),
        gate_up=context.linear(named(*names.gate_up), hidden, 2 * inner, bias=spec.mlp_bias),
        down=context.linear(named(*names.down), inner, hidden, bias=spec.mlp_bias),
    )
