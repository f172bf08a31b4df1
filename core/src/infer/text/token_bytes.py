"""What bytes a token stands for, by the kind of vocabulary."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tokenizers import Tokenizer as Backend

from infer_plugin_api.errors import ModelError

SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
"""Stands for a space in SentencePiece vocabularies."""

_Rule = Callable[[str, bool], bytes]


class TokenBytes(dict[int, bytes]):
    """The bytes of every token that was asked for; unknown ids have none.

    leading_spaces: how many spaces at the very beginning of a text the encoder put there, so that
    decoding drops them. Raises ModelError for a kind of vocabulary whose bytes aren't known.
    """

    def __init__(self, backend: Backend) -> None:
        super().__init__()
        steps = list(_steps(backend))
        self.leading_spaces = max(map(_stripped, steps), default=0)
        self._rule = _rule(steps)
        self._backend = backend
        self._added = {
            index: token.content for index, token in backend.get_added_tokens_decoder().items()
        }

    def __missing__(self, token_id: int) -> bytes:
        added = self._added.get(token_id)
        piece = added
        if piece is None and token_id >= 0:
            piece = self._backend.id_to_token(token_id)
        found = b"" if piece is None else self._rule(piece, added is not None)
        self[token_id] = found
        return found


def byte_alphabet() -> dict[str, int]:
    """Return the byte-level alphabet of GPT-2: a printable character for each byte.

    Printable bytes are named by themselves, the others by the characters after U+00FF.
    """
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(256) if byte not in set(printable)]
    return names | {chr(256 + index): byte for index, byte in enumerate(others)}


_BYTE_OF = byte_alphabet()


def _byte_level(piece: str, added: bool) -> bytes:
    if added or not all(char in _BYTE_OF for char in piece):
        return piece.encode()
    return bytes(_BYTE_OF[char] for char in piece)


def _sentencepiece(piece: str, added: bool) -> bytes:
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes([int(piece[3:5], 16)])
    return piece.replace(SPACE_MARK, " ").encode()


def _rule(steps: list[dict[str, Any]]) -> _Rule:
    kinds = [step["type"] for step in steps]
    if "ByteLevel" in kinds:
        return _byte_level
    if "ByteFallback" in kinds or "Metaspace" in kinds or any(map(_names_spaces, steps)):
        return _sentencepiece
    raise ModelError(
        f"the decoder {' + '.join(kinds) or 'is missing, which'} is not supported; "
        "known are ByteLevel, and SentencePiece's ByteFallback, Metaspace and Replace"
    )


def _steps(backend: Backend) -> Iterator[dict[str, Any]]:
    """Yield the decoder's steps, each as ``tokenizer.json`` describes it."""
    if backend.decoder is not None:
        waiting = [json.loads(backend.decoder.__getstate__())]
        while waiting:
            step = waiting.pop(0)
            if step["type"] == "Sequence":
                waiting = [*step["decoders"], *waiting]
            else:
                yield step


def _names_spaces(step: dict[str, Any]) -> bool:
    return bool(step["type"] == "Replace" and step["pattern"] == {"String": SPACE_MARK})


def _stripped(step: dict[str, Any]) -> int:
    if step["type"] == "Strip" and step["content"] == " ":
        return int(step["start"])
    return int(step["type"] == "Metaspace" and step.get("prepend_scheme") != "never")
