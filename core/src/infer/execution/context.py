"""What a step's layers share, and the attention function that each layer gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from infer_plugin_api.attention import AttentionBackend, AttentionBatch

if TYPE_CHECKING:
    from infer_plugin_api.models import AttentionFn
    from infer_plugin_api.ops import RopeStoreKV


class StepContext:
    """The current step: one batch and one backend's metadata per KV group, caches by layer."""

    def __init__(self, backends: list[AttentionBackend]) -> None:
        self.backends = backends
        self.caches: list[torch.Tensor] = []
        self.batches: list[AttentionBatch] = []
        self.metadata: list[Any] = []

    def begin(self, batches: list[AttentionBatch]) -> None:
        """Make *batches* the current step."""
        self.batches = batches
        self.metadata = [
            backend.prepare(batch) for backend, batch in zip(self.backends, batches, strict=True)
        ]


def attention_layer(
    step: StepContext,
    layer: int,
    group: int,
    rope: RopeStoreKV,
    cos_sin: torch.Tensor,
    out: torch.Tensor,
) -> AttentionFn:
    """Return f(query, key, value, positions) -> [T, H * D] of one layer.

    out: [max_tokens, H, D], shared by all layers: the next linear layer has read it before the
    following attention writes it.
    """
    backend = step.backends[group]

    def attend(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, positions: torch.Tensor
    ) -> torch.Tensor:
        cache = step.caches[layer]
        rope(query, key, value, cos_sin, positions, cache, step.batches[group].slot_mapping)
        result = out[: query.shape[0]]
        backend.forward(query, cache, step.metadata[group], result)
        return result.flatten(1)

    return attend
