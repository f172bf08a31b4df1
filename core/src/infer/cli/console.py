"""What commands print: aligned tables, and warnings as single lines."""

from __future__ import annotations

import logging
import sys
import textwrap
from collections.abc import Sequence

WIDTH = 100


def show_warnings() -> None:
    """Send warnings to stderr as ``infer: warning: …``; a command may set up logs of its own."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_WarningFormatter("infer: %(level)s: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler], force=True)


def table(rows: Sequence[Sequence[str]], gap: str = "  ") -> str:
    """Return rows of equal length as aligned columns; the last one is wrapped at the width."""
    *columns, _ = zip(*rows, strict=True)
    widths = [max(map(len, column)) for column in columns]
    room = max(20, WIDTH - sum(widths) - len(gap) * len(widths))
    lines = []
    for *cells, last in rows:
        start = gap.join(f"{cell:{width}}" for cell, width in zip(cells, widths, strict=True))
        for number, part in enumerate(_wrapped(last, room)):
            begin = start if number == 0 else " " * len(start)
            lines.append(f"{begin}{gap}{part}".rstrip())
    return "\n".join(lines)


def _wrapped(text: str, room: int) -> list[str]:
    """Return lines; paths and other long words stay whole, so that they can be copied."""
    lines = textwrap.wrap(text, room, break_on_hyphens=False, break_long_words=False)
    return lines or [""]


class _WarningFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        record.level = record.levelname.lower()
        return super().format(record)
