"""Tiny random checkpoints in Hugging Face's format, complete enough to be served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chain_model import CHAT_TEMPLATE, SPECIAL_TOKENS, byte_characters, byte_level_tokenizer

if TYPE_CHECKING:
    import torch
    from transformers import PreTrainedModel

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
_SHARD_BYTES = "100KB"


def tiny_model(
    folder: Path,
    family: str = "llama",
    *,
    seed: int = 0,
    std: float = 0.25,
    sharded: bool = False,
    dtype: str = "float32",
    **config: Any,
) -> Path:
    """Write a random model with a tokenizer and a chat template to *folder*; return it.

    Three layers, 4 query and 2 key-value heads of 16, hidden size 64, 320 tokens: 256 bytes, the
    special tokens and spare ids. *config* replaces fields of the Hugging Face config. No token
    ends the text unless *config* names one.

    std: of all weights; with transformers' own 0.02 the output hardly depends on the context, and
    mistakes in caches and masks stay invisible. sharded: several files with an index.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    fields: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 64,
        "intermediate_size": 96,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "max_position_embeddings": 512,
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    fields.update(config)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **fields))
    _randomize(model, std, torch.Generator().manual_seed(seed))
    model.to(getattr(torch, dtype)).save_pretrained(
        folder, max_shard_size=_SHARD_BYTES if sharded else "1GB"
    )
    write_tokenizer(folder, fields["vocab_size"])
    return folder


def _randomize(model: PreTrainedModel, std: float, generator: torch.Generator) -> None:
    """Give norms and biases values of their own too, as a mistake in those must show."""
    import torch

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(0, std, generator=generator)
            if "norm" in name:
                parameter.add_(1.0)


def write_tokenizer(folder: Path, vocab_size: int) -> None:
    """Write a byte-level tokenizer of *vocab_size* tokens and a chat template."""
    vocabulary = {character: byte for byte, character in byte_characters().items()}
    vocabulary |= {token: 256 + place for place, token in enumerate(SPECIAL_TOKENS)}
    vocabulary |= {f"<|spare{i}|>": i for i in range(len(vocabulary), vocab_size)}
    byte_level_tokenizer(vocabulary, SPECIAL_TOKENS).save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": SPECIAL_TOKENS[0],
        "bos_token": None,
        "model_max_length": 512,
        "clean_up_tokenization_spaces": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))
