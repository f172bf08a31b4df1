"""Chat templates: messages to a prompt, in jinja2's sandbox."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from infer_plugin_api.errors import ModelError
from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from infer.text.tokenizer import Tokenizer, read_json


class ChatTemplateError(ValueError):
    """Messages that a template refuses or can't render. The text is one line for the client."""


class ChatTemplate:
    """One template with the model's special tokens.

    Raises ModelError when the source is no valid template.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._special = dict(special_tokens)
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _GenerationBlock],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["raise_exception"] = _refuse
        environment.globals["strftime_now"] = _now
        try:
            self._template = environment.from_string(source)
        except TemplateError as error:
            raise ModelError(f"the chat template can't be parsed: {error}") from error

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **extra: Any,
    ) -> str:
        """Return the prompt. Raises ChatTemplateError with the template's own words."""
        values = {
            **self._special,
            **extra,
            "messages": [_plain(message) for message in messages],
            "tools": tools,
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return str(self._template.render(values))
        except ChatTemplateError:
            raise
        except (TemplateError, TypeError, ValueError, KeyError, IndexError) as error:
            raise ChatTemplateError(
                f"the chat template can't render these messages: {error}"
            ) from error


def load_template(folder: Path, tokenizer: Tokenizer, given: str | None) -> ChatTemplate | None:
    """Return the template of a model folder, or the *given* one (a file or the text itself).

    None when the model has none. Raises ModelError when the given file can't be read.
    """
    source = _given(given) if given is not None else _stored(folder, tokenizer)
    return None if source is None else ChatTemplate(source, tokenizer.special_text())


def _given(given: str) -> str:
    if "{%" in given or "{{" in given:
        return given
    try:
        return Path(given).read_text(encoding="utf-8")
    except OSError as error:
        raise ModelError(f"--chat-template {given} can't be read: {error.strerror}") from error


def _stored(folder: Path, tokenizer: Tokenizer) -> str | None:
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    stored = tokenizer.settings.get("chat_template")
    stored = stored or read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(stored, list):
        named = {item.get("name"): item.get("template") for item in stored}
        stored = named.get("default") or next(iter(named.values()), None)
    return stored if isinstance(stored, str) else None


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """Join text parts: templates of text models expect strings."""
    content = message.get("content")
    if isinstance(content, list) and all(part.get("type") == "text" for part in content):
        content = "".join(part.get("text", "") for part in content)
    return {**message, "content": content}


def _refuse(message: str) -> None:
    raise ChatTemplateError(str(message))


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(value: Any, indent: int | None = None, **options: Any) -> str:
    """JSON as models saw it in training: characters as they are, nothing escaped for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


class _GenerationBlock(Extension):
    """``{% generation %}`` marks the assistant's words for training; here it is transparent."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))
