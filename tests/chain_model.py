"""Real Llama checkpoints whose greedy output is a script that the test chooses.

Attention and MLP outputs are exactly zero and embeddings are one-hot, so the logits depend on the
last token only: a first-order chain. Every token that is not in the script leads to its first
token, the last one to the end of sequence (or back to the first). Any prompt makes such a model
say its script. They serve tests of the API, streaming and stops; they prove nothing about the KV
cache or masks, which can't change what they say.

A script is a JSON file in ``chain_specs``::

    {"chunks": ["text", {"hex": "f09f"}, {"special": "<tool_call>"}],   one token each, distinct
     "loop": false,                                       go round instead of ending
     "branch": {"0": [[1, 0.75], ["eos", 0.25]]},         exact next-token probabilities by chunk
                                                          ("start": after any other token)
     "eos": 256, "generation_config": {}, "chat_template": null}
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SPECS = Path(__file__).with_name("chain_specs")
SIZE = 512
"""Hidden size and vocabulary: 256 bytes, 4 special tokens and room for about 250 chunks."""

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|go|>")
END_OF_TEXT = 256
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<|go|>{% endif %}"
)
_LAYERS, _HEADS, _KV_HEADS, _HEAD_SIZE, _INNER = 2, 8, 2, 64, 64

Chances = list[tuple[int, float]]


def chain_model(name: str, folder: Path) -> Path:
    """Write the model of ``chain_specs/NAME.json`` to *folder*/NAME and return that path."""
    path = folder / name
    build_chain_model(json.loads((SPECS / f"{name}.json").read_text()), path)
    return path


def build_chain_model(spec: dict[str, Any], folder: Path) -> list[int]:
    """Write a checkpoint for *spec* to *folder*; return the script's token ids."""
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary, added, script = _vocabulary(spec["chunks"])
    tensors = _weights(_transitions(spec, script))
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    _tokenizer(vocabulary, added).save(str(folder / "tokenizer.json"))
    end = spec.get("eos", END_OF_TEXT)
    template = spec.get("chat_template", CHAT_TEMPLATE)
    files = {
        "config.json": _config(end),
        "generation_config.json": {"eos_token_id": end} | spec.get("generation_config", {}),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "eos_token": SPECIAL_TOKENS[0],
            "bos_token": None,
            "model_max_length": 2048,
            "clean_up_tokenization_spaces": False,
        }
        | ({} if template is None else {"chat_template": template}),
    }
    for file, content in files.items():
        (folder / file).write_text(json.dumps(content, indent=1))
    return script


def byte_characters() -> dict[int, str]:
    """Return the printable character that stands for each byte in byte-level vocabularies."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    characters = {byte: chr(byte) for byte in printable}
    others = (byte for byte in range(256) if byte not in characters)
    return characters | {byte: chr(256 + place) for place, byte in enumerate(others)}


def byte_level_tokenizer(vocabulary: dict[str, int], special: tuple[str, ...]) -> Tokenizer:
    """Return a byte-level tokenizer without merges over *vocabulary*."""
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=None))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True) for token in special])
    return tokenizer


def _vocabulary(chunks: list[Any]) -> tuple[dict[str, int], list[str], list[int]]:
    """Return token -> id, the added tokens among them, and the script's ids."""
    characters = byte_characters()
    vocabulary = {character: byte for byte, character in characters.items()}
    vocabulary |= {token: 256 + place for place, token in enumerate(SPECIAL_TOKENS)}
    added: list[str] = []
    script: list[int] = []
    for chunk in chunks:
        if isinstance(chunk, dict) and "special" in chunk:
            token = chunk["special"]
            added.append(token)
        else:
            raw = bytes.fromhex(chunk["hex"]) if isinstance(chunk, dict) else chunk.encode()
            token = "".join(characters[byte] for byte in raw)
        identifier = vocabulary.setdefault(token, len(vocabulary))
        if identifier in script:
            raise ValueError(f"chunk {chunk!r} occurs twice, but the state is the last token")
        script.append(identifier)
    if len(vocabulary) > SIZE:
        raise ValueError(f"{len(chunks)} chunks do not fit a vocabulary of {SIZE}")
    vocabulary |= {f"<|pad{number}|>": number for number in range(len(vocabulary), SIZE)}
    return vocabulary, added, script


def _tokenizer(vocabulary: dict[str, int], added: list[str]) -> Tokenizer:
    tokenizer = byte_level_tokenizer(vocabulary, SPECIAL_TOKENS)
    if added:
        tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in added])
    return tokenizer


def _transitions(spec: dict[str, Any], script: list[int]) -> list[Chances]:
    """Return for each token what may follow it."""
    following: list[Chances] = [[(script[0], 1.0)] for _ in range(SIZE)]
    last = script[0] if spec.get("loop") else END_OF_TEXT
    for token, after in zip(script, [*script[1:], last], strict=True):
        following[token] = [(after, 1.0)]
    for key, options in spec.get("branch", {}).items():
        chances = [(END_OF_TEXT if at == "eos" else script[at], chance) for at, chance in options]
        tokens = set(range(SIZE)) - set(script) if key == "start" else {script[int(key)]}
        for token in tokens:
            following[token] = chances
    return following


def _weights(following: list[Chances]) -> dict[str, np.ndarray]:
    # A normed one-hot vector has the value sqrt(SIZE), and logits are head @ normed.
    scale = math.sqrt(SIZE)
    head = np.zeros((SIZE, SIZE), np.float32)
    for token, chances in enumerate(following):
        for after, chance in chances:
            head[after, token] = (scale + math.log(chance)) / scale
    tensors = {
        "model.embed_tokens.weight": np.eye(SIZE, dtype=np.float32),
        "model.norm.weight": np.ones(SIZE, np.float32),
        "lm_head.weight": head,
    }
    random = np.random.default_rng(0)

    def noise(rows: int, columns: int) -> np.ndarray:
        return random.normal(0, 0.02, (rows, columns)).astype(np.float32)

    query, key = _HEADS * _HEAD_SIZE, _KV_HEADS * _HEAD_SIZE
    for layer in range(_LAYERS):
        tensors |= {
            f"model.layers.{layer}.{name}.weight": tensor
            for name, tensor in {
                "self_attn.q_proj": noise(query, SIZE),
                "self_attn.k_proj": noise(key, SIZE),
                "self_attn.v_proj": noise(key, SIZE),
                "self_attn.o_proj": np.zeros((SIZE, query), np.float32),
                "mlp.gate_proj": noise(_INNER, SIZE),
                "mlp.up_proj": noise(_INNER, SIZE),
                "mlp.down_proj": np.zeros((SIZE, _INNER), np.float32),
                "input_layernorm": np.ones(SIZE, np.float32),
                "post_attention_layernorm": np.ones(SIZE, np.float32),
            }.items()
        }
    return tensors


def _config(end: int | list[int]) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": SIZE,
        "intermediate_size": _INNER,
        "num_hidden_layers": _LAYERS,
        "num_attention_heads": _HEADS,
        "num_key_value_heads": _KV_HEADS,
        "head_dim": _HEAD_SIZE,
        "vocab_size": SIZE,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-8,
        "rope_theta": 10000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": None,
        "eos_token_id": end,
        "torch_dtype": "float32",
    }
