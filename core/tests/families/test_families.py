"""From a Hugging Face config to a decoder's data, family by family."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from infer.modeling.families.family import DecoderFamily
from infer.modeling.families.hf_config import HFConfig
from infer.modeling.families.llama import Llama
from infer.modeling.families.mistral import Mistral
from infer.modeling.families.qwen2 import Qwen2
from infer.modeling.families.qwen3 import Qwen3
from infer_plugin_api.errors import ModelError
from infer_plugin_api.models import DecoderSpec

FAMILIES: list[type[DecoderFamily]] = [Llama, Mistral, Qwen2, Qwen3]


def config(**changes: Any) -> dict[str, Any]:
    fields = {
        "architectures": ["SomeForCausalLM"],
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 2048,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "dtype": "bfloat16",
    }
    fields.update(changes)
    return {name: value for name, value in fields.items() if value != "absent"}


def spec_of(family: type[DecoderFamily], **changes: Any) -> DecoderSpec:
    return family().spec(HFConfig(config(**changes)))


@pytest.mark.parametrize("family", FAMILIES)
def test_shapes_are_read(family: type[DecoderFamily]) -> None:
    spec = spec_of(family)
    assert (spec.vocab_size, spec.hidden_size, spec.intermediate_size) == (320, 64, 96)
    assert (spec.num_layers, spec.num_heads, spec.num_kv_heads, spec.head_size) == (4, 4, 2, 16)
    assert spec.norm_eps == 1e-5
    assert spec.attention_scale == 0.25
    assert spec.windows == (None,) * 4
    assert spec.activation == "silu"


@pytest.mark.parametrize(
    ("family", "changes", "expected"),
    [
        (Llama, {}, (False, False, False, False)),
        (Llama, {"attention_bias": True}, (True, True, False, False)),
        (Llama, {"mlp_bias": True}, (False, False, True, False)),
        (Mistral, {}, (False, False, False, False)),
        (Qwen2, {}, (True, False, False, False)),
        (Qwen3, {}, (False, False, False, True)),
        (Qwen3, {"attention_bias": True}, (True, True, False, True)),
    ],
)
def test_biases_and_head_norms_are_those_of_the_family(
    family: type[DecoderFamily], changes: dict[str, Any], expected: tuple[bool, ...]
) -> None:
    spec = spec_of(family, **changes)
    assert (spec.qkv_bias, spec.output_bias, spec.mlp_bias, spec.qk_norm) == expected


@pytest.mark.parametrize("tied", [True, False])
def test_tied_embeddings_follow_the_config(tied: bool) -> None:
    assert spec_of(Llama, tie_word_embeddings=tied).tie_embeddings is tied


@pytest.mark.parametrize("missing", [None, "absent"])
def test_optional_fields_have_the_defaults_of_transformers(missing: Any) -> None:
    names = ("tie_word_embeddings", "num_key_value_heads", "head_dim", "rms_norm_eps")
    spec = spec_of(Llama, **dict.fromkeys(names, missing))
    assert spec.tie_embeddings is False
    assert (spec.num_kv_heads, spec.head_size, spec.norm_eps) == (4, 16, 1e-6)
    assert (spec.rope.theta, spec.rope.scaling) == (10000.0, "default")


@pytest.mark.parametrize("head_dim", [8, 32])
def test_a_given_head_dim_wins_over_hidden_size_by_heads(head_dim: int) -> None:
    spec = spec_of(Llama, head_dim=head_dim)
    assert (spec.head_size, spec.rope.rotary_size) == (head_dim, head_dim)
    assert spec.attention_scale == head_dim**-0.5


def test_a_hidden_size_that_heads_do_not_divide_needs_a_head_dim() -> None:
    assert spec_of(Llama, hidden_size=60, num_attention_heads=8, head_dim=16).head_size == 16
    with pytest.raises(ModelError, match=r"hidden_size 60 .* num_attention_heads 8 .* head_dim"):
        spec_of(Llama, hidden_size=60, num_attention_heads=8, head_dim=None)


def test_qwen3_heads_have_128_elements_unless_the_config_says_otherwise() -> None:
    assert spec_of(Qwen3, head_dim="absent").head_size == 128


@pytest.mark.parametrize(
    ("family", "changes", "windows"),
    [
        (Mistral, {"sliding_window": 32}, (32, 32, 32, 32)),
        (Mistral, {"sliding_window": None}, (None,) * 4),
        (Mistral, {"sliding_window": "absent", "max_position_embeddings": 8192}, (4096,) * 4),
        (Mistral, {"sliding_window": 2048}, (None,) * 4),
        (Llama, {"sliding_window": 32}, (None,) * 4),
        (Qwen2, {"sliding_window": 32, "max_window_layers": 1}, (None,) * 4),
        (
            Qwen2,
            {"sliding_window": 32, "use_sliding_window": True, "max_window_layers": 3},
            (None, None, None, 32),
        ),
        (
            Qwen3,
            {
                "sliding_window": 32,
                "use_sliding_window": True,
                "max_window_layers": 4,
                "layer_types": ["sliding_attention", "full_attention"] * 2,
            },
            (32, None, 32, None),
        ),
        (
            Qwen3,
            {
                "sliding_window": 32,
                "use_sliding_window": False,
                "layer_types": ["sliding_attention"] * 4,
            },
            (None,) * 4,
        ),
    ],
)
def test_sliding_windows_layer_by_layer(
    family: type[DecoderFamily], changes: dict[str, Any], windows: tuple[int | None, ...]
) -> None:
    assert spec_of(family, **changes).windows == windows


def test_model_info_tells_the_engine_what_it_plans_with() -> None:
    info = Qwen2().info(
        config(sliding_window=32, use_sliding_window=True, max_window_layers=2, vocab_size=301)
    )
    assert (info.architecture, info.vocab_size, info.max_model_len) == (
        "SomeForCausalLM",
        301,
        2048,
    )
    assert [(kv.kind, kv.window) for kv in info.kv_specs] == [("full", None)] * 2 + [
        ("sliding", 32)
    ] * 2
    assert {(kv.num_kv_heads, kv.head_size, kv.dtype) for kv in info.kv_specs} == {(2, 16, "")}


@pytest.mark.parametrize(
    ("changes", "dtype"),
    [
        ({}, "bfloat16"),
        ({"dtype": "absent", "torch_dtype": "float16"}, "float16"),
        ({"dtype": None, "torch_dtype": "torch.bfloat16"}, "bfloat16"),
        ({"dtype": "absent"}, "float32"),
    ],
)
def test_dtype_is_read_in_both_spellings(changes: dict[str, Any], dtype: str) -> None:
    assert Llama().info(config(**changes)).dtype == dtype


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu', expected one of silu"),
        ({"vocab_size": "absent"}, "has no vocab_size, expected a positive integer"),
        ({"hidden_size": "64"}, "hidden_size is '64', expected a positive integer"),
        ({"num_hidden_layers": 0}, "num_hidden_layers is 0"),
        ({"num_attention_heads": True}, "num_attention_heads is True"),
        ({"num_key_value_heads": 3}, r"num_key_value_heads is 3, .* num_attention_heads \(4\)"),
        ({"head_dim": -16}, "head_dim is -16"),
        ({"rms_norm_eps": "tiny"}, "rms_norm_eps is 'tiny', expected a positive number"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings is 'yes', expected true or false"),
        ({"dtype": "float8_e4m3fn"}, "dtype is 'float8_e4m3fn', expected one of float32"),
        ({"rope_scaling": [1]}, r"rope_scaling is \[1\], expected an object"),
    ],
)
def test_wrong_values_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Llama().info(config(**changes))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"layer_types": ["full_attention"]}, "layer_types .* 4 entries"),
        ({"layer_types": ["chunked_attention"] * 4}, "layer_types .* full_attention or sliding"),
        ({"max_window_layers": "all"}, "max_window_layers is 'all'"),
    ],
)
def test_wrong_window_layers_are_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        spec_of(Qwen2, sliding_window=32, use_sliding_window=True, **changes)


def test_reading_a_config_imports_no_torch() -> None:
    program = (
        "import sys\n"
        "from infer.modeling.families import llama, mistral, qwen2, qwen3\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
