"""Incremental detokenization: ids in, text out, never half a character."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from infer.text.tokenizer import Tokenizer


class IncrementalDetokenizer:
    """Turns a stream of ids into text. Joined, the pieces are the text of all ids.

    A token costs the same however long the text is: its bytes go through an incremental UTF-8
    decoder, which holds back an unfinished character.
    """

    def __init__(self, tokenizer: Tokenizer, *, skip_special_tokens: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skipped = tokenizer.special_ids if skip_special_tokens else frozenset[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token_ids: Iterable[int]) -> str:
        """Return the text that *token_ids* complete."""
        data = b"".join(
            self._tokenizer.token_bytes(token) for token in token_ids if token not in self._skipped
        )
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Return what is left at the end: a replacement character for an unfinished one."""
        return self._decoder.decode(b"", final=True)
