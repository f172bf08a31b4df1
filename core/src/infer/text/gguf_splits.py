"""How byte-level BPE vocabularies of GGUF files cut text before merging (``tokenizer.ggml.pre``).

A name stands for a list of expressions. Each cuts the pieces that the one before left: a match is
a piece, and so is what lies between two matches.
"""

from __future__ import annotations

from tokenizers import Regex, pre_tokenizers

from infer_plugin_api.errors import ModelError

_CONTRACTIONS = "'s|'t|'re|'ve|'m|'ll|'d"
_GPT2 = rf"{_CONTRACTIONS}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
_DIGIT = r"\p{N}"


def _words(longest_number: str) -> str:
    return (
        rf"(?i:{_CONTRACTIONS})|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{longest_number}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


_LLAMA3 = (_words(r"\p{N}{1,3}"),)
_QWEN2 = (_words(_DIGIT),)
_DIGITS_GPT2 = (_DIGIT, _GPT2)
_SPLITS: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "gpt-2": (_GPT2,),
    "phi-2": (_GPT2,),
    "mpt": (_GPT2,),
    "olmo": (_GPT2,),
    "smollm": _DIGITS_GPT2,
    "starcoder": _DIGITS_GPT2,
    "refact": _DIGITS_GPT2,
    "command-r": _DIGITS_GPT2,
    "codeshell": _DIGITS_GPT2,
    "llama-bpe": _LLAMA3,
    "llama3": _LLAMA3,
    "llama-v3": _LLAMA3,
    "smaug-bpe": _LLAMA3,
    "dbrx": _LLAMA3,
    "qwen2": _QWEN2,
    "deepseek-r1-qwen": _QWEN2,
}
_WHOLE_WORDS_FIRST = frozenset({"llama-bpe", "llama3", "llama-v3"})
_COMPOSED = frozenset({"qwen2", "deepseek-r1-qwen"})


def pre_tokenizer(name: str) -> pre_tokenizers.PreTokenizer:
    """Return the pre-tokenizer called *name*. Raises ModelError listing the known ones."""
    if name not in _SPLITS:
        raise ModelError(
            f"the pre-tokenizer {name!r} (tokenizer.ggml.pre) is not supported; "
            f"known: {', '.join(sorted(_SPLITS))}"
        )
    cuts = [pre_tokenizers.Split(Regex(split), "isolated") for split in _SPLITS[name]]
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    return pre_tokenizers.Sequence([*cuts, to_bytes])


def ignores_merges(name: str) -> bool:
    """Whether a piece that is a token by itself is never built from merges (Llama 3)."""
    return name in _WHOLE_WORDS_FIRST


def begins_with_bos(name: str) -> bool:
    """Whether texts begin with the beginning token when the file does not say."""
    return name in _WHOLE_WORDS_FIRST


def composes(name: str) -> bool:
    """Whether text is brought into Unicode's composed form (NFC) first."""
    return name in _COMPOSED
