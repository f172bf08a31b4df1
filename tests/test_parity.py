"""Greedy tokens and log-probabilities against Hugging Face transformers, in float32."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, GenerationConfig, PreTrainedModel

from infer import LLM, SamplingParams
from infer.config.errors import UserError
from infer.engine.outputs import RequestOutput
from infer_plugin_api.errors import PluginApiError
from tests.models import tiny_model

TOKENS = 64
GREEDY = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, logprobs=2)
# Below, at and above a block of 16, and longer than every window.
PROMPT_LENGTHS = (1, 16, 45)

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, tied": ("llama", {"tie_word_embeddings": True}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, one kv head": ("llama", {"num_key_value_heads": 1}),
    "llama, as many kv heads": ("llama", {"num_key_value_heads": 4}),
    "llama, head_dim 32": ("llama", {"head_dim": 32}),
    "llama, head_dim 8": ("llama", {"head_dim": 8}),
    "llama, head_dim null": ("llama", {"head_dim": None}),
    "llama, sharded": ("llama", {"sharded": True}),
    "llama, linear rope": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
    ),
    "llama, llama3 rope": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "llama3",
                "rope_theta": 1e4,
                "factor": 4.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 32,
            }
        },
    ),
    "llama, yarn rope": (
        "llama",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 1e4,
                "factor": 4.0,
                "original_max_position_embeddings": 128,
            }
        },
    ),
    "mistral, no window": ("mistral", {"sliding_window": None}),
    "mistral, window 12": ("mistral", {"sliding_window": 12}),
    "qwen2": ("qwen2", {}),
    "qwen2, windows from layer 1": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 20, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {"seed": 3}),
    "qwen3, tied, biases, head_dim 32": (
        "qwen3",
        {
            "seed": 1,
            "std": 0.3,
            "head_dim": 32,
            "tie_word_embeddings": True,
            "attention_bias": True,
        },
    ),
    "qwen3, windows by layer": (
        "qwen3",
        {
            "use_sliding_window": True,
            "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
}

Infer = Callable[..., list[RequestOutput]]


def prompts(lengths: tuple[int, ...] = PROMPT_LENGTHS) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(0, 256, (n,), generator=generator).tolist() for n in lengths]


def answers(path: Path, *, max_tokens: int = TOKENS, **options: Any) -> list[RequestOutput]:
    """Greedy answers of our engine to all prompts, run as one batch."""
    settings = {"dtype": "float32", "kv_cache_memory_bytes": 32 * 2**20, "cpu_threads": 1} | options
    params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, logprobs=2)
    with LLM(str(path), **settings) as llm:
        return llm.generate([{"prompt_token_ids": ids} for ids in prompts()], params)


def generated_by_transformers(model: PreTrainedModel, prompt: list[int], count: int) -> list[int]:
    # A field that is None here would be filled from the model's own settings.
    model.generation_config.eos_token_id = None
    settings = GenerationConfig(do_sample=False, max_new_tokens=count, pad_token_id=0)
    ids = torch.tensor([prompt])
    mask = torch.ones_like(ids)
    out = model.generate(ids, attention_mask=mask, generation_config=settings)
    return out[0, len(prompt) :].tolist()


def assert_logprobs_agree(model: PreTrainedModel, output: RequestOutput) -> None:
    """One forward pass over prompt and answer: each token is the most likely, at the same odds."""
    answer = output.outputs[0]
    ids = output.prompt_token_ids + answer.token_ids
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0, len(output.prompt_token_ids) - 1 : -1]
    expected = torch.log_softmax(logits.float(), dim=-1)
    assert expected.argmax(dim=-1).tolist() == answer.token_ids
    assert answer.logprobs is not None
    values, _ = expected.topk(2)
    for entry, token, best in zip(answer.logprobs, answer.token_ids, values.tolist(), strict=True):
        assert entry.token_id == token
        assert entry.rank == 1
        assert entry.logprob == pytest.approx(best[0], abs=1e-3)
        assert [top.logprob for top in entry.top] == pytest.approx(best, abs=1e-3)


def assert_equals_transformers(
    model: PreTrainedModel, outputs: list[RequestOutput], count: int = TOKENS
) -> None:
    for prompt, output in zip(prompts(), outputs, strict=True):
        assert output.prompt_token_ids == prompt
        assert output.outputs[0].token_ids == generated_by_transformers(model, prompt, count)
        assert output.outputs[0].finish_reason == "length"
        assert_logprobs_agree(model, output)


def reference(path: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)


@pytest.mark.parametrize("variant", VARIANTS)
def test_tiny_models_say_what_transformers_says(variant: str, tmp_path: Path) -> None:
    family, config = VARIANTS[variant]
    path = tiny_model(tmp_path, family, **config)
    outputs = answers(path)
    for output in outputs:
        assert len(set(output.outputs[0].token_ids)) >= 20, "too uniform to show a mistake"
    assert_equals_transformers(reference(path), outputs)


def rewrite(path: Path, change: Callable[[dict[str, torch.Tensor]], Any], **config: Any) -> Path:
    """Change a single-file checkpoint's tensors in place, and fields of its config."""
    tensors = load_file(path / "model.safetensors")
    change(tensors)
    save_file(tensors, path / "model.safetensors", metadata={"format": "pt"})
    fields = json.loads((path / "config.json").read_text()) | config
    (path / "config.json").write_text(json.dumps(fields))
    return path


