"""Tokenizers, by the ``tokenizers`` library, with exact bytes of every token."""

from __future__ import annotations

import json
from functools import cached_property
from pathlib import Path
from typing import Any

from infer_plugin_api.errors import ModelError
from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"


class Tokenizer:
    """Text to ids and back. ``load`` reads a model folder."""

    def __init__(self, backend: Backend, settings: dict[str, Any]) -> None:
        self._backend = backend
        self.settings = settings
        added = backend.get_added_tokens_decoder()
        self.special_ids = frozenset(index for index, token in added.items() if token.special)
        self._added = {index: token.content for index, token in added.items()}
        self._byte_level = "ByteLevel" in json.dumps(_decoder(backend))
        self._bytes: dict[int, bytes] = {}

    @classmethod
    def load(cls, folder: Path) -> Tokenizer:
        """Read ``tokenizer.json`` and ``tokenizer_config.json``.

        Raises ModelError when there is no tokenizer or it can't be read.
        """
        path = folder / "tokenizer.json"
        if not path.is_file():
            hint = (
                "it has only a SentencePiece tokenizer.model; convert it with transformers"
                if (folder / "tokenizer.model").is_file()
                else "a text model needs one"
            )
            raise ModelError(f"{folder} has no tokenizer.json: {hint}")
        try:
            backend = Backend.from_file(str(path))
        except Exception as error:
            raise ModelError(f"{path} can't be read as a tokenizer: {error}") from error
        backend.no_padding()
        backend.no_truncation()
        settings = read_json(folder / "special_tokens_map.json")
        settings |= read_json(folder / "tokenizer_config.json")
        _add_special_tokens(backend, settings)
        return cls(backend, settings)

    @property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included."""
        return int(self._backend.get_vocab_size(with_added_tokens=True))

    @cached_property
    def bos_id(self) -> int | None:
        return self._named("bos_token")

    @cached_property
    def eos_ids(self) -> tuple[int, ...]:
        """The end-of-sequence id of the tokenizer's own settings, if it names one."""
        eos = self._named("eos_token")
        return () if eos is None else (eos,)

    def special_text(self) -> dict[str, str]:
        """Return the named special tokens (``bos_token``, …) as text, for chat templates."""
        names = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")
        return {name: text for name in names if (text := token_content(self.settings.get(name)))}

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """Return the ids of *text*. Takes the GIL only for the conversion."""
        return list(self._backend.encode(text, add_special_tokens=add_special_tokens).ids)

    def decode(self, ids: list[int], skip_special_tokens: bool = True) -> str:
        """Return the text of *ids*; bytes that are no UTF-8 become replacement characters."""
        kept = (i for i in ids if not (skip_special_tokens and i in self.special_ids))
        return b"".join(map(self.token_bytes, kept)).decode("utf-8", errors="replace")

    def token_text(self, token_id: int) -> str:
        """Return one token alone as text."""
        return self.token_bytes(token_id).decode("utf-8", errors="replace")

    def token_bytes(self, token_id: int) -> bytes:
        """Return the exact bytes of a token; empty for an id that the tokenizer does not know."""
        known = self._bytes.get(token_id)
        if known is None:
            known = self._bytes[token_id] = self._find_bytes(token_id)
        return known

    def _find_bytes(self, token_id: int) -> bytes:
        if token_id in self._added:
            return self._added[token_id].encode()
        piece = self._backend.id_to_token(token_id) if token_id >= 0 else None
        if piece is None:
            return b""
        if self._byte_level:
            return b"".join(_BYTE_OF.get(char, char.encode()) for char in piece)
        if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
            return bytes([int(piece[3:5], 16)])
        return piece.replace(_SPACE_MARK, " ").encode()

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
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} can't be read as JSON: {error}") from error
    if not isinstance(value, dict):
        raise ModelError(f"{path} must hold a JSON object, not {type(value).__name__}")
    return value


def token_content(token: Any) -> str | None:
    """Return the text of a token given as a string or as a serialized AddedToken."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def _decoder(backend: Backend) -> Any:
    return json.loads(backend.to_str()).get("decoder") if backend.decoder else None


def _add_special_tokens(backend: Backend, settings: dict[str, Any]) -> None:
    """Make sure that special tokens named in the settings are matched whole in text."""
    named = [
        AddedToken(content, special=True)
        for key, value in settings.items()
        if key.endswith("_token") and (content := token_content(value))
        if backend.token_to_id(content) is not None
    ]
    backend.add_special_tokens(named)


def _byte_alphabet() -> dict[str, bytes]:
    """GPT-2's one-character names of bytes: printable ones are themselves, others follow 255."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {chr(byte): bytes([byte]) for byte in printable}
    others = [byte for byte in range(256) if byte not in printable]
    return names | {chr(256 + index): bytes([byte]) for index, byte in enumerate(others)}


_BYTE_OF = _byte_alphabet()
