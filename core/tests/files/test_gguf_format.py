"""GGUF checkpoints: names, order of rows, types, config, and files that can't be served."""

from __future__ import annotations

import math
import struct
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from infer.modeling.providers.gguf_format import GGUFFormat
from infer_plugin_api.errors import ModelError

from .gguf_files import HEAD, HIDDEN, VOCAB, GGUFWriter, weights

FAMILIES = {"llama": {}, "qwen2": {"biases": True}, "qwen3": {"norms": True}}
SCALES = {"llama.rope.freq_base": 500000.0}


def opened(path: Path) -> Any:
    return GGUFFormat().open(path, {})


@pytest.mark.parametrize("kind", FAMILIES)
def test_every_tensor_comes_back_under_its_hugging_face_name(
    gguf_file: GGUFWriter, kind: str
) -> None:
    tensors = weights(**FAMILIES[kind])
    reader = opened(gguf_file(tensors, kind=kind))
    infos = reader.tensors()
    assert {name: info.shape for name, info in infos.items()} == {
        name: tensor.shape for name, tensor in tensors.items()
    }
    for name, tensor in tensors.items():
        assert np.array_equal(reader.read(name).numpy(), tensor), name
        assert infos[name].nbytes == tensor.nbytes


def test_biases_of_llama_files_are_reordered_with_their_rows(gguf_file: GGUFWriter) -> None:
    tensors = weights(biases=True)
    reader = opened(gguf_file(tensors))
    for name, tensor in tensors.items():
        assert np.array_equal(reader.read(name).numpy(), tensor), name


@pytest.mark.parametrize("stored", ["Q8_0", "Q4_0", "Q5_1"])
def test_low_bit_rows_are_reordered_too(gguf_file: GGUFWriter, stored: str) -> None:
    tensors = weights()
    reader = opened(gguf_file(tensors, stored=stored))
    kind = gguf.GGMLQuantizationType[stored]
    for name in ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"):
        tensor = tensors[f"model.layers.1.{name}.weight"]
        expected = gguf.quants.dequantize(gguf.quants.quantize(tensor, kind), kind)
        found = reader.read(f"model.layers.1.{name}.weight")
        assert found.dtype == torch.float32
        assert np.array_equal(found.numpy(), expected), name


@pytest.mark.parametrize(("stored", "dtype"), [("F16", torch.float16), ("BF16", torch.bfloat16)])
def test_half_precision_is_kept_as_it_is(
    gguf_file: GGUFWriter, stored: str, dtype: torch.dtype
) -> None:
    tensors = weights()
    reader = opened(gguf_file(tensors, stored=stored))
    name = "model.layers.0.mlp.up_proj.weight"
    assert reader.read(name).dtype == dtype
    assert torch.equal(reader.read(name), torch.from_numpy(tensors[name]).to(dtype))


def test_types_without_a_reader_of_ours_go_through_the_gguf_library(
    gguf_file: GGUFWriter,
) -> None:
    tensors = {"model.embed_tokens.weight": np.ones((4, 256), np.float32)}
    reader = opened(gguf_file(tensors, stored="TQ2_0"))
    assert torch.equal(reader.read("model.embed_tokens.weight"), torch.ones(4, 256))