@pytest.mark.parametrize("stored", [False, True])
def test_a_tied_head_is_the_embedding_whether_or_not_it_is_stored(
    stored: bool, tmp_path: Path
) -> None:
    path = tiny_model(tmp_path, tie_word_embeddings=True)
    expected = reference(path)
    if stored:
        rewrite(path, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"] + 0}))
    assert_equals_transformers(expected, answers(path, max_tokens=20), 20)


def test_a_missing_untied_head_is_an_error_that_names_it(tmp_path: Path) -> None:
    path = rewrite(tiny_model(tmp_path), lambda t: t.pop("lm_head.weight"))
    with pytest.raises((PluginApiError, UserError), match=r"lm_head\.weight"):
        answers(path)


def zeros_beside(path: Path, name: str, prefix: str = "") -> None:
    index = json.loads((path / "model.safetensors.index.json").read_text())
    tensors = {
        key: tensor
        for shard in sorted(set(index["weight_map"].values()))
        for key, tensor in load_file(path / shard).items()
    }
    save_file({prefix + key: torch.zeros_like(t) for key, t in tensors.items()}, path / name)


def zero_copy_in_another_shard(path: Path) -> None:
    places = json.loads((path / "model.safetensors.index.json").read_text())["weight_map"]
    name = "model.layers.0.self_attn.q_proj.weight"
    other = next(shard for shard in sorted(set(places.values())) if shard != places[name])
    tensors = load_file(path / other) | {name: torch.zeros(64, 64)}
    save_file(tensors, path / other, metadata={"format": "pt"})


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: zeros_beside(path, "consolidated.safetensors", "other."),
        lambda path: zeros_beside(path, "model.safetensors"),
        zero_copy_in_another_shard,
    ],
    ids=["other names", "same names in one file", "unindexed copy in a shard"],
)
def test_only_indexed_tensors_count(spoil: Callable[[Path], None], tmp_path: Path) -> None:
    clean = tiny_model(tmp_path / "clean", sharded=True)
    spoiled = tmp_path / "spoiled"
    shutil.copytree(clean, spoiled)
    spoil(spoiled)
    assert_equals_transformers(reference(clean), answers(spoiled, max_tokens=20), 20)


def test_heads_that_do_not_divide_the_hidden_size_follow_head_dim(tmp_path: Path) -> None:
    # transformers refuses such a config, so the oracle has the same heads in a wider model whose
    # extra dimensions are zero: RMS norms then differ by the width, which the weights make up for.
    wide = tiny_model(
        tmp_path / "wide", hidden_size=64, num_attention_heads=8, head_dim=16, rms_norm_eps=1e-12
    )
    narrow = tmp_path / "narrow"
    shutil.copytree(wide, narrow)
    rewrite(wide, lambda t: narrow_to(t, 60, keep_width=True))
    rewrite(narrow, lambda t: narrow_to(t, 60, keep_width=False), hidden_size=60)
    assert_equals_transformers(reference(wide), answers(narrow, max_tokens=20), 20)


