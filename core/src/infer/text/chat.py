"""Chat templates: messages to a prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Template, TemplateError, TemplateSyntaxError

from infer.config.errors import UserError
from infer.text.message_content import ContentError, ContentStyle
from infer.text.template_environment import TemplateRefusal, environment
from infer.text.tokenizer import Tokenizer, read_json
from infer_plugin_api.errors import ModelError

_DEFAULT, _WITH_TOOLS = "default", "tool_use"


class ChatTemplateError(UserError):
    """Messages that a template refuses or can't render. The text is one line for the client."""


class ChatTemplate:
    """One template with the model's special tokens, and perhaps another one for tools.

    Raises ModelError when the source is no valid template.
    """

    def __init__(
        self, source: str, special_tokens: Mapping[str, str], *, with_tools: str | None = None
    ) -> None:
        self.source = source
        self._special = dict(special_tokens)
        self._plain = _Compiled(source)
        self._with_tools = self._plain if with_tools is None else _Compiled(with_tools)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **extra: Any,
    ) -> str:
        """Return the prompt. Raises ChatTemplateError with the template's own words."""
        chosen = self._with_tools if tools else self._plain
        try:
            values = {
                **self._special,
                **extra,
                "messages": chosen.content.adapt(messages),
                "tools": tools,
                "add_generation_prompt": add_generation_prompt,
            }
            return chosen.template.render(values)
        except (ContentError, TemplateRefusal) as error:
            raise ChatTemplateError(_one_line(error)) from error
        except Exception as error:
            # A template is a program of its own: whatever it raises is its answer to the messages.
            raise ChatTemplateError(
                f"the chat template can't render these messages: {_one_line(error)}"
            ) from error


class _Compiled:
    """A template and the shape in which it expects the content of messages."""

    def __init__(self, source: str) -> None:
        try:
            self.template: Template = environment().from_string(source)
            self.content = ContentStyle.of(environment().parse(source))
        except TemplateSyntaxError as error:
            raise ModelError(
                f"the chat template can't be parsed: {error.message} (line {error.lineno}); "
                "--chat-template FILE gives another one"
            ) from error
        except (TemplateError, RecursionError) as error:
            raise ModelError(f"the chat template can't be used: {_one_line(error)}") from error


def load_template(folder: Path, tokenizer: Tokenizer, given: str | None) -> ChatTemplate | None:
    """Return the template of a model folder, or the *given* one (a file or the text itself).

    None when the model has none. Raises ModelError when the given file can't be read.
    """
    named = {_DEFAULT: _given(given)} if given is not None else _stored(folder, tokenizer)
    if not named:
        return None
    if _DEFAULT not in named and len(named) > 1:
        raise ModelError(
            f"{folder} has the chat templates {', '.join(sorted(named))} but no default one; "
            "choose with --chat-template FILE"
        )
    source = named.get(_DEFAULT) or next(iter(named.values()))
    return ChatTemplate(source, tokenizer.special_text(), with_tools=named.get(_WITH_TOOLS))


def _given(given: str) -> str:
    if "{%" in given or "{{" in given:
        return given
    try:
        return Path(given).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ModelError(f"--chat-template {given} can't be read: {reason}") from error


def _stored(folder: Path, tokenizer: Tokenizer) -> dict[str, str]:
    """Return a model's templates by name. Files of their own come before the settings."""
    files = {_DEFAULT: folder / "chat_template.jinja"}
    files |= {path.stem: path for path in (folder / "additional_chat_templates").glob("*.jinja")}
    if found := {name: _given(str(path)) for name, path in files.items() if path.is_file()}:
        return found
    stored = tokenizer.settings.get("chat_template")
    stored = stored or read_json(folder / "chat_template.json").get("chat_template")
    if isinstance(stored, str):
        return {_DEFAULT: stored}
    if isinstance(stored, list):
        stored = {item["name"]: item["template"] for item in stored if isinstance(item, Mapping)}
    return dict(stored) if isinstance(stored, Mapping) else {}


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
