"""Where infer keeps files between runs."""

from __future__ import annotations

import os
from pathlib import Path


def cache_dir() -> Path:
    """Return ``INFER_CACHE_DIR``, else ``infer`` in the user's cache folder (XDG). Not created."""
    if chosen := os.environ.get("INFER_CACHE_DIR"):
        return Path(chosen).expanduser()
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "infer"
