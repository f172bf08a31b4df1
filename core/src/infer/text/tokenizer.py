"""Tokenizers, by the ``tokenizers`` library, with exact bytes of every token."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from infer.text.token_bytes import TokenBytes
from infer_plugin_api.errors import ModelError
from infer_plugin_api.sampling import ParameterError

_NAMED = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")
_LISTED = ("extra_special_tokens", "additional_special_tokens")


class Tokenizer:
    """Text to ids and back. ``load`` reads a model folder."""

    def __init__(self, backend: Backend, settings: dict[str, Any]) -> None:
        self._backend = backend
        self.settings = settings
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        self._bytes = TokenBytes(backend)

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read ``tokenizer.json``, ``tokenizer_config.json`` and ``special_tokens_map.json``.

        Whether a text gets a beginning or an end token is what ``tokenizer.json`` says; the
        ``add_bos_token`` and ``add_eos_token`` of the settings count for other kinds of file.
        Raises ModelError when there is no tokenizer or it can't be read.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise ModelError(f"{folder} has no tokenizer.json: {_what_to_do(folder)}")
        try:
            backend = Backend.from_file(str(path))
        except Exception as error:
            reason = " ".join(str(error).split())
            raise ModelError(f"{path} can't be read as a tokenizer: {reason}") from error
        backend.no_padding()
        backend.no_truncation()
        settings = read_json(folder / "tokenizer_config.json")
        if "added_tokens_decoder" not in settings:
            settings |= read_json(folder / "special_tokens_map.json")
        _add_tokens(backend, settings)
        try:
            return cls(backend, settings)
        except ModelError as error:
            raise ModelError(f"{path}: {error}") from error

    @cached_property
    def vocab_size(self) -> int:
        """One more than the highest id, added tokens included."""
        return 1 + max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1)

    @cached_property
    def bos_id(self) -> int | None:
        return self._named("bos_token")

    @cached_property
    def pad_id(self) -> int | None:
        return self._named("pad_token")

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """The end-of-sequence id of the tokenizer's own settings, if it names one."""
        eos = self._named("eos_token")
        return () if eos is None else (eos,)

    def special_text(self) -> dict[str, str]:
        """Return the named special tokens (``bos_token``, …) as text, for chat templates."""
        return {name: text for name in _NAMED if (text := token_content(self.settings.get(name)))}

    @cached_property
    def longest_token(self) -> int:
        """Bytes of the longest token: a text can't have fewer tokens than that allows."""
        return max(len(self.token_bytes(token)) for token in range(self.vocab_size))

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of *text*. Raises ParameterError when it is no valid Unicode."""
        try:
            return list(self._backend.encode(text, add_special_tokens=add_special_tokens).ids)
        except TypeError:
            surrogate = next((char for char in text if "\ud800" <= char <= "\udfff"), None)
            if surrogate is None:
                raise
            raise ParameterError(
                "prompt", f"it has half a surrogate pair (U+{ord(surrogate):04X}), which is no text"
            ) from None

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = True) -> str:
        """Return the text of *ids*; bytes that are no UTF-8 become replacement characters."""
        kept = (i for i in ids if not (skip_special_tokens and i in self.special_ids))
        text = b"".join(map(self.token_bytes, kept)).decode("utf-8", errors="replace")
        spaces = len(text) - len(text.lstrip(" "))
        return text[min(spaces, self._bytes.leading_spaces) :]

    def token_text(self, token_id: int) -> str:
        """Return one token alone as text."""
        return self.token_bytes(token_id).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return the exact bytes of a token; empty for an id that the tokenizer does not know."""
        return self._bytes[token_id]

    def _named(self, name: str) -> int | None:
        content = token_content(self.settings.get(name))
        return None if content is None else self._backend.token_to_id(content)


def read_json(path: Path) -> dict[str, Any]:
    """Return a JSON object from a file, or an empty one when there is no file.

    Raises ModelError naming the file when it holds something else.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} can't be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value


def token_content(token: Any) -> str | None:
    """Return the text of a token given as a string or as a serialized AddedToken."""
    if isinstance(token, Mapping):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _what_to_do(folder: Path) -> str:
    if (folder / "tokenizer.model").is_file():
        return (
            "it has only a SentencePiece tokenizer.model, which is not read; "
            "save the tokenizer with transformers' AutoTokenizer to get a tokenizer.json"
        )
    return "a text model needs one"


def _add_tokens(backend: Backend, settings: Mapping[str, Any]) -> None:
    """Have the tokens that the settings name matched whole, the special ones as special.

    A named token that the vocabulary lacks is left out: the model has no embedding for it.
    """
    known = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    for token in _declared(settings):
        if known.get(token.content) != token and backend.token_to_id(token.content) is not None:
            backend.add_tokens([token])
            known[token.content] = token
    for content in _special(settings):
        token = known.get(content) or AddedToken(content, normalized=False)
        if not token.special and backend.token_to_id(content) is not None:
            token.special = True
            backend.add_special_tokens([token])


def _declared(settings: Mapping[str, Any]) -> Iterator[AddedToken]:
    """Yield the tokens of ``added_tokens_decoder``, in the order of their ids."""
    declared = settings.get("added_tokens_decoder")
    if not isinstance(declared, Mapping):
        return
    flags = ("single_word", "lstrip", "rstrip", "normalized", "special")
    for _, entry in sorted(declared.items(), key=lambda item: int(item[0])):
        yield AddedToken(entry["content"], **{flag: bool(entry.get(flag)) for flag in flags})


def _special(settings: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts of the special tokens that the settings name."""
    named = [value for key, value in settings.items() if key.endswith("_token")]
    listed = [settings.get(key) for key in _LISTED]
    for value in (*named, *(item for items in listed if isinstance(items, list) for item in items)):
        if content := token_content(value):
            yield content
