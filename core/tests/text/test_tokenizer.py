"""Tokenizers of model folders, compared with transformers where it reads the same files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, processors
from tokenizers import Tokenizer as Backend
from transformers import AutoTokenizer

from infer.text.tokenizer import Tokenizer
from infer_plugin_api.errors import ModelError
from infer_plugin_api.sampling import ParameterError


def edited(source: Path, folder: Path, **changes: Any) -> Path:
    """Copy a model's tokenizer with other settings; None removes one."""
    shutil.copytree(source, folder)
    path = folder / "tokenizer_config.json"
    kept = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({name: value for name, value in kept.items() if value is not None}))
    return folder


def with_backend(folder: Path, backend: Backend, **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


@pytest.fixture(scope="module")
def library(smollm2_folder: Path) -> Backend:
    return Backend.from_file(str(smollm2_folder / "tokenizer.json"))


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), skip=st.booleans())
def test_decoding_equals_the_library(
    smollm2_tokenizer: Tokenizer, library: Backend, data: st.DataObject, skip: bool
) -> None:
    ids = data.draw(st.lists(st.integers(0, smollm2_tokenizer.vocab_size - 1), max_size=30))
    expected = library.decode(ids, skip_special_tokens=skip)
    assert smollm2_tokenizer.decode(ids, skip_special_tokens=skip) == expected


def test_the_bytes_of_all_tokens_are_those_of_the_text(any_tokenizer: Tokenizer) -> None:
    text = "Ünï¢ödé 🙂 the cat\n\tsat  on 'it' 123"
    ids = any_tokenizer.encode(text, add_special_tokens=False)
    joined = b"".join(map(any_tokenizer.token_bytes, ids))
    assert joined.decode().removeprefix(" " if text[0] != " " else "") == text


def test_byte_tokens_are_single_bytes(
    chain_tokenizer: Tokenizer, sentencepiece_tokenizer: Tokenizer
) -> None:
    assert [chain_tokenizer.token_bytes(byte) for byte in range(256)] == [
        bytes([byte]) for byte in range(256)
    ]
    assert [sentencepiece_tokenizer.token_bytes(3 + byte) for byte in range(256)] == [
        bytes([byte]) for byte in range(256)
    ]
    assert chain_tokenizer.token_text(0xF0) == "\N{REPLACEMENT CHARACTER}"