def test_the_default_model_has_the_weights_of_transformers(smollm2_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(
        smollm2_path.parent, gguf_file=smollm2_path.name, dtype=torch.float32
    )
    expected = model.state_dict()
    reader = opened(smollm2_path)
    assert set(reader.tensors()) == set(expected) - {"lm_head.weight"}
    for name in reader.tensors():
        assert torch.equal(reader.read(name), expected[name]), name


def test_the_default_model_has_the_config_of_transformers(smollm2_path: Path) -> None:
    ours = AutoConfig.for_model(**GGUFFormat().config(smollm2_path)).to_dict()
    theirs = AutoConfig.from_pretrained(smollm2_path.parent, gguf_file=smollm2_path.name).to_dict()
    for name in (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "rms_norm_eps",
        "max_position_embeddings",
        "vocab_size",
        "tie_word_embeddings",
        "attention_bias",
        "hidden_act",
        "bos_token_id",
    ):
        assert ours[name] == theirs[name], name
    assert ours["rope_parameters"]["rope_theta"] == theirs["rope_parameters"]["rope_theta"]


@pytest.mark.parametrize("kind", FAMILIES)
def test_the_config_names_the_family_and_its_sizes(gguf_file: GGUFWriter, kind: str) -> None:
    config = GGUFFormat().config(gguf_file(weights(**FAMILIES[kind]), kind=kind))
    assert config is not None
    assert config["architectures"] == [f"{kind.capitalize()}ForCausalLM"]
    assert (config["vocab_size"], config["head_dim"], config["hidden_size"]) == (
        VOCAB,
        HEAD,
        HIDDEN,
    )
    assert config["tie_word_embeddings"] is True
    assert config["attention_bias"] is (kind == "qwen2")


@pytest.mark.parametrize(
    ("stored", "dtype"), [("F32", "float32"), ("F16", "float16"), ("Q8_0", "bfloat16")]
)
def test_the_dtype_is_that_of_the_weights(gguf_file: GGUFWriter, stored: str, dtype: str) -> None:
    assert GGUFFormat().config(gguf_file(weights(), stored=stored))["torch_dtype"] == dtype


def test_a_head_of_its_own_is_not_tied(gguf_file: GGUFWriter) -> None:
    tensors = weights() | {"lm_head.weight": np.ones((VOCAB, HIDDEN), np.float32)}
    path = gguf_file(tensors)
    assert GGUFFormat().config(path)["tie_word_embeddings"] is False
    assert "lm_head.weight" in opened(path).tensors()


def test_all_ends_of_a_turn_are_end_tokens(gguf_file: GGUFWriter) -> None:
    names = {"eos": 5, "eot": 7, "eom": 5}
    values = {f"tokenizer.ggml.{name}_token_id": number for name, number in names.items()}
    assert GGUFFormat().config(gguf_file(weights(), values=values))["eos_token_id"] == [5, 7]
    assert GGUFFormat().config(gguf_file(weights()))["eos_token_id"] is None


def llama3_factors(factor: float, original: int) -> np.ndarray:
    """The divisors of the frequencies, from transformers' rope."""
    rope = {
        "rope_type": "llama3",
        "rope_theta": 500000.0,
        "factor": factor,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": original,
    }
    config = AutoConfig.for_model("llama", head_dim=128, rope_parameters=rope)
    frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    plain = 1 / 500000.0 ** (torch.arange(0, 128, 2, dtype=torch.float32) / 128)
    return (plain / frequencies).numpy()


@pytest.mark.parametrize(("factor", "original"), [(8.0, 8192), (32.0, 8192), (4.0, 32768)])
def test_a_table_of_rope_factors_becomes_llama3_scaling(
    gguf_file: GGUFWriter, factor: float, original: int
) -> None:
    values = SCALES | {"llama.attention.key_length": 128}
    extra = {"rope_freqs.weight": llama3_factors(factor, original)}
    path = gguf_file(weights(), values=values, extra=extra)
    scaling = GGUFFormat().config(path)["rope_scaling"]
    assert scaling == {
        "rope_type": "llama3",
        "factor": pytest.approx(factor, rel=1e-5),
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": original,
    }
    assert "rope_freqs.weight" not in opened(path).tensors()


def test_a_table_of_other_rope_factors_is_refused(gguf_file: GGUFWriter) -> None:
    extra = {"rope_freqs.weight": np.linspace(1, 3, HEAD // 2, dtype=np.float32)}
    path = gguf_file(weights(), values=SCALES, extra=extra)
    with pytest.raises(ModelError, match=r"rope_freqs\.weight are not those of Llama 3's"):
        GGUFFormat().config(path)


def test_rope_scaling_by_metadata_is_kept(gguf_file: GGUFWriter) -> None:
    values = {
        "qwen2.rope.scaling.type": "yarn",
        "qwen2.rope.scaling.factor": 4.0,
        "qwen2.rope.scaling.original_context_length": 32768,
    }
    path = gguf_file(weights(biases=True), kind="qwen2", values=values)
    assert GGUFFormat().config(path)["rope_scaling"] == {
        "rope_type": "yarn",
        "factor": 4.0,
        "original_max_position_embeddings": 32768,
    }


@pytest.mark.parametrize(
    ("kind", "values", "fault"),
    [
        ("mamba", {}, r"architecture 'mamba'; known in GGUF: llama, qwen2, qwen3"),
        ("llama", {"llama.block_count": 0}, r"llama\.block_count is 0, expected a positive"),
        ("llama", {"llama.attention.head_count": [4, 4]}, r"head_count is \[4, 4\], expected"),
        ("llama", {"llama.context_length": "long"}, "context_length is 'long', expected"),
        ("llama", {"split.count": 3}, "is one of 3 parts; join them"),
    ],
)
def test_metadata_that_can_not_be_served_is_one_line(
    gguf_file: GGUFWriter, kind: str, values: dict[str, Any], fault: str
) -> None:
    path = gguf_file({} if kind == "mamba" else weights(), kind=kind, values=values)
    with pytest.raises(ModelError, match=fault) as caught:
        GGUFFormat().config(path)
    assert "\n" not in str(caught.value)


def test_a_missing_value_is_named(gguf_file: GGUFWriter) -> None:
    path = gguf_file(weights(), values={"llama.embedding_length": None})
    data = path.read_bytes()
    path.write_bytes(data.replace(b"llama.embedding_length", b"llama.embedding_lengtX"))
    with pytest.raises(ModelError, match=r"has no metadata llama\.embedding_length"):
        GGUFFormat().config(path)


def test_a_tensor_of_another_model_is_refused_by_name(gguf_file: GGUFWriter) -> None:
    extra = {"blk.0.ssm_in.weight": np.ones((2, 2), np.float32)}
    with pytest.raises(ModelError, match=r"the tensor blk\.0\.ssm_in\.weight belongs to no model"):
        opened(gguf_file(weights(), extra=extra))


def test_a_file_that_was_cut_off_is_refused_when_it_is_opened(gguf_file: GGUFWriter) -> None:
    path = gguf_file(weights())
    data = path.read_bytes()
    path.write_bytes(data[: len(data) - 4096])
    with pytest.raises(ModelError, match=r"is cut off: .* ends beyond the file"):
        opened(path)


def test_an_unknown_type_is_refused_by_number(gguf_file: GGUFWriter) -> None:
    path = gguf_file({"model.norm.weight": np.ones(HIDDEN, np.float32)})
    head = struct.pack("<IQI", 1, HIDDEN, 0)
    data = path.read_bytes()
    assert data.count(head) == 1
    path.write_bytes(data.replace(head, struct.pack("<IQI", 1, HIDDEN, 77)))
    with pytest.raises(ModelError, match=r"output_norm\.weight has the unknown type 77"):
        opened(path)


def test_a_tensor_that_is_not_there_is_a_key_error(gguf_file: GGUFWriter) -> None:
    with pytest.raises(KeyError, match=r"lm_head\.weight"):
        opened(gguf_file(weights())).read("lm_head.weight")


def test_tensors_outlive_the_reader(gguf_file: GGUFWriter) -> None:
    tensors = weights()
    reader = opened(gguf_file(tensors))
    norm = reader.read("model.norm.weight")
    reader.close()
    del reader
    assert math.isclose(float(norm.sum()), float(tensors["model.norm.weight"].sum()), rel_tol=1e-5)
