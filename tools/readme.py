"""The README's set-up commands, so that CI runs what the reader is told to type."""

from __future__ import annotations

import sys

from tools.workspace import ROOT

COMMANDS = {"serve": "tox -e serve", "test": "tox"}


def setup_command(name: str) -> str:
    """Return the set-up command that ends in tox's *name*. Raises LookupError."""
    ending = f".venv/bin/{COMMANDS[name]}"
    for line in (ROOT / "README.md").read_text().splitlines():
        command = line.strip()
        if command.startswith("python3 -m venv") and command.endswith(ending):
            return command
    raise LookupError(f"README.md has no set-up command that ends in {ending}")


if __name__ == "__main__":
    print(setup_command(sys.argv[1]))
