"""The argument parser of all commands: errors in one line, with the nearest flag that exists."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from infer.cli.config_file import file_values


class CommandParser(argparse.ArgumentParser):
    """Like its base, but a flag is never abbreviated: a new one would change what it means."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> argparse.Namespace:
        """Parse all of *args*; exits with 2 and one line for what is not known."""
        parsed, unknown = self.parse_known_args(args, namespace)
        if unknown:
            word = next((word for word in unknown if word.startswith("-")), unknown[0])
            near = difflib.get_close_matches(word.partition("=")[0], list(_flags(self)), 1)
            hint = f"; did you mean {near[0]}?" if near and word.startswith("-") else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        return parsed

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """Parse *args*; what they do not say is taken from the file of ``--config``, if given.

        Raises UserError for a bad file.
        """
        given = super().parse_known_args(args, namespace)
        path = getattr(given[0], "config", None)
        if path is None or "--config" not in self._option_string_actions:
            return given
        self.set_defaults(**file_values(path, self._actions))
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        """End with exit code 2 and one line on stderr."""
        ending = "" if message.endswith("?") else ";"
        self.exit(2, f"infer: error: {message}{ending} see {self.prog} --help\n")


def _flags(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                yield from _flags(sub)
