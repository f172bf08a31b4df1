"""Request bodies. A field that is absent, null or at its default means the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from infer.server.errors import bad_request, unsupported

Text = str | list[str]
MAX_ANSWERS = 1024


class StreamOptions(msgspec.Struct, kw_only=True):
    include_usage: bool | None = None


class GenerationRequest(msgspec.Struct, kw_only=True):
    """What both routes take: OpenAI's fields, then those that vLLM adds, then ours."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stop: Text | None = None
    seed: int | None = None

    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    bad_words: list[str] | None = None
    priority: int | None = None
    cache_salt: str | None = None
    add_special_tokens: bool | None = None
    logits_processors: list[str] | None = None

    allowed_token_ids: Any = None
    best_of: int | None = None
    guided_choice: Any = None
    guided_grammar: Any = None
    guided_json: Any = None
    guided_regex: Any = None
    length_penalty: Any = None
    prompt_logprobs: Any = None
    response_format: Any = None
    skip_special_tokens: Any = None
    structured_outputs: Any = None
    truncate_prompt_tokens: Any = None
    use_beam_search: Any = None


class ChatRequest(GenerationRequest, kw_only=True):
    messages: list[dict[str, Any]] | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    add_generation_prompt: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    audio: Any = None
    chat_template: Any = None
    continue_final_message: Any = None
    documents: Any = None
    function_call: Any = None
    functions: Any = None
    modalities: Any = None
    tool_choice: Any = None
    tools: Any = None
    web_search_options: Any = None


class CompletionRequest(GenerationRequest, kw_only=True):
    prompt: str | list[Any] | None = None
    logprobs: int | None = None

    echo: Any = None
    prompt_embeds: Any = None
    suffix: Any = None


def _default(*values: Any) -> Callable[[Any], bool]:
    return lambda value: value in values


_NOTHING = _default(False, [], {}, "")
_ACCEPTED: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(
        (
            "allowed_token_ids",
            "audio",
            "chat_template",
            "continue_final_message",
            "documents",
            "echo",
            "functions",
            "guided_choice",
            "guided_grammar",
            "guided_json",
            "guided_regex",
            "prompt_embeds",
            "structured_outputs",
            "suffix",
            "tools",
            "use_beam_search",
            "web_search_options",
        ),
        _NOTHING,
    ),
    "function_call": _default("none", "auto"),
    "length_penalty": _default(1, 1.0),
    "modalities": _default([], ["text"]),
    "prompt_logprobs": _default(),
    "response_format": _default({}, {"type": "text"}),
    "skip_special_tokens": _default(True),
    "tool_choice": _default("none", "auto"),
    "truncate_prompt_tokens": _default(),
}
"""Fields of features that do not exist yet: what may be said without asking for the feature."""


def check_request(request: GenerationRequest) -> None:
    """Refuse what would be ignored silently. Raises ApiError naming the field."""
    for name, accepts in _ACCEPTED.items():
        value = getattr(request, name, None)
        if value is not None and not accepts(value):
            raise unsupported(name)
    n = 1 if request.n is None else request.n
    if request.best_of is not None and request.best_of != n:
        if request.best_of < n:
            raise bad_request("best_of", f"best_of {request.best_of} must be at least n ({n})")
        raise unsupported("best_of", f"above n ({n}) is not supported")
    if request.stream_options is not None and not request.stream:
        raise bad_request("stream_options", "stream_options is only allowed with stream: true")


def prompts_of(request: CompletionRequest) -> list[str | list[int]]:
    """Return the prompts: a text, texts, ids, or lists of ids. Raises ApiError."""
    prompt = request.prompt
    if prompt is None or prompt == []:
        raise bad_request("prompt", "prompt is missing; give a text or token ids")
    if isinstance(prompt, str):
        return [prompt]
    if _all_ids(prompt):
        return [prompt]
    if all(isinstance(item, str) for item in prompt):
        return _few(prompt, request)
    if all(isinstance(item, list) and _all_ids(item) for item in prompt):
        return _few(prompt, request)
    raise bad_request(
        "prompt", "prompt must be a text, a list of texts, token ids, or a list of token id lists"
    )


def _all_ids(items: list[Any]) -> bool:
    return all(type(item) is int for item in items)


def _few(prompts: list[Any], request: CompletionRequest) -> list[Any]:
    answers = len(prompts) * (request.n or 1)
    if answers > MAX_ANSWERS:
        raise bad_request(
            "prompt", f"{answers} answers in one request (prompts times n), at most {MAX_ANSWERS}"
        )
    return prompts


def check_messages(messages: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """Return the messages of a chat. Raises ApiError naming the first that can't be used."""
    if not messages:
        raise bad_request("messages", "messages is missing or empty; give at least one message")
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message.get("role"), str):
            raise bad_request(f"{where}.role", f"{where}.role must be a string")
        if message["role"] in ("tool", "function"):
            raise unsupported(f"{where}.role", f"{message['role']!r} is not supported yet")
        for name in ("tool_calls", "function_call"):
            if message.get(name):
                raise unsupported(f"{where}.{name}")
        _check_content(message.get("content"), f"{where}.content")
    return messages


def _check_content(content: Any, where: str) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        found = "null" if content is None else type(content).__name__
        raise bad_request(where, f"{where} must be a string or a list of parts, not {found}")
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind != "text":
            raise unsupported(
                f"{where}[{index}].type", f"{str(kind)[:50]!r} is not supported yet; only 'text' is"
            )
        if not isinstance(part.get("text"), str):
            raise bad_request(f"{where}[{index}].text", f"{where}[{index}].text must be a string")
