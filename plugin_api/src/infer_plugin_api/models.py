"""Model architectures: from a Hugging Face config to a model that the engine can run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

    from infer_plugin_api.attention import AttentionSpec
    from infer_plugin_api.kv import KVSpec
    from infer_plugin_api.linear import LinearFn

    AttentionFn = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class RopeSpec:
    """Rotary position embedding (Su et al., 2021) and its length extensions.

    rotary_size: how many leading elements of a head are rotated.
    scaling: ``"default"``, ``"linear"``, ``"llama3"`` or ``"yarn"``; its numbers in *parameters*
    under the names that Hugging Face configs use.
    """

    theta: float
    rotary_size: int
    max_positions: int
    scaling: str = "default"
    parameters: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, kw_only=True)
class DecoderNames:
    """Checkpoint names of a decoder's tensors; ``{layer}`` is replaced by the layer's number.

    Linear layers are named without their ``.weight`` and ``.bias`` endings. A tuple of several
    names is joined along the output dimension when loaded.
    """

    embedding: str = "model.embed_tokens.weight"
    final_norm: str = "model.norm.weight"
    lm_head: str = "lm_head"
    input_norm: str = "model.layers.{layer}.input_layernorm.weight"
    post_attention_norm: str = "model.layers.{layer}.post_attention_layernorm.weight"
    qkv: tuple[str, ...] = (
        "model.layers.{layer}.self_attn.q_proj",
        "model.layers.{layer}.self_attn.k_proj",
        "model.layers.{layer}.self_attn.v_proj",
    )
    output: tuple[str, ...] = ("model.layers.{layer}.self_attn.o_proj",)
    q_norm: str = "model.layers.{layer}.self_attn.q_norm.weight"
    k_norm: str = "model.layers.{layer}.self_attn.k_norm.weight"
    gate_up: tuple[str, ...] = (
        "model.layers.{layer}.mlp.gate_proj",
        "model.layers.{layer}.mlp.up_proj",
    )
    down: tuple[str, ...] = ("model.layers.{layer}.mlp.down_proj",)


@dataclass(frozen=True, kw_only=True)
class DecoderSpec:
    """A decoder-only transformer as data; core's decoder module reads it.

    windows: per layer the sliding window in tokens, or None for full attention.
    attention_scale: factor of the scores, usually head_size ** -0.5.
    """

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    norm_eps: float
    rope: RopeSpec
    windows: tuple[int | None, ...]
    attention_scale: float
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    tie_embeddings: bool = False
    activation: str = "silu"
    soft_cap: float | None = None
    final_soft_cap: float | None = None
    names: DecoderNames = field(default_factory=DecoderNames)


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """What the engine must know before it builds the model.

    dtype: of the stored weights; max_model_len: positions the model was made for.
    kv_specs: one per layer, with dtype ``""`` where the engine shall put the cache's dtype.
    """

    architecture: str
    vocab_size: int
    max_model_len: int
    dtype: str
    kv_specs: tuple[KVSpec, ...]


class Model(Protocol):
    """A built model on its device, weights loaded."""

    def forward(
        self, input_ids: torch.Tensor, positions: torch.Tensor, wanted: torch.Tensor
    ) -> torch.Tensor:
        """Return hidden states [S, hidden] of the *wanted* tokens of a flat batch.

        input_ids, positions: int64 [T]. wanted: int64 [S], ascending indices of the tokens whose
        hidden states are needed; S may be 0, and S = T means all of them. Attention layers know
        the step's requests; see :meth:`ModelContext.attention`.
        """

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """Return float32 logits [S, vocab] of selected rows of the hidden states [S, hidden]."""


class ModelContext(Protocol):
    """What core hands an architecture to build its model from. Weights load as layers are made.

    dtype: of activations; device: where the model lives. Names are checkpoint names.
    """

    dtype: torch.dtype
    device: torch.device

    def linear(
        self, names: tuple[str, ...], in_features: int, out_features: int, *, bias: bool
    ) -> LinearFn:
        """Load ``name.weight`` (and ``name.bias``) of all *names*, joined along the output.

        The function returned knows its kernels. Raises ModelError naming a missing tensor or a
        wrong shape.
        """

    def tied_linear(self, weight: torch.Tensor) -> LinearFn:
        """Return a linear function over a matrix that is loaded already (tied lm_head)."""

    def parameter(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """Load one tensor as activations' dtype. Raises ModelError like :meth:`linear`."""

    def embedding(self, name: str, shape: tuple[int, int]) -> torch.Tensor:
        """Load an embedding table [vocab, hidden] in the dtype that weights are kept in."""

    def attention(self, layer: int, spec: AttentionSpec, rope: RopeSpec) -> AttentionFn:
        """Return the layer's attention over the paged cache.

        f(query [T, H, D], key [T, KVH, D], value [T, KVH, D], positions [T]) -> [T, H * D];
        rotates query and key, stores key and value, attends with the step's block tables.
        """

    def op(self, name: str) -> Callable[..., Any]:
        """Return the chosen implementation of a fused op; see :mod:`infer_plugin_api.ops`."""

    def decoder(self, spec: DecoderSpec) -> Model:
        """Build core's decoder from *spec*: all that most families need."""


class ModelArchitecture(ABC):
    """A family of models: twenty lines that read a config."""

    @abstractmethod
    def info(self, config: Mapping[str, Any]) -> ModelInfo:
        """Read *config* (a Hugging Face ``config.json``) without importing torch.

        Raises ModelError naming the field, the value and what is supported.
        """

    @abstractmethod
    def build(self, config: Mapping[str, Any], context: ModelContext) -> Model:
        """Build the model with its weights, usually ``context.decoder(spec)``."""
