"""Tokenizers of every kind of vocabulary, and the small SentencePiece one as GGUF has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer as Backend
from tokenizers import decoders, models, pre_tokenizers, trainers

from infer.text.gguf import read_head
from infer.text.gguf_tokenizer import convert
from infer.text.tokenizer import Tokenizer
from tests.chain_model import chain_model

WORDS = "the cat sat on the mat and the dog ate the other cat's thin hat while the man sang "


@pytest.fixture(scope="session")
def smollm2_folder(smollm2_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer") / "smollm2"
    return convert(read_head(smollm2_path).metadata, folder)


@pytest.fixture(scope="session")
def smollm2_tokenizer(smollm2_folder: Path) -> Tokenizer:
    return Tokenizer.load(smollm2_folder)


@pytest.fixture(scope="session")
def chain_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return chain_model("emoji", tmp_path_factory.mktemp("chain"))


@pytest.fixture(scope="session")
def chain_tokenizer(chain_folder: Path) -> Tokenizer:
    return Tokenizer.load(chain_folder)


@pytest.fixture(scope="session")
def sentencepiece_metadata() -> dict[str, Any]:
    """A Llama 2 kind of vocabulary: controls, bytes, then learned pieces, best score first."""
    trained = Backend(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trained.decoder = decoders.Metaspace()
    trained.train_from_iterator([WORDS] * 4, trainers.BpeTrainer(vocab_size=120))
    pieces = sorted(trained.get_vocab(), key=trained.get_vocab().__getitem__)
    tokens = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *pieces,
        "<mine>",
    ]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.scores": [0.0] * 259
        + [-float(rank) for rank in range(len(pieces))]
        + [0.0],
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * len(pieces), 4],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }


@pytest.fixture(scope="session")
def sentencepiece_tokenizer(
    sentencepiece_metadata: dict[str, Any], tmp_path_factory: pytest.TempPathFactory
) -> Tokenizer:
    folder = tmp_path_factory.mktemp("tokenizer") / "sentencepiece"
    return Tokenizer.load(convert(sentencepiece_metadata, folder))


@pytest.fixture(params=["smollm2", "chain", "sentencepiece"])
def any_tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    """A byte-level vocabulary with merges, one without, and one with byte fallback."""
    tokenizer: Tokenizer = request.getfixturevalue(f"{request.param}_tokenizer")
    return tokenizer
