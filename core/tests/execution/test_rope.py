"""Rotary tables agree with transformers for every scaling."""

from __future__ import annotations

import pytest
import torch

from infer.modeling.rope import cos_sin_table
from infer_plugin_api.errors import ModelError
from infer_plugin_api.models import RopeSpec

SCALINGS = {
    "default": {},
    "linear": {"factor": 4.0},
    "llama3": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64,
    },
    "yarn": {"factor": 4.0, "original_max_position_embeddings": 64},
}


@pytest.mark.parametrize("kind", SCALINGS)
def test_tables_are_those_of_transformers(kind):
    transformers = pytest.importorskip("transformers")
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    numbers = SCALINGS[kind]
    config = transformers.LlamaConfig(
        hidden_size=64,
        num_attention_heads=2,
        max_position_embeddings=256,
        rope_parameters={"rope_type": kind, "rope_theta": 10000.0, **numbers},
    )
    cos, sin = LlamaRotaryEmbedding(config)(torch.zeros(1), torch.arange(256)[None])
    spec = RopeSpec(
        theta=10000.0,
        rotary_size=32,
        max_positions=256,
        scaling=kind,
        parameters=tuple((name, float(value)) for name, value in numbers.items()),
    )
    table = cos_sin_table(spec, torch.device("cpu"))
    torch.testing.assert_close(table[:, :16], cos[0, :, :16], rtol=0, atol=1e-5)
    torch.testing.assert_close(table[:, 16:], sin[0, :, :16], rtol=0, atol=1e-5)


def test_an_unknown_scaling_is_named():
    spec = RopeSpec(theta=1e4, rotary_size=8, max_positions=8, scaling="dynamic")
    with pytest.raises(ModelError, match="dynamic"):
        cos_sin_table(spec, torch.device("cpu"))
