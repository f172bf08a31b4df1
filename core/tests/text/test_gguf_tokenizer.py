"""Tokenizers from GGUF metadata: the ids of transformers, and of SentencePiece's own rule."""

from __future__ import annotations

import itertools
import json
import pydoc_data.topics
import subprocess
import sys
import sysconfig
import time
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer
from transformers.integrations.gguf import convert_gguf_tokenizer

from infer.text.chat import load_template
from infer.text.gguf import read_head
from infer.text.gguf_splits import pre_tokenizer
from infer.text.gguf_tokenizer import build, convert, tokenizer_folder
from infer.text.token_bytes import SPACE_MARK, byte_alphabet
from infer.text.tokenizer import Tokenizer
from infer_plugin_api.errors import ModelError

Metadata = dict[str, Any]
DIGITS = frozenset("0123456789")

TALK = [
    {"role": "user", "content": "Wie heißt du? 🙂"},
    {"role": "assistant", "content": "SmolLM"},
    {"role": "user", "content": "2+2=?"},
]


def corpus() -> list[str]:
    """Prose, code, numbers, every script of the basic plane, and special tokens in text."""
    code = sorted(Path(sysconfig.get_path("stdlib")).glob("[a-c]*.py"))[:20]
    planes = [
        "".join(chr(c) for c in range(begin, begin + 64) if unicodedata.category(chr(c)) != "Cs")
        for begin in range(0, 0x10000, 64)
    ]
    odd = [
        "",
        " ",
        "  two  spaces ",
        "\n\n\t\r\n x",
        "don't I'LL we've 'S",
        "1234567890 3.14 ١٢٣ ½ Ⅷ",
        "🙂👩🏽‍🚀🇩🇪 é é ﬁ",
        "<|im_start|>user\nHi<|im_end|>\n<|endoftext|><|im_end",
        " <|im_end|> a",
        "<repo_name>x<file_sep>y",
        "x" * 3000,
        "\u200b\ufeff\u00a0",
    ]
    return [*pydoc_data.topics.topics.values(), *(path.read_text() for path in code), *planes, *odd]


@pytest.fixture(scope="module")
def theirs(smollm2_path: Path) -> Any:
    return AutoTokenizer.from_pretrained(smollm2_path.parent, gguf_file=smollm2_path.name)


def test_smollm2_has_the_ids_of_transformers(smollm2_tokenizer: Tokenizer, theirs: Any) -> None:
    """With the digits cut first, as the file says (`smollm`) and transformers leaves out.

    Without that, transformers differs where more than one space, or a line's end, is before a
    digit. That no token joins a digit to anything shows that the vocabulary was made with the cut.
    """
    tokens = map(smollm2_tokenizer.token_text, range(smollm2_tokenizer.vocab_size))
    assert not [token for token in tokens if len(token) > 1 and not DIGITS.isdisjoint(token)]
    texts = corpus()
    assert sum(map(len, texts)) > 800_000
    as_it_is = theirs(texts).input_ids
    library = theirs.backend_tokenizer
    words = pre_tokenizers.ByteLevel(add_prefix_space=False)
    with pytest.MonkeyPatch.context() as patch:
        digits = pre_tokenizers.Digits(individual_digits=True)
        patch.setattr(library, "pre_tokenizer", pre_tokenizers.Sequence([digits, words]))
        with_digits = theirs(texts).input_ids
    for text, expected, plain in zip(texts, with_digits, as_it_is, strict=True):
        ids = smollm2_tokenizer.encode(text)
        assert ids == expected, text[:100]
        assert ids == plain or has_spaces_before_a_digit(text), text[:100]


def has_spaces_before_a_digit(text: str) -> bool:
    """A single space before an ASCII digit makes no difference, other spaces may."""
    return any(
        char.isnumeric()
        and before.isspace()
        and (before != " " or first.isspace() or not char.isascii())
        for first, before, char in zip(f"x{text}", text, text[1:], strict=False)
    )


def test_smollm2_has_the_chat_prompts_of_transformers(
    smollm2_folder: Path, smollm2_tokenizer: Tokenizer, theirs: Any
) -> None:
    template = load_template(smollm2_folder, smollm2_tokenizer, None)
    assert template is not None
    for go in (False, True):
        text = template.render(TALK, add_generation_prompt=go)
        assert text == theirs.apply_chat_template(TALK, tokenize=False, add_generation_prompt=go)
        ids = theirs.apply_chat_template(TALK, add_generation_prompt=go, return_dict=False)
        assert smollm2_tokenizer.encode(text, add_special_tokens=False) == ids
    added = theirs.added_tokens_decoder.items()
    assert smollm2_tokenizer.special_ids == {index for index, token in added if token.special}


