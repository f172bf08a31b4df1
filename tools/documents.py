"""What the documents contain that can be run: files and commands in code blocks.

A block that begins with ``LANGUAGE FILE`` is the content of that file. In ``console`` blocks, lines
are commands when they begin with ``$ ``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One code block. file: the name after the language, or empty."""

    language: str
    file: str
    text: str


def blocks(document: Path) -> Iterator[Block]:
    """Yield the code blocks of a Markdown file in order."""
    for language, file, text in _BLOCK.findall(document.read_text()):
        yield Block(language, file, text)


def files(document: Path) -> dict[str, str]:
    """Return the files that a document spells out, by name."""
    return {block.file: block.text for block in blocks(document) if block.file}


def commands(document: Path) -> list[str]:
    """Return the commands of a document in order; a backslash joins lines."""
    found = []
    for block in blocks(document):
        if block.language == "console":
            lines = block.text.replace("\\\n", "").splitlines()
            found += [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return found
