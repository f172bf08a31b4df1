"""Rotary fields in the spellings of transformers 4 and 5, and their tables against its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

from infer.modeling.families.hf_config import HFConfig
from infer.modeling.families.rope_config import rope_spec
from infer.modeling.rope import cos_sin_table
from infer_plugin_api.errors import ModelError
from infer_plugin_api.models import RopeSpec

LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128}


def read(**fields: Any) -> RopeSpec:
    return rope_spec(HFConfig({"max_position_embeddings": 512, **fields}), 64)


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_theta": 5e5, "rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_theta": 5e5, "rope_scaling": {"rope_type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 5e5}},
        {"rope_parameters": {"rope_type": "linear", "factor": 2}, "rope_theta": 500000},
    ],
)
def test_all_spellings_give_the_same(fields: dict[str, Any]) -> None:
    assert read(**fields) == RopeSpec(
        theta=5e5,
        rotary_size=64,
        max_positions=512,
        scaling="linear",
        parameters=(("factor", 2.0),),
    )


@pytest.mark.parametrize("fields", [{}, {"rope_scaling": None}, {"rope_parameters": None}])
def test_without_fields_it_is_the_plain_embedding(fields: dict[str, Any]) -> None:
    assert read(**fields) == RopeSpec(theta=10000.0, rotary_size=64, max_positions=512)


@pytest.mark.parametrize("kind", ["dynamic", "longrope", "su", "mrope"])
@pytest.mark.parametrize("spelling", ["type", "rope_type"])
def test_other_types_are_refused_by_name(kind: str, spelling: str) -> None:
    with pytest.raises(ModelError, match=rf"rope_scaling has rope_type '{kind}', .* llama3, yarn"):
        read(rope_scaling={spelling: kind, "factor": 2.0})


def test_parameters_by_layer_type_are_refused() -> None:
    with pytest.raises(ModelError, match="rope_parameters differs by layer type"):
        read(rope_parameters={"full_attention": {"rope_theta": 1e4}})


def test_a_missing_number_is_named() -> None:
    with pytest.raises(ModelError, match="has no low_freq_factor"):
        read(rope_scaling={"rope_type": "llama3", "factor": 8.0})


def test_yarn_reaches_as_far_as_it_stretches() -> None:
    assert read(max_position_embeddings=128, rope_scaling=YARN).max_positions == 512
    assert read(max_position_embeddings=600, rope_scaling=YARN).max_positions == 600


@pytest.mark.parametrize(
    "parameters",
    [
        {"rope_type": "default", "rope_theta": 1e4},
        {"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4},
        {**LLAMA3, "rope_theta": 5e5},
        {**YARN, "rope_theta": 1e4},
        {**YARN, "rope_theta": 1e6, "beta_fast": 16.0, "beta_slow": 2.0},
        {**YARN, "rope_theta": 1e6, "attention_factor": 0.8, "truncate": False},
        {**YARN, "rope_theta": 1e4, "mscale": 0.7, "mscale_all_dim": 1.2},
        {**YARN, "rope_theta": 1e4, "mscale": 0.7, "mscale_all_dim": 0.0, "beta_fast": None},
    ],
    ids=str,
)
def test_tables_equal_those_of_transformers(parameters: dict[str, Any]) -> None:
    reference = LlamaConfig(
        hidden_size=256,
        num_attention_heads=4,
        max_position_embeddings=512,
        rope_parameters=dict(parameters),
    )
    positions = torch.arange(512).unsqueeze(0)
    cos, sin = LlamaRotaryEmbedding(reference)(torch.zeros(1, 1), positions)
    spec = read(rope_parameters=parameters)
    table = cos_sin_table(spec, torch.device("cpu"))
    expected = torch.cat((cos[0, :, :32], sin[0, :, :32]), dim=-1)
    torch.testing.assert_close(table, expected, rtol=1e-5, atol=2e-5)
