"""A GGUF file's tokenizer as the files that ``tokenizers`` reads, made once and kept."""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    processors,
)

from infer.text.gguf_splits import begins_with_bos, composes, ignores_merges, pre_tokenizer
from infer.text.token_bytes import SPACE_MARK
from infer_plugin_api.errors import ModelError

log = logging.getLogger(__name__)

_CONTROL, _USER_DEFINED = 3, 4
_FORMAT = "2"
_TEMPLATE = "tokenizer.chat_template"
_ROLES = (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))

Metadata = Mapping[str, Any]


def tokenizer_folder(cache: Path, fingerprint: str) -> Path:
    """Return where the tokenizer of a file with that fingerprint is kept below *cache*.

    What is in it never changes: other versions of the conversion have other folders.
    """
    return cache / "tokenizers" / f"{fingerprint[:32]}-{_FORMAT}"


def convert(metadata: Metadata, folder: Path) -> Path:
    """Write tokenizer files for a GGUF's metadata into *folder*, unless it exists.

    Safe when several processes do it at once. Raises ModelError for a tokenizer that can't be
    expressed, or when nothing can be written there.
    """
    if folder.is_dir():
        return folder
    tokenizer = build(metadata)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise _unwritable(folder, error) from error
    try:
        tokenizer.save(str(draft / "tokenizer.json"))
        (draft / "tokenizer_config.json").write_text(json.dumps(_settings(metadata)))
        draft.chmod(0o755)
        os.replace(draft, folder)
    except OSError as error:
        # A folder that is there now comes from a process that was faster, with the same content.
        if not folder.is_dir():
            raise _unwritable(folder, error) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return folder


def _unwritable(folder: Path, error: OSError) -> ModelError:
    return ModelError(
        f"the tokenizer can't be kept in {folder.parent}: {error.strerror}; "
        "INFER_CACHE_DIR names another cache folder"
    )


def build(metadata: Metadata) -> Tokenizer:
    """Return the tokenizer of a GGUF's metadata. Raises ModelError naming what is wrong with it."""
    kind = metadata.get("tokenizer.ggml.model")
    makers = {"gpt2": _byte_level, "llama": _sentencepiece}
    if kind not in makers:
        raise ModelError(
            f"the tokenizer {kind!r} (tokenizer.ggml.model) is not supported; "
            f"known: {', '.join(makers)}"
        )
    try:
        tokenizer = makers[kind](metadata)
        _add_tokens(tokenizer, metadata)
        _add_template(tokenizer, metadata)
    except KeyError as error:
        raise ModelError(f"the GGUF file has no metadata {error.args[0]}") from error
    except (IndexError, TypeError, ValueError) as error:
        raise ModelError(f"the GGUF file's tokenizer is broken: {error}") from error
    return tokenizer


def _pre(metadata: Metadata) -> str:
    return str(metadata.get("tokenizer.ggml.pre") or "default")


def _byte_level(metadata: Metadata) -> Tokenizer:
    """Byte-level BPE (GPT-2) with the pre-tokenizer that ``tokenizer.ggml.pre`` names."""
    name = _pre(metadata)
    if "tokenizer.ggml.pre" not in metadata:
        log.warning("the GGUF file names no pre-tokenizer; it gets 'default', as in llama.cpp")
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    vocab = {token: index for index, token in enumerate(metadata["tokenizer.ggml.tokens"])}
    cutter = pre_tokenizer(name)
    tokenizer = Tokenizer(
        models.BPE(vocab=vocab, merges=merges, ignore_merges=ignores_merges(name))
    )
    tokenizer.pre_tokenizer = cutter
    if composes(name):
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentencepiece(metadata: Metadata) -> Tokenizer:
    """SentencePiece BPE: merges follow from the scores, unknown characters become bytes."""
    tokens = metadata["tokenizer.ggml.tokens"]
    scores = metadata["tokenizer.ggml.scores"]
    vocab = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocab,
            merges=_merges(vocab, scores),
            unk_token=tokens[metadata.get("tokenizer.ggml.unknown_token_id", 0)],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", SPACE_MARK)]
    back = [decoders.Replace(SPACE_MARK, " "), decoders.ByteFallback(), decoders.Fuse()]
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        steps.insert(0, normalizers.Prepend(SPACE_MARK))
        back.append(decoders.Strip(content=" ", left=1))
    tokenizer.normalizer = normalizers.Sequence(steps)
    tokenizer.decoder = decoders.Sequence(back)
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


def _add_tokens(tokenizer: Tokenizer, metadata: Metadata) -> None:
    """Have control tokens and the user's own matched whole, before anything else."""
    tokens = metadata["tokenizer.ggml.tokens"]
    kinds = metadata.get("tokenizer.ggml.token_type") or []
    tokenizer.add_tokens(
        [
            AddedToken(token, special=kind == _CONTROL, normalized=False)
            for token, kind in zip(tokens, kinds, strict=False)
            if kind in (_CONTROL, _USER_DEFINED)
        ]
    )


def _add_template(tokenizer: Tokenizer, metadata: Metadata) -> None:
    """Add beginning and end tokens to what is encoded, as the file asks."""
    tokens = metadata["tokenizer.ggml.tokens"]
    is_sentencepiece = metadata["tokenizer.ggml.model"] == "llama"
    defaults = {"bos": is_sentencepiece or begins_with_bos(_pre(metadata)), "eos": False}
    added = {
        name: (tokens[token_id], token_id)
        for name, default in defaults.items()
        if (token_id := metadata.get(f"tokenizer.ggml.{name}_token_id")) is not None
        and metadata.get(f"tokenizer.ggml.add_{name}_token", default)
    }
    if not added:
        return
    first = [added["bos"][0]] if "bos" in added else []
    last = [added["eos"][0]] if "eos" in added else []
    second = [f"{token}:1" for token in first], [f"{token}:1" for token in last]
    tokenizer.post_processor = processors.TemplateProcessing(
        single=[*first, "$A", *last],
        pair=[*first, "$A", *last, *second[0], "$B:1", *second[1]],
        special_tokens=list(added.values()),
    )


def _settings(metadata: Metadata) -> dict[str, Any]:
    tokens = metadata["tokenizer.ggml.tokens"]
    settings = {
        f"{name}_token": tokens[token_id]
        for name, key in _ROLES
        if (token_id := metadata.get(f"tokenizer.ggml.{key}_token_id")) is not None
        and 0 <= token_id < len(tokens)
    }
    templates = _templates(metadata)
    if list(templates) == ["default"]:
        settings["chat_template"] = templates["default"]
    elif templates:
        settings["chat_template"] = [
            {"name": name, "template": template} for name, template in templates.items()
        ]
    return settings


def _templates(metadata: Metadata) -> dict[str, str]:
    """Return the chat templates by name: the default one, and others like ``tool_use``."""
    named = {
        key.removeprefix(f"{_TEMPLATE}."): value
        for key, value in metadata.items()
        if key.startswith(f"{_TEMPLATE}.")
    }
    return ({"default": metadata[_TEMPLATE]} if metadata.get(_TEMPLATE) else {}) | named
