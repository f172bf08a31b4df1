"""Dummy weights: every tensor that a model of the family asks for, without a checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from infer.modeling.providers.dummy_format import DummyFormat
from infer_plugin_api.errors import ModelError

CONFIG = {
    "vocab_size": 320,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
}


@pytest.mark.parametrize("family", ["llama", "mistral", "qwen2", "qwen3"])
def test_every_weight_of_the_family_is_there_in_its_shape(family: str) -> None:
    config = CONFIG if family != "qwen2" else {**CONFIG, "head_dim": None}
    fields = {name: value for name, value in config.items() if value is not None}
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **fields))
    reader = DummyFormat().open(Path(), config)
    for name, parameter in model.named_parameters():
        assert reader.tensors()[name].shape == tuple(parameter.shape), name
        assert reader.read(name).shape == parameter.shape, name


def test_weights_are_small_and_random_and_norms_are_one() -> None:
    reader = DummyFormat().open(Path(), CONFIG)
    weight = reader.read("model.layers.0.mlp.up_proj.weight")
    assert float(weight.std()) == pytest.approx(0.02, rel=0.1)
    assert float(weight.mean()) == pytest.approx(0, abs=0.002)
    assert torch.equal(reader.read("model.norm.weight"), torch.ones(64))


def test_a_tensor_is_the_same_in_every_process_and_differs_from_others() -> None:
    one, two = (DummyFormat().open(Path(), CONFIG) for _ in range(2))
    name = "model.layers.{}.self_attn.q_proj.weight"
    two.read("lm_head.weight")
    assert torch.equal(one.read(name.format(0)), two.read(name.format(0)))
    assert not torch.equal(one.read(name.format(0)), one.read(name.format(1)))


def test_a_config_without_a_size_is_refused_by_name() -> None:
    config = {name: value for name, value in CONFIG.items() if name != "hidden_size"}
    with pytest.raises(ModelError, match="dummy weights need hidden_size"):
        DummyFormat().open(Path(), config)