@pytest.fixture(scope="module")
def metadata(smollm2_path: Path) -> Metadata:
    return read_head(smollm2_path).metadata


@pytest.mark.parametrize("pre", ["llama-bpe", "qwen2", "gpt-2", "smaug-bpe", "deepseek-r1-qwen"])
def test_other_pre_tokenizers_have_the_ids_of_transformers(metadata: Metadata, pre: str) -> None:
    """Over SmolLM2's vocabulary; the composed forms that Qwen brings text to are another matter."""
    tokenizer = build(metadata | {"tokenizer.ggml.pre": pre})
    theirs, _ = convert_gguf_tokenizer(
        "llama",
        {
            "tokenizer_type": "gpt2",
            "pre_tokenizer_type": pre,
            "tokens": metadata["tokenizer.ggml.tokens"],
            "merges": metadata["tokenizer.ggml.merges"],
            "token_type": metadata["tokenizer.ggml.token_type"],
        },
    )
    for text in map(composed, corpus()):
        expected = theirs.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text, add_special_tokens=False).ids == expected, text[:100]


def composed(text: str) -> str:
    return unicodedata.normalize("NFC", text)


def pieces(pre: str, text: str) -> list[str]:
    names = byte_alphabet()
    cut = pre_tokenizer(pre).pre_tokenize_str(text)
    return [bytes(names[char] for char in piece).decode() for piece, _ in cut]


@pytest.mark.parametrize(
    ("pre", "expected"),
    [
        ("default", ["Hello", ",", " world", "!", " ", "123", "45", " x", "+=", "y", "'", "s"]),
        ("gpt-2", ["Hello", ",", " world", "!", " 12345", " x", "+=", "y", "'s"]),
        ("smollm", ["Hello", ",", " world", "!", " ", *"12345", " x", "+=", "y", "'s"]),
        ("llama-bpe", ["Hello", ",", " world", "!", " ", "123", "45", " x", "+=", "y", "'s"]),
        ("qwen2", ["Hello", ",", " world", "!", " ", *"12345", " x", "+=", "y", "'s"]),
    ],
)
def test_text_is_cut_as_the_file_says(pre: str, expected: list[str]) -> None:
    assert pieces(pre, "Hello, world! 12345 x+=y's") == expected


def test_an_unknown_pre_tokenizer_is_refused_by_name(metadata: Metadata) -> None:
    with pytest.raises(ModelError, match=r"pre-tokenizer 'tekken-9' .*known: .*llama-bpe"):
        build(metadata | {"tokenizer.ggml.pre": "tekken-9"})


def test_an_unknown_kind_of_tokenizer_is_refused_by_name(metadata: Metadata) -> None:
    with pytest.raises(ModelError, match=r"the tokenizer 'rwkv' .*known: gpt2, llama"):
        build(metadata | {"tokenizer.ggml.model": "rwkv"})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"tokenizer.ggml.merges": None}, "the GGUF file's tokenizer is broken"),
        ({"tokenizer.ggml.bos_token_id": 1 << 20, "tokenizer.ggml.add_bos_token": True}, "broken"),
    ],
)
def test_a_broken_vocabulary_is_one_line(metadata: Metadata, changes: Metadata, fault: str) -> None:
    with pytest.raises(ModelError, match=fault):
        build(metadata | changes)


def test_a_missing_vocabulary_is_named(metadata: Metadata) -> None:
    rest = {key: value for key, value in metadata.items() if key != "tokenizer.ggml.tokens"}
    with pytest.raises(ModelError, match=r"no metadata tokenizer\.ggml\.tokens"):
        build(rest)


def sentencepiece_ids(metadata: Metadata, text: str) -> list[int]:
    """SentencePiece's rule: join the neighbours that make the best token, the leftmost first."""
    tokens, scores = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.scores"]
    ids = {token: index for index, token in enumerate(tokens)}
    parts = list(SPACE_MARK + text.replace(" ", SPACE_MARK)) if text else []
    while True:
        joined = [
            (-scores[ids[left + right]], place)
            for place, (left, right) in enumerate(itertools.pairwise(parts))
            if left + right in ids
        ]
        if not joined:
            break
        _, place = min(joined)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    found: list[int] = []
    for part in parts:
        found += [ids[part]] if part in ids else [3 + byte for byte in part.encode()]
    return found


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet="the cat's onmd🙂é", max_size=40))
def test_sentencepiece_vocabularies_follow_the_scores(
    sentencepiece_metadata: Metadata, sentencepiece_tokenizer: Tokenizer, text: str
) -> None:
    ids = sentencepiece_tokenizer.encode(text)
    assert ids == [1, *sentencepiece_ids(sentencepiece_metadata, text)]


