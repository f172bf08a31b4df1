"""``python -m infer`` is the same program as ``infer``."""

from __future__ import annotations

from infer.cli.main import entry

if __name__ == "__main__":
    entry()
