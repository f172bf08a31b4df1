"""What decoder families share: a family only says where it differs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

from infer.modeling.families.hf_config import HFConfig
from infer.modeling.families.rope_config import rope_spec
from infer_plugin_api.errors import ModelError
from infer_plugin_api.kv import KVSpec
from infer_plugin_api.models import (
    DecoderSpec,
    Model,
    ModelArchitecture,
    ModelContext,
    ModelInfo,
)

_DTYPES = ("float32", "bfloat16", "float16")
_SILU = ("silu", "swish")


class DecoderFamily(ModelArchitecture):
    """A family that core's decoder can compute. A subclass turns a config into a DecoderSpec."""

    @abstractmethod
    def spec(self, config: HFConfig) -> DecoderSpec:
        """Return the model as data, usually by :func:`decoder_spec`. Raises ModelError."""

    def info(self, config: Mapping[str, Any]) -> ModelInfo:
        fields = HFConfig(config)
        spec = self.spec(fields)
        return ModelInfo(
            architecture=str((fields.get("architectures") or [type(self).__name__])[0]),
            vocab_size=spec.vocab_size,
            max_model_len=spec.rope.max_positions,
            dtype=_dtype(fields),
            kv_specs=tuple(
                KVSpec(
                    num_kv_heads=spec.num_kv_heads,
                    head_size=spec.head_size,
                    dtype="",
                    kind="full" if window is None else "sliding",
                    window=window,
                )
                for window in spec.windows
            ),
        )

    def build(self, config: Mapping[str, Any], context: ModelContext) -> Model:
        return context.decoder(self.spec(HFConfig(config)))


def decoder_spec(
    config: HFConfig,
    *,
    head_size: int | None = None,
    windows: tuple[int | None, ...] | None = None,
    qkv_bias: bool = False,
    output_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
) -> DecoderSpec:
    """Read the fields that all families have. Raises ModelError.

    head_size: where the config has no ``head_dim``; None derives it from the hidden size.
    windows: per layer; None means full attention everywhere.
    """
    config.one_of("hidden_act", _SILU, "silu")
    layers = config.integer("num_hidden_layers")
    heads = config.integer("num_attention_heads")
    kv_heads = config.integer("num_key_value_heads", heads)
    if heads % kv_heads:
        raise config.wrong("num_key_value_heads", f"a divisor of num_attention_heads ({heads})")
    head_size = _head_size(config, heads, head_size)
    rope = rope_spec(config, head_size)
    return DecoderSpec(
        vocab_size=config.integer("vocab_size"),
        hidden_size=config.integer("hidden_size"),
        intermediate_size=config.integer("intermediate_size"),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv_heads,
        head_size=head_size,
        norm_eps=config.number("rms_norm_eps", 1e-6),
        rope=rope,
        # A window that no request outgrows is full attention.
        windows=tuple(
            window if window is not None and window < rope.max_positions else None
            for window in windows or (None,) * layers
        ),
        attention_scale=head_size**-0.5,
        qkv_bias=qkv_bias,
        output_bias=output_bias,
        mlp_bias=mlp_bias,
        qk_norm=qk_norm,
        tie_embeddings=config.flag("tie_word_embeddings"),
    )


def qwen_windows(config: HFConfig) -> tuple[int | None, ...]:
    """Read which layers have a sliding window, from ``layer_types`` or ``max_window_layers``.

    Nothing slides unless ``use_sliding_window`` is true.
    """
    layers = config.integer("num_hidden_layers")
    if not config.flag("use_sliding_window") or config.get("sliding_window") is None:
        return (None,) * layers
    window = config.integer("sliding_window")
    types = config.get("layer_types")
    if types is None:
        first = config.get("max_window_layers")
        if isinstance(first, bool) or not isinstance(first, int) or first < 0:
            raise config.wrong("max_window_layers", "a number of layers")
        return tuple(window if layer >= first else None for layer in range(layers))
    known = {"full_attention": None, "sliding_attention": window}
    if not isinstance(types, list) or len(types) != layers or not set(types) <= set(known):
        raise config.wrong(
            "layer_types", f"{layers} entries, each full_attention or sliding_attention"
        )
    return tuple(known[kind] for kind in types)


def _head_size(config: HFConfig, heads: int, default: int | None) -> int:
    if config.get("head_dim") is not None or default is not None:
        return config.integer("head_dim", default)
    hidden = config.integer("hidden_size")
    if hidden % heads:
        raise ModelError(
            f"config.json: hidden_size {hidden} is not a multiple of num_attention_heads {heads} "
            "and head_dim is not given"
        )
    return hidden // heads


def _dtype(config: HFConfig) -> str:
    """transformers 5 writes ``dtype``, older ones ``torch_dtype``; without either it is float32."""
    name = "dtype" if config.get("dtype") is not None else "torch_dtype"
    value = str(config.get(name) or "float32").removeprefix("torch.")
    if value not in _DTYPES:
        raise config.wrong(name, f"one of {', '.join(_DTYPES)}")
    return value
