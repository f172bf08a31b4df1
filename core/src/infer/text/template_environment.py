"""What chat templates may use: jinja2's sandbox and a few functions that models rely on."""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from typing import Any

from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class TemplateRefusal(Exception):  # noqa: N818 - the template's decision, not a fault of it
    """A template called ``raise_exception``; the text is its own."""


@cache
def environment() -> ImmutableSandboxedEnvironment:
    """Return the environment of all chat templates."""
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols", _GenerationBlock],
    )
    made.filters["tojson"] = _to_json
    made.globals["raise_exception"] = _refuse
    made.globals["strftime_now"] = _now
    return made


def _refuse(message: str) -> None:
    raise TemplateRefusal(str(message))


def _now(pattern: str) -> str:
    return datetime.now().strftime(pattern)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as models saw it in training: characters as they are, nothing escaped for HTML."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


class _GenerationBlock(Extension):
    """``{% generation %}`` marks the assistant's words for training; here it is transparent."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return list(parser.parse_statements(("name:endgeneration",), drop_needle=True))
