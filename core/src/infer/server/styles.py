"""How deltas become a route's choices, streamed or whole. One object serves one request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from infer.engine.outputs import Delta, TokenLogprob
from infer.server.logprobs import CompletionLogprobWriter, chat_logprobs, joined, shown
from infer.server.responses import (
    ChatAnswer,
    ChatChoice,
    ChatChunkChoice,
    ChatDelta,
    ChatLogprobs,
    ChatMessage,
    CompletionAnswer,
    CompletionChoice,
    CompletionLogprobs,
    Usage,
)
from infer_plugin_api.sampling import SamplingParams


class Style(ABC):
    """One route's shapes."""

    id_prefix: str
    chunk_object: str

    def __init__(self, params: SamplingParams) -> None:
        self.params = params

    @abstractmethod
    def chunk(self, index: int, delta: Delta) -> list[Any]:
        """Return the choices of the stream's next event; empty when nobody would see a change."""

    @abstractmethod
    def collect(self, index: int, delta: Delta) -> None:
        """Keep *delta* for :meth:`whole`."""

    @abstractmethod
    def whole(self, ident: str, created: int, model: str, usage: Usage) -> Any:
        """Return the answer's body."""

    def entries(self, delta: Delta) -> Sequence[TokenLogprob] | None:
        return shown(delta, self.params.include_stop_str_in_output)


@dataclass
class _Parts:
    """One answer as it is collected."""

    text: list[str] = field(default_factory=list)
    logprobs: list[Any] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: str | int | None = None

    def add(self, delta: Delta) -> None:
        self.text.append(delta.text)
        if delta.finish_reason is not None:
            self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason


class ChatStyle(Style):
    id_prefix = "chatcmpl-"
    chunk_object = "chat.completion.chunk"

    def __init__(self, params: SamplingParams) -> None:
        super().__init__(params)
        self._begun: set[int] = set()
        self._parts: dict[int, _Parts] = {}

    def chunk(self, index: int, delta: Delta) -> list[ChatChunkChoice]:
        choices = []
        if index not in self._begun:
            self._begun.add(index)
            choices.append(ChatChunkChoice(index, ChatDelta("assistant", "")))
        entries = self.entries(delta)
        if delta.text or entries or delta.finish_reason:
            news = ChatDelta(content=delta.text) if delta.text or entries else ChatDelta()
            choice = ChatChunkChoice(index, news)
            choice.logprobs = chat_logprobs(entries) if entries else None
            choice.finish_reason = delta.finish_reason
            if delta.finish_reason is not None:
                choice.stop_reason = delta.stop_reason
            choices.append(choice)
        return choices

    def collect(self, index: int, delta: Delta) -> None:
        parts = self._parts.setdefault(index, _Parts())
        parts.add(delta)
        parts.logprobs += self.entries(delta) or ()

    def whole(self, ident: str, created: int, model: str, usage: Usage) -> ChatAnswer:
        choices = [
            ChatChoice(
                index,
                ChatMessage("assistant", "".join(parts.text)),
                self._logprobs(parts),
                parts.finish_reason,
                parts.stop_reason,
            )
            for index, parts in sorted(self._parts.items())
        ]
        return ChatAnswer(ident, "chat.completion", created, model, choices, usage)

    def _logprobs(self, parts: _Parts) -> ChatLogprobs | None:
        return None if self.params.logprobs is None else chat_logprobs(parts.logprobs)


class CompletionStyle(Style):
    id_prefix = "cmpl-"
    chunk_object = "text_completion"

    def __init__(self, params: SamplingParams) -> None:
        super().__init__(params)
        self._writers: dict[int, CompletionLogprobWriter] = {}
        self._parts: dict[int, _Parts] = {}

    def chunk(self, index: int, delta: Delta) -> list[CompletionChoice]:
        logprobs = self._logprobs(index, delta)
        if not (delta.text or logprobs or delta.finish_reason):
            return []
        choice = CompletionChoice(index, delta.text, logprobs, delta.finish_reason)
        if delta.finish_reason is not None:
            choice.stop_reason = delta.stop_reason
        return [choice]

    def collect(self, index: int, delta: Delta) -> None:
        parts = self._parts.setdefault(index, _Parts())
        parts.add(delta)
        if (logprobs := self._logprobs(index, delta)) is not None:
            parts.logprobs.append(logprobs)

    def whole(self, ident: str, created: int, model: str, usage: Usage) -> CompletionAnswer:
        wanted = self.params.logprobs is not None
        choices = [
            CompletionChoice(
                index,
                "".join(parts.text),
                joined(parts.logprobs) if wanted else None,
                parts.finish_reason,
                parts.stop_reason,
            )
            for index, parts in sorted(self._parts.items())
        ]
        return CompletionAnswer(ident, "text_completion", created, model, choices, usage)

    def _logprobs(self, index: int, delta: Delta) -> CompletionLogprobs | None:
        entries = self.entries(delta)
        if not entries:
            return None
        writer = self._writers.setdefault(index, CompletionLogprobWriter())
        return writer.write(entries, self.params.logprobs or 0)
