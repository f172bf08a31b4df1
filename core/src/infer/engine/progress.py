"""The progress of loading weights, where a person can see it."""

from __future__ import annotations

import sys
from collections.abc import Callable

_WIDTH = 30

Progress = Callable[[int, int], None]


def progress_on_terminal() -> Progress | None:
    """Return a bar on stderr, or None when stderr is no terminal."""
    return draw if sys.stderr.isatty() else None


def draw(done: int, total: int) -> None:
    """Draw the bar over itself; it goes away when everything is loaded."""
    share = done / total if total else 1.0
    filled = int(share * _WIDTH)
    bar = "#" * filled + "-" * (_WIDTH - filled)
    line = f"loading weights [{bar}] {done / 1e6:.0f} of {total / 1e6:.0f} MB"
    end = "\r" + " " * len(line) + "\r" if done >= total else ""
    sys.stderr.write(f"\r{line}{end}")
    sys.stderr.flush()
