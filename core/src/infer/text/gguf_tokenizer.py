"""A GGUF file's tokenizer as the files that ``tokenizers`` reads, made once and kept."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infer_plugin_api.errors import ModelError
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

_CONTROL, _USER_DEFINED = 3, 4
_SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
_FORMAT = "1"

_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,%d}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_SPLITS = {"llama-bpe": _WORDS % 3, "llama3": _WORDS % 3, "qwen2": _WORDS % 1}
_KNOWN = ("smollm", "gpt-2", "default", *_SPLITS)


def convert(metadata: Mapping[str, Any], folder: Path) -> Path:
    """Write tokenizer files for a GGUF's metadata into *folder*, unless they are there.

    Safe when several processes do it at once. Raises ModelError for a tokenizer it can't express.
    """
    marker = folder / "format"
    if marker.is_file() and marker.read_text() == _FORMAT:
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=folder.name, dir=folder.parent))
    try:
        build(metadata).save(str(draft / "tokenizer.json"))
        (draft / "tokenizer_config.json").write_text(json.dumps(_settings(metadata)))
        (draft / "format").write_text(_FORMAT)
        shutil.rmtree(folder, ignore_errors=True)
        os.replace(draft, folder)
    except OSError:
        # Another process was first: its files are as good as ours.
        if not (marker.is_file() and marker.read_text() == _FORMAT):
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def build(metadata: Mapping[str, Any]) -> Tokenizer:
    """Return the tokenizer of a GGUF's metadata."""
    kind = metadata.get("tokenizer.ggml.model")
    if kind == "gpt2":
        tokenizer = _byte_level(metadata)
    elif kind == "llama":
        tokenizer = _sentencepiece(metadata)
    else:
        raise ModelError(f"tokenizer.ggml.model {kind!r} is not supported; known: gpt2, llama")
    _add_tokens(tokenizer, metadata)
    _add_template(tokenizer, metadata)
    return tokenizer


def _byte_level(metadata: Mapping[str, Any]) -> Tokenizer:
    """Byte-level BPE (GPT-2) with the pre-tokenizer that ``tokenizer.ggml.pre`` names."""
    pre = metadata.get("tokenizer.ggml.pre", "default")
    if pre not in _KNOWN:
        raise ModelError(
            f"tokenizer.ggml.pre {pre!r} is not supported; known: {', '.join(sorted(_KNOWN))}"
        )
    vocab = {token: index for index, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    ignore = pre in ("llama-bpe", "llama3")
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges, ignore_merges=ignore))
    if pre in _SPLITS:
        split = pre_tokenizers.Split(Regex(_SPLITS[pre]), "isolated")
        whole = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, whole])
    else:
        words = pre_tokenizers.ByteLevel(add_prefix_space=False)
        digits = pre_tokenizers.Digits(individual_digits=True)
        tokenizer.pre_tokenizer = (
            pre_tokenizers.Sequence([digits, words]) if pre == "smollm" else words
        )
    if pre == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(metadata: Mapping[str, Any]) -> Tokenizer:
    """SentencePiece BPE: merges follow from the scores, unknown characters become bytes."""
    tokens = metadata["tokenizer.ggml.tokens"]
    scores = metadata["tokenizer.ggml.scores"]
    vocab = {token: index for index, token in enumerate(tokens)}
    unknown = tokens[metadata.get("tokenizer.ggml.unknown_token_id", 0)]
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=_merges(vocab, scores),
            unk_token=unknown,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", _SPACE_MARK)]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(_SPACE_MARK))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    return tokenizer


def _merges(vocab: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every split of a token into two tokens, in the order in which the token is preferred."""
    found = []
    for token, index in vocab.items():
        for cut in range(1, len(token)):
            left, right = token[:cut], token[cut:]
            if left in vocab and right in vocab:
                found.append((-scores[index], vocab[left], vocab[right], left, right))
    return [(left, right) for *_, left, right in sorted(found)]


def _add_tokens(tokenizer: Tokenizer, metadata: Mapping[str, Any]) -> None:
    tokens = metadata["tokenizer.ggml.tokens"]
    kinds = metadata.get("tokenizer.ggml.token_type") or []
    added = [
        AddedToken(token, special=kind == _CONTROL, normalized=False)
        for token, kind in zip(tokens, kinds, strict=False)
        if kind in (_CONTROL, _USER_DEFINED)
    ]
    tokenizer.add_tokens(added)


def _add_template(tokenizer: Tokenizer, metadata: Mapping[str, Any]) -> None:
    """Add beginning and end tokens to what is encoded, as the file asks."""
    tokens = metadata["tokenizer.ggml.tokens"]
    spm = metadata.get("tokenizer.ggml.model") == "llama"
    parts, special = ["$A"], []
    for name, default in (("bos", spm), ("eos", False)):
        token_id = metadata.get(f"tokenizer.ggml.{name}_token_id")
        if token_id is None or not metadata.get(f"tokenizer.ggml.add_{name}_token", default):
            continue
        token = tokens[token_id]
        special.append((token, token_id))
        parts = [token, *parts] if name == "bos" else [*parts, token]
    if special:
        pair = [*parts, *(f"{part}:1" if part != "$A" else "$B:1" for part in parts)]
        tokenizer.post_processor = processors.TemplateProcessing(
            single=" ".join(parts), pair=" ".join(pair), special_tokens=special
        )


def _settings(metadata: Mapping[str, Any]) -> dict[str, Any]:
    tokens = metadata["tokenizer.ggml.tokens"]
    settings = {
        f"{name}_token": tokens[token_id]
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
        if (token_id := metadata.get(f"tokenizer.ggml.{key}_token_id")) is not None
        and 0 <= token_id < len(tokens)
    }
    if template := metadata.get("tokenizer.chat_template"):
        settings["chat_template"] = template
    return settings
