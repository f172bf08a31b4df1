"""Stop strings over streamed text."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Watches text for the first of some strings.

    Text that may be the beginning of a stop string is held back until that is decided. When
    several strings match, the one that begins first wins, then the longer one.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        self._stops = tuple(stop for stop in stops if stop)
        self._include = include
        self._held = ""

    def push(self, text: str, *, may_stop: bool = True) -> tuple[str, str | None]:
        """Return (text to show, the stop string that was found or None).

        may_stop: False while too few tokens were generated; such text is never part of a match.
        """
        if not self._stops:
            return text, None
        text = self._held + text
        self._held = ""
        if not may_stop:
            return text, None
        found = [(at, -len(stop), stop) for stop in self._stops if (at := text.find(stop)) >= 0]
        if found:
            at, _, stop = min(found)
            return text[: at + len(stop)] if self._include else text[:at], stop
        keep = self._undecided(text)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep], None

    def flush(self) -> str:
        """Return what was held back; the text has ended without a stop string."""
        held, self._held = self._held, ""
        return held

    def _undecided(self, text: str) -> int:
        """Length of the longest end of *text* that a stop string begins with."""
        longest = max(len(stop) for stop in self._stops) - 1
        for length in range(min(longest, len(text)), 0, -1):
            if any(stop.startswith(text[-length:]) for stop in self._stops):
                return length
        return 0