def test_a_users_token_is_matched_whole_and_is_not_special(
    sentencepiece_tokenizer: Tokenizer,
) -> None:
    ids = sentencepiece_tokenizer.encode("the<mine></s>", add_special_tokens=False)
    assert sentencepiece_tokenizer.decode(ids) == "the<mine>"
    assert sentencepiece_tokenizer.decode(ids, skip_special_tokens=False) == "the<mine></s>"


@pytest.mark.parametrize("prefix", [True, False])
def test_the_space_in_front_of_a_text_is_the_files_choice(
    sentencepiece_metadata: Metadata, tmp_path: Path, prefix: bool
) -> None:
    values = sentencepiece_metadata | {"tokenizer.ggml.add_space_prefix": prefix}
    tokenizer = Tokenizer.load(convert(values, tmp_path / "tokenizer"))
    ids = tokenizer.encode("cat", add_special_tokens=False)
    assert b"".join(map(tokenizer.token_bytes, ids)) == (b" cat" if prefix else b"cat")
    assert tokenizer.decode(ids) == "cat"
    assert tokenizer.decode(tokenizer.encode(" cat")) == " cat"


@pytest.mark.parametrize(
    ("values", "first", "last"),
    [
        ({}, [], []),
        ({"tokenizer.ggml.add_bos_token": True}, [1], []),
        ({"tokenizer.ggml.add_eos_token": True}, [], [2]),
        ({"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": None}, [1], []),
        ({"tokenizer.ggml.pre": "llama-bpe", "tokenizer.ggml.add_bos_token": False}, [], []),
    ],
)
def test_beginning_and_end_tokens_are_added_as_the_file_asks(
    metadata: Metadata, values: Metadata, first: list[int], last: list[int]
) -> None:
    merged = {key: value for key, value in (metadata | values).items() if value is not None}
    tokenizer = build(merged)
    plain = tokenizer.encode("Hello", add_special_tokens=False).ids
    assert tokenizer.encode("Hello").ids == [*first, *plain, *last]


def test_named_chat_templates_are_kept(metadata: Metadata, tmp_path: Path) -> None:
    values = metadata | {"tokenizer.chat_template.tool_use": "{{ tools | length }}"}
    folder = convert(values, tmp_path / "tokenizer")
    template = load_template(folder, Tokenizer.load(folder), None)
    assert template is not None
    assert template.render(TALK, tools=[{}, {}]) == "2"
    assert "Wie heißt du?" in template.render(TALK)


def test_a_conversion_is_made_once(metadata: Metadata, tmp_path: Path) -> None:
    folder = tokenizer_folder(tmp_path, "f" * 64)
    convert(metadata, folder)
    before = {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}
    assert convert({}, folder) == folder
    assert {path.name: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    assert set(before) == {"tokenizer.json", "tokenizer_config.json"}
    assert list(folder.parent.iterdir()) == [folder]


CONVERT_AT_ONCE = """
import sys, time
from pathlib import Path
from infer.text.gguf import read_head
from infer.text.gguf_tokenizer import convert
from infer.text.tokenizer import Tokenizer

model, folder, start = Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3])
metadata = read_head(model).metadata
time.sleep(max(0.0, start - time.time()))
print(Tokenizer.load(convert(metadata, folder)).encode("the cat"))
"""


@pytest.mark.timeout(120)
def test_processes_may_convert_at_the_same_time(smollm2_path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tokenizers" / "model"
    arguments = [str(smollm2_path), str(folder), str(time.time() + 3)]
    command = [sys.executable, "-c", CONVERT_AT_ONCE, *arguments]
    workers = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    told = [worker.communicate(timeout=100) for worker in workers]
    assert all(worker.returncode == 0 for worker in workers), told
    assert {out for out, _ in told} == {"[1195, 2644]\n"}
    assert list(folder.parent.iterdir()) == [folder]


def test_a_cache_that_is_a_file_is_named(metadata: Metadata, tmp_path: Path) -> None:
    (tmp_path / "tokenizers").write_text(json.dumps({}))
    with pytest.raises(ModelError, match="INFER_CACHE_DIR names another cache folder"):
        convert(metadata, tmp_path / "tokenizers" / "x")
