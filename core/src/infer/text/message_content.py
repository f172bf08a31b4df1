"""The content of messages in the shape that a chat template expects: one text, or a list of parts.

Clients may send either. Which one a template is written for is read off its syntax tree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jinja2 import nodes

_SHAPE_TESTS = frozenset({"string", "iterable", "sequence", "mapping"})


class ContentError(ValueError):
    """Content that can't be given to the template. The text is one line."""


@dataclass(frozen=True)
class ContentStyle:
    """parts: the template goes through lists of parts. text: it takes plain text."""

    parts: bool
    text: bool

    @classmethod
    def of(cls, tree: nodes.Template) -> ContentStyle:
        """Read the style off a template."""
        assigned = {
            assign.target.name
            for assign in tree.find_all(nodes.Assign)
            if isinstance(assign.target, nodes.Name) and _is_content(assign.node, frozenset())
        }
        # Macros get it as an argument, which templates call by the same name.
        known = frozenset({"content", *assigned})
        parts = any(_is_content(loop.iter, known) for loop in tree.find_all(nodes.For))
        tested = any(
            test.name in _SHAPE_TESTS and _is_content(test.node, known)
            for test in tree.find_all(nodes.Test)
        )
        return cls(parts=parts, text=tested or not parts)

    def adapt(self, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return copies of *messages* with their content as the template expects it.

        Raises ContentError for parts that are no text when it takes text only.
        """
        return [self._adapted(message) for message in messages]

    def _adapted(self, message: Mapping[str, Any]) -> dict[str, Any]:
        content = message.get("content")
        if isinstance(content, list) and not self.parts:
            return {**message, "content": "".join(_texts(content))}
        if isinstance(content, str) and not self.text:
            return {**message, "content": [{"type": "text", "text": content}]}
        return dict(message)


def _texts(parts: list[Any]) -> Iterator[str]:
    for part in parts:
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise ContentError(
                f"a content part of type {kind!r} is not supported: the model's chat template "
                'takes text only, as a string or {"type": "text", "text": …}'
            )
        yield part["text"]


def _is_content(node: nodes.Node | None, names: frozenset[str]) -> bool:
    """Whether an expression is a message's content, perhaps filtered or sliced."""
    if isinstance(node, nodes.Filter):
        return _is_content(node.node, names)
    if isinstance(node, nodes.Getattr):
        return bool(node.attr == "content")
    if isinstance(node, nodes.Getitem):
        if isinstance(node.arg, nodes.Slice):
            return _is_content(node.node, names)
        return isinstance(node.arg, nodes.Const) and node.arg.value == "content"
    return isinstance(node, nodes.Name) and node.name in names