def narrow_to(tensors: dict[str, torch.Tensor], size: int, *, keep_width: bool) -> None:
    """Use *size* hidden dimensions, by zeros (rescaling the norms) or by cutting."""
    for name, tensor in tensors.items():
        if "norm" in name:
            kept = tensor[:size] * ((size / len(tensor)) ** 0.5 if keep_width else 1.0)
            full = torch.zeros_like(tensor)
        elif name.endswith(("o_proj.weight", "down_proj.weight")):
            kept, full = tensor[:size], torch.zeros_like(tensor)
        else:
            kept, full = tensor[:, :size], torch.zeros_like(tensor)
        full[tuple(slice(n) for n in kept.shape)] = kept
        tensors[name] = full if keep_width else kept.contiguous()


RAW_PROMPTS = [
    "The capital of France is",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a small village by the sea,",
    "The three laws of thermodynamics state that",
    "1, 1, 2, 3, 5, 8, 13,",
    "Dear Sir or Madam,\n\n",
    "Water boils at 100 degrees",
    "In 1969, the first human",
    "SELECT name, age FROM users WHERE",
    "La capitale de l'Italie est",
    "Photosynthesis is the process by which",
    "import numpy as np\n\n",
    "The quick brown fox",
    "To be, or not to be:",
    "Ingredients:\n- 2 eggs\n- 100 g of flour\n",
    "Q: What is the largest planet?\nA:",
    "<html>\n<head>\n",
    "The opposite of hot is",
    "\n",
    "a",
]
CHAT_PROMPTS = [
    "What is the capital of Japan?",
    "Write a haiku about the sea.",
    "Explain recursion to a child.",
    "List three primary colors.",
    "Who wrote Hamlet?",
    "Translate 'good morning' into Spanish.",
    "What is 12 times 12?",
    "Give me a recipe for pancakes.",
    "Why is the sky blue?",
    "Summarize the plot of Cinderella in two sentences.",
    "What are the planets of the solar system?",
    "Tell me a joke about computers.",
    "How do I boil an egg?",
    "Name five animals that live in Africa.",
    "What does HTTP stand for?",
    "Write a Python function that reverses a string.",
]


def smollm2_answers(path: Path, raw: list[str], chats: list[str]) -> list[RequestOutput]:
    settings = {"dtype": "float32", "kv_cache_memory_bytes": 512 * 2**20}
    with LLM(str(path), **settings) as llm:
        messages = [[{"role": "user", "content": text}] for text in chats]
        return llm.generate(raw, GREEDY) + llm.chat(messages, GREEDY)


def smollm2_reference(path: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    )


def assert_says_what_generate_says(model: PreTrainedModel, outputs: list[RequestOutput]) -> None:
    for output in outputs:
        found = generated_by_transformers(model, output.prompt_token_ids, TOKENS)
        assert output.outputs[0].token_ids == found, output.prompt
        assert len(found) == TOKENS


@pytest.mark.timeout(600)
def test_smollm2_says_what_transformers_says(smollm2_path: Path) -> None:
    outputs = smollm2_answers(smollm2_path, RAW_PROMPTS[:4], CHAT_PROMPTS[:4])
    model = smollm2_reference(smollm2_path)
    for output in outputs:
        # All positions at once; what generate finds one by one is seen here for one.
        assert_logprobs_agree(model, output)
    assert_says_what_generate_says(model, outputs[-1:])


@pytest.mark.acceptance
@pytest.mark.timeout(3000)
def test_smollm2_says_what_generate_says_for_all_prompts(smollm2_path: Path) -> None:
    """Acceptance 2"""
    outputs = smollm2_answers(smollm2_path, RAW_PROMPTS, CHAT_PROMPTS)
    assert len(outputs) >= 32
    model = smollm2_reference(smollm2_path)
    for output in outputs:
        assert_logprobs_agree(model, output)
    assert_says_what_generate_says(model, outputs)
