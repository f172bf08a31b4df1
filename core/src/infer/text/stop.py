"""Stop strings over streamed text."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Watches text for the first of some strings; empty strings are never looked for.

    Text that may be the beginning of a stop string is held back until that is decided. The string
    that is complete first wins, the longest of those that end together: so the result does not
    depend on the pieces in which the text arrives. A character costs the same however long the
    strings are.
    """

    def __init__(self, stops: Sequence[str], *, include: bool = False) -> None:
        self._matchers = [_Matcher(stop) for stop in dict.fromkeys(stops) if stop]
        self._include = include
        self._held = ""

    def push(self, text: str, *, may_stop: bool = True) -> tuple[str, str | None]:
        """Return (text to show, the stop string that was found or None).

        may_stop: False while too few tokens were generated; such text is never part of a match.
        """
        if not self._matchers:
            return text, None
        if not may_stop:
            return self.flush() + text, None
        seen = self._held + text
        for end, character in enumerate(text, len(self._held) + 1):
            found = [matcher.stop for matcher in self._matchers if matcher.feed(character)]
            if found:
                stop = max(found, key=len)
                self.flush()
                return seen[: end if self._include else end - len(stop)], stop
        shown = len(seen) - max(matcher.matched for matcher in self._matchers)
        self._held = seen[shown:]
        return seen[:shown], None

    def flush(self) -> str:
        """Return what was held back; what follows is watched as a new text."""
        held, self._held = self._held, ""
        for matcher in self._matchers:
            matcher.matched = 0
        return held


class _Matcher:
    """Finds one string, a character at a time (Knuth, Morris and Pratt, 1977).

    matched: length of the longest beginning of the string that the text so far ends with.
    """

    def __init__(self, stop: str) -> None:
        self.stop = stop
        self.matched = 0
        self._shorter = _borders(stop)

    def feed(self, character: str) -> bool:
        """Take one character; return whether the string is complete."""
        while self.matched and self.stop[self.matched] != character:
            self.matched = self._shorter[self.matched]
        if self.stop[self.matched] == character:
            self.matched += 1
        return self.matched == len(self.stop)


def _borders(text: str) -> list[int]:
    """Return for each length the longest proper beginning that also ends that much of *text*."""
    borders, length = [0, 0], 0
    for character in text[1:]:
        while length and text[length] != character:
            length = borders[length]
        if text[length] == character:
            length += 1
        borders.append(length)
    return borders