def test_an_added_token_has_its_own_bytes_and_not_those_of_the_alphabet(tmp_path: Path) -> None:
    """Its é is a character; in a token of the vocabulary it would name the byte E9."""
    backend = Backend(models.BPE(vocab={"é": 0, "Ġ": 1}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    backend.add_tokens(["<é>"])
    tokenizer = Tokenizer.load(with_backend(tmp_path, backend))
    assert [tokenizer.token_bytes(i) for i in range(3)] == [b"\xe9", b" ", "<é>".encode()]


def test_the_space_before_a_sentencepiece_text_is_no_part_of_it(
    sentencepiece_tokenizer: Tokenizer,
) -> None:
    for text in ("the cat", " the cat", "  x", ""):
        assert sentencepiece_tokenizer.decode(sentencepiece_tokenizer.encode(text)) == text


def test_ids_go_one_beyond_the_highest_token(
    smollm2_tokenizer: Tokenizer, chain_tokenizer: Tokenizer
) -> None:
    assert (smollm2_tokenizer.vocab_size, chain_tokenizer.vocab_size) == (49152, 512)


def test_the_named_tokens_are_found(smollm2_tokenizer: Tokenizer) -> None:
    assert smollm2_tokenizer.bos_id == 1
    assert smollm2_tokenizer.eos_ids == (2,)
    assert smollm2_tokenizer.pad_id == 2
    assert smollm2_tokenizer.special_text() == {
        "bos_token": "<|im_start|>",
        "eos_token": "<|im_end|>",
        "unk_token": "<|endoftext|>",
        "pad_token": "<|im_end|>",
    }


def test_a_tokenizer_without_named_tokens_has_none(tmp_path: Path, chain_folder: Path) -> None:
    folder = edited(chain_folder, tmp_path / "bare", eos_token=None)
    tokenizer = Tokenizer.load(folder)
    assert (tokenizer.bos_id, tokenizer.eos_ids, tokenizer.special_text()) == (None, (), {})


@pytest.mark.parametrize("template", ["none", "bos", "eos"])
@pytest.mark.parametrize("flags", [{}, {"add_bos_token": True}, {"add_bos_token": False}])
def test_beginning_and_end_tokens_are_those_that_transformers_adds(
    tmp_path: Path, chain_folder: Path, template: str, flags: dict[str, bool]
) -> None:
    backend = Backend.from_file(str(chain_folder / "tokenizer.json"))
    if template != "none":
        pattern = {"bos": "<|im_start|> $A", "eos": "$A <|im_end|>"}[template]
        backend.post_processor = processors.TemplateProcessing(
            single=pattern, special_tokens=[("<|im_start|>", 257), ("<|im_end|>", 258)]
        )
    folder = with_backend(
        tmp_path / "model",
        backend,
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token="<|im_start|>",
        eos_token="<|im_end|>",
        **flags,
    )
    theirs, ours = AutoTokenizer.from_pretrained(folder), Tokenizer.load(folder)
    for text in ("x", "", "a<|im_end|>b"):
        assert ours.encode(text) == theirs(text).input_ids
        assert ours.encode(text, add_special_tokens=False) == list(text_ids(theirs, text))


def text_ids(theirs: Any, text: str) -> list[int]:
    return list(theirs(text, add_special_tokens=False).input_ids)


def test_special_tokens_come_from_the_map_when_the_settings_are_old(
    tmp_path: Path, chain_folder: Path
) -> None:
    folder = edited(chain_folder, tmp_path / "old")
    (folder / "special_tokens_map.json").write_text(
        json.dumps({"eos_token": {"content": "<|im_end|>", "lstrip": False}, "bos_token": "x"})
    )
    tokenizer = Tokenizer.load(folder)
    assert (tokenizer.eos_ids, tokenizer.bos_id) == ((258,), ord("x"))
    assert AutoTokenizer.from_pretrained(folder).eos_token_id == 258


def test_tokens_that_the_settings_declare_are_matched_whole_as_declared(
    tmp_path: Path, chain_folder: Path
) -> None:
    declared = {
        "300": {"content": "<|pad300|>", "special": True, "normalized": False},
        "301": {"content": "<|pad301|>", "special": False, "normalized": False},
    }
    folder = edited(chain_folder, tmp_path / "declared", added_tokens_decoder=declared)
    ours, theirs = Tokenizer.load(folder), AutoTokenizer.from_pretrained(folder)
    text = "a<|pad300|>b<|pad301|><|pad302|>"
    assert ours.encode(text) == theirs(text).input_ids
    assert ours.encode(text)[:4] == [ord("a"), 300, ord("b"), 301]
    assert ours.special_ids.issuperset({300})
    assert ours.decode([ord("a"), 300, 301]) == "a<|pad301|>"


def test_an_added_token_keeps_its_flags_when_the_settings_name_it(
    tmp_path: Path, chain_folder: Path
) -> None:
    backend = Backend.from_file(str(chain_folder / "tokenizer.json"))
    backend.add_tokens([AddedToken("<|pad310|>", lstrip=True, normalized=False)])
    folder = with_backend(tmp_path / "model", backend, pad_token="<|pad310|>")
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.encode("a  <|pad310|>") == [ord("a"), 310]
    assert 310 in tokenizer.special_ids


def test_a_named_token_that_the_vocabulary_lacks_gets_no_id(
    tmp_path: Path, chain_folder: Path
) -> None:
    folder = edited(chain_folder, tmp_path / "model", pad_token="[PAD]")
    tokenizer = Tokenizer.load(folder)
    assert tokenizer.pad_id is None
    assert max(tokenizer.encode("[PAD]")) < 256


def test_padding_and_truncation_of_the_file_are_not_applied(
    tmp_path: Path, chain_folder: Path
) -> None:
    backend = Backend.from_file(str(chain_folder / "tokenizer.json"))
    backend.enable_truncation(2)
    backend.enable_padding(length=8)
    tokenizer = Tokenizer.load(with_backend(tmp_path / "model", backend))
    assert tokenizer.encode("abc") == list(b"abc")


def test_half_a_surrogate_pair_is_refused_by_name(smollm2_tokenizer: Tokenizer) -> None:
    with pytest.raises(ParameterError, match=r"prompt: it has half a surrogate pair \(U\+D83D\)"):
        smollm2_tokenizer.encode("a\ud83d")


def test_a_sentencepiece_file_alone_is_refused_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(b"\x0a")
    with pytest.raises(ModelError, match=r"no tokenizer\.json: .*SentencePiece tokenizer\.model.*"):
        Tokenizer.load(tmp_path)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no tokenizer\.json: a text model needs one"):
        Tokenizer.load(tmp_path)


@pytest.mark.parametrize("content", ["", "{}", '{"version": "1.0"}', "\x00"])
def test_a_broken_tokenizer_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelError, match="can't be read as a tokenizer") as caught:
        Tokenizer.load(tmp_path)
    assert "\n" not in str(caught.value)


def test_a_broken_configuration_is_refused_by_name(tmp_path: Path, chain_folder: Path) -> None:
    folder = edited(chain_folder, tmp_path / "model")
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(ModelError, match=r"tokenizer_config\.json can't be read as JSON"):
        Tokenizer.load(folder)


def test_a_vocabulary_whose_bytes_are_not_known_is_refused(tmp_path: Path) -> None:
    backend = Backend(models.WordPiece(vocab={"[UNK]": 0, "a": 1}, unk_token="[UNK]"))
    backend.decoder = decoders.WordPiece()
    with pytest.raises(ModelError, match="the decoder WordPiece is not supported"):
        Tokenizer.load(with_backend(tmp_path, backend))
