"""Log-probabilities in the shapes of the two routes."""

from __future__ import annotations

import codecs
from collections.abc import Sequence

from infer.engine.outputs import Delta, TokenLogprob
from infer.server.responses import (
    ChatLogprobs,
    ChatTokenLogprob,
    ChatTopLogprob,
    CompletionLogprobs,
)

_LOWEST = -9999.0


def shown(delta: Delta, include_stop: bool) -> Sequence[TokenLogprob] | None:
    """Return the entries of *delta* without that of a stop id, which is not in the text."""
    entries = delta.logprobs
    by_id = delta.finish_reason == "stop" and not isinstance(delta.stop_reason, str)
    return entries[:-1] if entries and by_id and not include_stop else entries


def chat_logprobs(entries: Sequence[TokenLogprob]) -> ChatLogprobs:
    return ChatLogprobs(
        [
            ChatTokenLogprob(
                entry.text,
                _finite(entry.logprob),
                list(entry.bytes),
                [
                    ChatTopLogprob(top.text, _finite(top.logprob), list(top.bytes))
                    for top in entry.top
                ],
            )
            for entry in entries
        ]
    )


class CompletionLogprobWriter:
    """The older shape: parallel lists, with each token's place in the answer's text."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._length = 0

    def write(self, entries: Sequence[TokenLogprob], alternatives: int) -> CompletionLogprobs:
        """Return the lists of the next tokens; offsets count characters."""
        offsets = []
        for entry in entries:
            offsets.append(self._length)
            self._length += len(self._decoder.decode(entry.bytes))
        tops = [
            {_name(item): _finite(item.logprob) for item in (*entry.top[:alternatives], entry)}
            for entry in entries
        ]
        return CompletionLogprobs(
            tokens=[_name(entry) for entry in entries],
            token_logprobs=[_finite(entry.logprob) for entry in entries],
            top_logprobs=tops if alternatives else None,
            text_offset=offsets,
        )


def joined(parts: Sequence[CompletionLogprobs]) -> CompletionLogprobs:
    """Return the lists of several parts as one."""
    tops = [top for part in parts for top in part.top_logprobs or ()]
    return CompletionLogprobs(
        tokens=[token for part in parts for token in part.tokens],
        token_logprobs=[value for part in parts for value in part.token_logprobs],
        top_logprobs=tops or None,
        text_offset=[offset for part in parts for offset in part.text_offset],
    )


def _name(entry: TokenLogprob) -> str:
    """The token's text; one that is not whole characters is spelt in bytes, so names differ."""
    try:
        return entry.bytes.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in entry.bytes)


def _finite(logprob: float) -> float:
    """JSON has no infinity; OpenAI writes -9999 for a token that can't come."""
    return max(logprob, _LOWEST)
